"""Control flow before it runs: operators do not compute hidden outputs that are not read, and
their bodies are compiled at the tier of the program."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.traits import Lowered
from ..graph import Node, Value, rewrite, topological


def control(outputs: Sequence[Value], tier: int) -> list[Value]:
    """The graph with the records that programs run."""
    order = topological(outputs)
    if all(n.op is None or not n.op.has(Lowered) for n in order):
        return list(outputs)
    read = {v for n in order for v in n.inputs} | set(outputs)

    def replace(node, inputs):
        if node.op is None or (lowered := node.op.trait(Lowered)) is None:
            return None
        visible = range(node.n_visible)
        hidden = any(Value(node, i) in read for i in range(len(visible), len(node.types)))
        op = lowered.make(hidden, tier)
        types = node.types if hidden else node.types[: len(visible)]
        made = Node(op, node.attrs, inputs, node.name, types, node.extra, node.source)
        return [Value(made, i) for i in range(len(types))]

    return rewrite(outputs, replace, order=order)
