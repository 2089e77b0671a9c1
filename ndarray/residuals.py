"""Residuals: which results of a forward graph are kept for its backward."""

from __future__ import annotations

from collections.abc import Sequence

from ..symbol.graph import Node, Value, topological, variable
from ..symbol.passes.gradient import FLOATING, gradient


def residuals(outputs: Sequence[Value], wrt: Sequence[Value]) -> list[Value]:
    """Forward results that the gradient of a graph reads: what must be kept between forward and
    backward if nothing shall be computed again.

    Results of random operators are always kept: they cannot be computed again.
    """
    heads = [v for v in outputs if v.dtype in FLOATING]
    forward = set(topological(outputs))
    dys = [variable(f"dy{i}", h.type) for i, h in enumerate(heads)]
    grads = [g for g in gradient(heads, dys, wrt) if g is not None]
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(grads)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v.node in forward:
            if v.node.op is not None:
                found[v] = None
        else:
            stack.extend(v.node.inputs)
    for node in forward:
        if node.op is not None and node.op.is_random(node.attrs):
            found.update((Value(node, i), None) for i in range(len(node.types)))
    return _through_views(found, forward)


def _through_views(found: dict[Value, None], forward: set[Node]) -> list[Value]:
    """A view of something costs nothing to make again: keep what it looks at instead."""
    kept: dict[Value, None] = {}
    for v in found:
        while v.node.op is not None and v.node.op.view:
            v = v.node.inputs[0]
        if v.node.op is not None:
            kept[v] = None
    return list(kept)


def free(kept: Sequence[Value], first: int) -> list[int]:
    """Numbers of the residuals whose memory layout may be chosen, when they are numbered from
    `first` on: not of random ones, which a replay reads as they are."""
    return [i for i, v in enumerate(kept, first) if not v.node.op.is_random(v.node.attrs)]
