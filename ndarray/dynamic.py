"""Graphs with shapes that only values tell (boolean_mask): they run operator by operator."""

from __future__ import annotations

from collections.abc import Sequence

from ..symbol.graph import Node, Value, topological
from .invoke import invoke
from .ndarray import NDArray


def is_dynamic(outputs: Sequence[Value]) -> bool:
    """May a graph have such an operator?"""
    return any(n.op is not None and n.op.eager is not None for n in topological(outputs))


def run_eagerly(outputs: Sequence[Value], arrays: dict[Node, NDArray], device) -> list[NDArray]:
    """The outputs of an untyped graph, in the current mode; recorded like any calls. arrays: of the
    variables."""
    found = {Value(n): a for n, a in arrays.items()}
    for node in topological(outputs):
        if node.op is None:
            continue
        attrs = {k: v for k, v in node.attrs.items() if k != "train"}
        made = invoke(node.op, [found[v] for v in node.inputs], attrs, None, device)
        made = made if isinstance(made, (list, tuple)) else [made]
        found.update((Value(node, i), a) for i, a in enumerate(made))
    return [found[v] for v in outputs]
