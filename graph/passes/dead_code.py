"""Dead code: cutting a graph at values computed elsewhere leaves out all that only they needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...engine.error import InvalidValue
from .._graph import walk
from ..graph import Node, Value, rewrite, variable

RECOMPUTED = "__recomputed__"  # the mark, among a node's `extra`, of what recomputation added


def live(outputs: Iterable[Value], given: Iterable[Value] = ()) -> list[Node]:
    """The operator nodes that outputs need when `given` values are known, in the order of the
    graph; but what is computed again comes after all else that its reader waits for, so that it is
    kept for a short time.

    An operator that writes an input stays if anything reads one of its outputs. Raises ValueError
    for a variable that is needed but not given.
    """
    outputs, given = list(outputs), set(given)
    order = walk(outputs, given)
    is_any = False
    for node in order:
        if node.op is None:
            raise InvalidValue(f"variable {node.name!r} is not among the program's inputs")
        if node.extra is not None and RECOMPUTED in node.extra:
            is_any = True
    if not is_any:
        return order
    readers = {
        n: tuple(sorted(n.inputs, key=_is_recomputed))
        for n in order
        if any(_is_recomputed(v) for v in n.inputs)
    }
    return walk(outputs, given, readers)


def _is_recomputed(v: Value) -> bool:
    extra = v.node.extra
    return extra is not None and RECOMPUTED in extra


def extract(outputs: Sequence[Value], given: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """The graph with each given value replaced by a variable: (outputs, the variables in the order
    of `given`)."""
    new = {v: v if v.node.op is None else variable("given", v.type) for v in given}
    made = rewrite(outputs, None, order=live(outputs, given), values=new)
    return made, [new[v] for v in given]
