"""Residuals: which results of a forward graph are stored for backward, and which are recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..engine.error import InvalidValue
from ..kernels.traits import Rematerializes
from .graph import Node, Value, topological, variable
from .passes import recompute as how
from .passes.gradient import gradient

default: bool | str = False  # the default of `recompute`; compat may set "mirror"


class Needs(NamedTuple):
    """What the gradient of a graph reads of its forward graph: results and variables; and the nodes
    that backward adds."""

    results: list[Value]
    variables: set[Node]
    backward: list[Node]

    def readers(self) -> dict[Value, list[Node]]:
        """Which nodes of backward read a value."""
        found: dict[Value, list[Node]] = {}
        for node in self.backward:
            for v in node.inputs:
                found.setdefault(v, []).append(node)
        return found


def needs(outputs: Sequence[Value], wrt: Sequence[Value], order: Sequence[Node]) -> Needs:
    """What backward reads if nothing is recomputed. order: the nodes of the graph."""
    forward = set(order)
    dys = [variable(f"dy{i}", h.type) for i, h in enumerate(outputs)]
    grads = [g for g in gradient(outputs, dys, wrt) if g is not None]
    backward = [n for n in topological(grads) if n not in forward]
    read = dict.fromkeys([v for n in backward for v in n.inputs if v.node in forward])
    read.update(dict.fromkeys([g for g in grads if g.node in forward]))
    results = [v for v in read if v.node.op is not None]
    return Needs(results, {v.node for v in read if v.node.op is None}, backward)


def residuals(
    outputs: Sequence[Value], wrt: Sequence[Value], tier: int = 0, recompute=None, bounds=()
) -> list[Value]:
    """Forward results that must be stored for backward; it recomputes the rest from them and from
    the variables.

    tier: 0 stores all that the gradient reads, 1 recomputes what costs nothing. recompute: see
    HybridBlock.hybridize; None is `default`. bounds: results of the blocks. Results of random
    operators are always stored.
    """
    recompute = default if recompute is None else recompute
    order = topological(outputs)
    need = needs(outputs, wrt, order)
    recomputed = _recomputed(order, outputs, need, tier, recompute, bounds)
    kept = dict.fromkeys(how.to_keep(need.results, recomputed))
    for node in order:
        if node.op is not None and node.op.is_random(node.attrs):
            first = 1 if node.op.has(Rematerializes) else 0
            kept.update((Value(node, i), None) for i in range(first, len(node.types)))
    return list(kept)


def _recomputed(order, outputs, need: Needs, tier: int, recompute, bounds) -> set[Node]:
    recomputed = how.mirrored(order, everything=recompute == "mirror")
    if recompute is True:
        return recomputed | how.segments(order, outputs, need.results)
    if recompute == "blocks":
        return recomputed | how.between(order, outputs, set(bounds))
    if recompute and recompute != "mirror":
        return recomputed | how.within(order, outputs, need.results, recompute)
    if tier:
        recomputed |= how.free_of_charge(order, need.results, need.readers(), need.variables)
    return recomputed


def checked(recompute, who: str = "hybridize", blocks: bool = True) -> str | bool | float:
    """The argument recompute. who: takes it; blocks: are there blocks? Raises ValueError for
    invalid values."""
    fraction = type(recompute) in (int, float) and 0 < recompute <= 1
    names = ("blocks", "mirror") if blocks else ("mirror",)
    if recompute in (True, False, None, *names) or fraction:
        return recompute or False
    raise InvalidValue(
        f"{who}: recompute must be True, False, {', '.join(map(repr, names))} or a fraction of the"
        f" residuals' memory above 0 and at most 1, got {recompute!r}"
    )


def free(kept: Sequence[Value], first: int) -> list[int]:
    """Indices of the residuals whose memory layout may be chosen, counting from `first`: all but
    random ones, which a replay reads unchanged."""
    return [i for i, v in enumerate(kept, first) if not v.node.operation.is_random(v.node.attrs)]
