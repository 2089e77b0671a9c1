"""The passes that lowered graphs go through, in their order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..graph import Value, topological, verify
from .algebra import algebra
from .attention import attention
from .cse import common
from .epilogue_conv import epilogue_conv, epilogue_groups
from .epilogue_dense import epilogue_dense
from .fold import fold
from .fuse import fuse
from .layout import layout
from .loss_head import loss_head
from .norm_act import norm_act, norm_sums
from .recompute import MIRRORED

checking = False  # verify the graph after every pass; the tests switch it on


def optimize(outputs: Sequence[Value], device) -> tuple[list[Value], dict[Value, Any]]:
    """A typed graph that computes the same, bit for bit, with less work: (outputs, arrays of new
    variables).

    device: where constants are computed. The order of reads and writes of one memory stays as it
        was.
    """
    outputs = list(outputs)
    if checking:
        verify(outputs)
    for each in (algebra, common):
        outputs = each(outputs)
        if checking:
            verify(outputs)
    outputs, constants = fold(outputs, device)
    if checking:
        verify(outputs)
    return outputs, constants


def before_gradient(outputs: Sequence[Value], device: str = "cpu") -> list[Value]:
    """A typed graph with operators of whole patterns that have gradients of their own, and keep
    less for them (tier 1). Graphs of which nodes are marked for recomputation stay. device: its
    kind."""
    outputs = list(outputs)
    if any(n.extra and MIRRORED in n.extra for n in topological(outputs)):
        return outputs
    for each in (lambda graph: attention(graph, device), lambda graph: norm_act(graph, device)):
        outputs = each(outputs)
        if checking:
            verify(outputs)
    return outputs


def compile_passes(
    outputs: Sequence[Value],
    free: Sequence[int] = (),
    stable: Collection[Value] = (),
    device: str = "cpu",
) -> list[Value]:
    """A typed graph that computes the same within rounding, with operators of whole patterns and
    with memory layouts that these like (tier 1).

    free: numbers of outputs that may get another memory layout. stable: variables that seldom
    change. device: its kind; the kernels of GPUs want row-major arrays.
    """
    outputs = list(outputs)
    passes = [
        lambda graph: attention(graph, device),
        lambda graph: epilogue_conv(graph, stable, device),
        lambda graph: epilogue_dense(graph, device),
        loss_head,
        norm_sums,
    ]
    if device == "cpu":
        passes.append(lambda graph: layout(graph, free))
    for each in passes:
        outputs = each(outputs)
        if checking:
            verify(outputs)
    return outputs


def fused(outputs: Sequence[Value], device=None) -> list[Value]:
    """The graph with its pointwise operators joined for a device: the last pass, over each part of
    a program."""
    outputs = fuse(outputs, device)
    if device is None or device.device_type != "gpu":
        outputs = epilogue_groups(outputs)
    if checking:
        verify(outputs)
    return outputs
