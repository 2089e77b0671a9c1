"""Cross-entropy's gradient in one kernel: the gradient of a pick, zeros but for one element of each
row, is never made where log_softmax's gradient reads it."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.record import lookup
from ...kernels.shapes import one_axis
from ..graph import Builder, Node, Value, rewrite

F = Builder()


def loss_head(outputs: Sequence[Value]) -> list[Value]:
    """The graph with such pairs joined."""
    softmax, pick = lookup("_log_softmax_grad"), lookup("_pick_grad")

    def replace(node: Node, inputs: list[Value]):
        if node.op is not softmax or inputs[0].node.op is not pick:
            return None
        (dy, index), attrs = inputs[0].node.inputs, inputs[0].node.attrs
        axis, ndim = node.attrs["axis"], len(node.types[0].shape)
        if one_axis(pick.name, attrs["axis"], ndim) != one_axis(softmax.name, axis, ndim):
            return None
        made = F._pick_log_softmax_grad(dy, index, inputs[1], axis=axis, mode=attrs["mode"])
        return [made] if made.type == node.types[0] else None

    return rewrite(outputs, replace)
