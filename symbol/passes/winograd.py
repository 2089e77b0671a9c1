"""Convolutions that Winograd's minimal filtering computes faster get transformed weights."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.cpu import conv_table
from ...kernels.record import lookup
from ..graph import Builder, Node, Value, rewrite, typed_node

F = Builder()


def winograd(outputs: Sequence[Value]) -> list[Value]:
    """The graph with such weights, which depend on parameters alone: see prologue.py."""
    fused = lookup("_conv")

    def replace(node: Node, inputs: list[Value]):
        if node.op is not fused or node.attrs["winograd"]:
            return None
        tile = conv_table.winograd_tile([v.type for v in inputs], node.types, node.attrs)
        if not tile:
            return None
        weight = F._winograd_weights(inputs[1], tile=tile, panel=conv_table.winograd_panel())
        given = [inputs[0], weight, *inputs[2:]]
        return [Value(typed_node(fused, {**node.attrs, "winograd": tile}, given, node.name))]

    return rewrite(outputs, replace)
