"""Prepacking: what a graph computes from inputs that seldom change, such as parameters in
inference.

Weights in the layout a kernel wants, batch normalisation folded into them: worked out once, by a
program of its own, and not again until an input changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.traits import SameMemory
from ..effects import Effects
from ..graph import Node, Value, rewrite, topological, variable


def settled(outputs: Sequence[Value], stable: Sequence[Value]) -> set[Node]:
    """The nodes whose values follow from stable variables alone; without the variables."""
    order = topological(outputs)
    pinned = Effects(order).pinned
    known = {v.node for v in stable}
    found: set[Node] = set()
    for node in order:
        if (
            node.inputs
            and node not in pinned
            and not node.operation.is_random(node.attrs)
            and not node.has_open_scalars
            and all(v.node in known or v.node in found for v in node.inputs)
        ):
            found.add(node)
    return found


def split_prepack(
    outputs: Sequence[Value], stable: Sequence[Value]
) -> tuple[list[Value], list[Value], list[Value]]:
    """(outputs of the rest, results of the prepack program, the variables that stand for them in
    the rest).

    stable: variables. Views stay in the rest: they cost nothing there, and memory as a result.
    """
    first = settled(outputs, stable)
    wanted: dict[Value, Value] = {}

    def want(v: Value) -> None:
        while v.node.op is not None and v.node.op.has(SameMemory):
            v = v.node.inputs[0]
        if v.node in first:
            wanted.setdefault(v, variable("prepared", v.type))

    for node in topological(outputs):
        if node not in first:
            for v in node.inputs:
                want(v)
    for v in outputs:
        want(v)
    if not wanted:
        return list(outputs), [], []
    made = rewrite(
        outputs,
        None,
        {
            v.node: [
                wanted.get(Value(v.node, i), Value(v.node, i)) for i in range(len(v.node.types))
            ]
            for v in wanted
        },
    )
    return made, list(wanted), list(wanted.values())
