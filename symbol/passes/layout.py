"""Memory layouts: convolutions get data and weights as their kernels like them best, and values keep
such a layout from one operator to the next.

A kernel table says what an operator wants (`native.wants`); an array changes its layout only where
two disagree. Changes of parameters depend on them alone, and so land in a program's prologue.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.native import wanted
from ...kernels.record import lookup
from ..graph import Node, Value, rewrite, typed_node


def layout(outputs: Sequence[Value], free: Sequence[int] = ()) -> list[Value]:
    """The graph with `_reorder` nodes where layouts change; outputs are row-major, but those whose
    numbers are in `free`."""
    stored: dict[tuple[Value, str], Value] = {}
    reorder = lookup("_reorder")

    def as_layout(v: Value, tag: str) -> Value:
        if v.type.layout == tag:
            return v
        if v.node.op is reorder:
            return as_layout(v.node.inputs[0], tag)
        if (v, tag) not in stored:
            stored[v, tag] = Value(typed_node(reorder, {"layout": tag}, [v]))
        return stored[v, tag]

    def replace(node: Node, inputs: list[Value]):
        if node.op is None or node.op is reorder:
            return None
        found = wanted(node.op, [v.type for v in inputs], node.types, node.attrs)
        ins, outs = found or ([""] * len(inputs), [t.layout for t in node.types])
        given = [as_layout(v, tag) for v, tag in zip(inputs, ins)]
        types = [t._replace(layout=tag) for t, tag in zip(node.types, outs)]
        made = Node(node.op, node.attrs, given, node.name, types, node.extra, node.source)
        return [Value(made, i) for i in range(len(types))]

    made = rewrite(outputs, replace)
    keep = set(free)
    return [v if i in keep else as_layout(v, outputs[i].type.layout) for i, v in enumerate(made)]
