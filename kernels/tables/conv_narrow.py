"""Convolutions of 16-bit floats and 8-bit integers on CPUs."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..cpu.layout import FLOPS_PER_US, code, cost
from ..native import Native
from ..record import HALVES, Attrs, Operator, Types
from . import on_cpu
from .conv import geometry
from .dense import MOST_STEPS

LEAST_FILTERS = 8  # of a group of 16-bit floats; others are computed in float32, as depthwise ones


def _in_space(values, missing: int) -> list[int]:
    """Of one to three dimensions the last of three."""
    return [missing] * (3 - len(values)) + list(values)


@on_cpu("Convolution")
def conv_narrow_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dtype, g = ins[0].dtype, geometry(op.name, attrs)
    if g.channels_last or any(t.dtype != dtype for t in (*ins, *outs)):
        return None
    n, channels, space = g.split(ins[0].shape)
    _, filters, out = g.split(outs[0].shape)
    steps = channels // g.groups * prod(g.kernel)
    if 0 in (n, channels, filters, *space, *out) or len(space) > 3:
        return None
    if dtype in HALVES:
        fast = dtype == "bfloat16" and lib.plk_isa_has(lib.PLK_HAS_BF16)
        if not fast or filters // g.groups < LEAST_FILTERS:
            return None
    elif steps > MOST_STEPS.get(dtype, -1):
        return None
    fields = {
        "n": n,
        "channels": channels,
        "filters": filters,
        "groups": g.groups,
        "space": _in_space(space, 1),
        "kernel": _in_space(g.kernel, 1),
        "out": _in_space(out, 1),
        "stride": _in_space(g.stride, 1),
        "dilate": _in_space(g.dilate, 1),
        "pad": _in_space(g.pad, 0),
        "bias": not attrs["no_bias"],
        "dtype": code(dtype),
    }
    us = cost(*ins, *outs) + 2 + 2 * n * filters * prod(out) * steps / FLOPS_PER_US
    return Native("plk_narrow_conv_run", ("plk_narrow_conv", fields), us)
