"""Dead code: cutting a graph at values computed elsewhere leaves out all that only they needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...engine.error import InvalidValue
from ..graph import Node, Value, variable, with_inputs

AGAIN = "__again__"  # the mark, among a node's `extra`, of what recomputation added


def live(outputs: Iterable[Value], given: Iterable[Value] = ()) -> list[Node]:
    """The operator nodes that outputs need when `given` values are known, in the order of the
    graph; but what is computed again comes after all else that its reader waits for, so that it is
    held for a short time.

    An operator that writes an input stays if anything reads one of its outputs. Raises ValueError
    for a variable that is needed but not given.
    """
    given = set(given)
    order, done = [], set()
    for value in outputs:
        stack = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if ready:
                order.append(v.node)
                continue
            if v in given or v.node in done:
                continue
            if v.node.op is None:
                raise InvalidValue(f"variable {v.node.name!r} is not among the program's inputs")
            done.add(v.node)
            stack.append((v, True))
            inputs = v.node.inputs
            late = [x for x in inputs if x.node.extra and AGAIN in x.node.extra]
            if late:
                inputs = [*(x for x in inputs if x not in late), *late]
            stack.extend((x, False) for x in reversed(inputs))
    return order


def cut(outputs: Sequence[Value], given: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """The graph with each given value replaced by a variable: (outputs, the variables in the order
    of `given`)."""
    new = {v: v if v.node.op is None else variable("given", v.type) for v in given}
    for node in live(outputs, given):
        kept = with_inputs(node, [new[v] for v in node.inputs])
        for i in range(len(node.types)):
            new.setdefault(Value(node, i), Value(kept, i))
    return [new[v] for v in outputs], [new[v] for v in given]
