"""The passes that lowered graphs go through, in their order. Those of tier 1 are imported when the
first graph reaches it, by the compiler's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels import backend as backends
from ..graph import Value, topological, verify
from .algebra import algebra
from .cse import cse
from .fold import fold
from .recompute import MIRRORED

checking = False  # verify the graph after every pass; the tests switch it on


def optimize(outputs: Sequence[Value]) -> tuple[list[Value], dict[Value, Value]]:
    """A typed graph that computes the same, bit for bit, with less work: (outputs, the constants
    that new variables stand for). The order of reads and writes of one memory stays as it was."""
    outputs = list(outputs)
    if checking:
        verify(outputs)
    for each in (algebra, cse):
        outputs = each(outputs)
        if checking:
            verify(outputs)
    outputs, constants = fold(outputs)
    if checking:
        verify(outputs)
    return outputs, constants


def before_gradient(outputs: Sequence[Value], device: Any) -> list[Value]:
    """A typed graph with operators of whole patterns that have gradients of their own, and keep
    less for them (tier 1). Graphs of which nodes are marked for recomputation stay."""
    from .attention import attention
    from .norm_act import norm_act

    outputs = list(outputs)
    if any(n.extra and MIRRORED in n.extra for n in topological(outputs)):
        return outputs
    backend = backends.of(device)
    for each in (attention, norm_act):
        outputs = each(outputs, backend)
        if checking:
            verify(outputs)
    return outputs


def compile_passes(
    outputs: Sequence[Value],
    device: Any,
    free: Sequence[int] = (),
    stable: Sequence[Value] = (),
) -> list[Value]:
    """A typed graph that computes the same within rounding, with operators of whole patterns and
    with memory layouts that these like (tier 1).

    free: numbers of outputs that may get another memory layout. stable: variables that seldom
    change. device: a Context.
    """
    from .attention import attention
    from .epilogue_conv import epilogue_conv
    from .epilogue_dense import epilogue_dense
    from .expand import expand
    from .layout import layout
    from .loss_head import loss_head
    from .norm_act import norm_sums

    outputs, backend = list(outputs), backends.of(device)
    for each in (
        lambda graph: attention(graph, backend),
        lambda graph: epilogue_conv(graph, stable, backend),
        lambda graph: epilogue_dense(graph, backend),
        lambda graph: expand(graph, backend.kernels),
        loss_head,
        norm_sums,
        lambda graph: layout(graph, backend.kernels, free, stable),
    ):
        outputs = each(outputs)
        if checking:
            verify(outputs)
    return outputs


def fused(outputs: Sequence[Value], device: Any) -> list[Value]:
    """The graph with its pointwise operators joined for a device: the last pass, over each part of
    a program."""
    from .epilogue_conv import epilogue_groups
    from .fuse import fuse

    outputs = epilogue_groups(fuse(outputs, device), backends.of(device))
    if checking:
        verify(outputs)
    return outputs
