"""Operators that resample images: float32."""

from __future__ import annotations

from math import prod

from ..cpu.layout import cost
from ..native import Native
from ..record import Attrs, Operator, Types
from . import on_cpu

MAX_PIXELS = 1 << 31  # elements of a plane: kernels use 32-bit indices


def _serves(types):
    return all(t.dtype == "float32" for t in types) and all(
        prod(t.shape[2:]) < MAX_PIXELS and 0 not in t.shape for t in types
    )


@on_cpu("UpSampling", "_upsampling_grad")
def upsample_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back = op.name == "_upsampling_grad"
    if not _serves(ins) or not back and (attrs["sample_type"] != "nearest" or len(ins) > 1):
        return None
    n, c, h, w = outs[0].shape if back else ins[0].shape
    fields = {"n_planes": n * c, "height": h, "width": w, "scale": attrs["scale"]}
    function = "plk_upsample_backward" if back else "plk_upsample_run"
    return Native(function, ("plk_upsample", fields), cost(*ins, *outs))


@on_cpu("_contrib_BilinearResize2D", "_bilinear_resize_grad")
def resize_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back = op.name == "_bilinear_resize_grad"
    if not _serves((ins[0], *outs)):
        return None
    small, large = (outs[0], ins[0]) if back else (ins[0], outs[0])
    fields = {
        "n_planes": prod(small.shape[:2]),
        "in": small.shape[2:],
        "out": large.shape[2:],
        "align": attrs["align_corners"],
        "like": not back and len(ins) == 2,
    }
    function = "plk_resample_backward" if back else "plk_resample_run"
    steps = prod(small.shape) + prod(large.shape)
    return Native(function, ("plk_resample", fields), cost(ins[0], *outs, steps=steps))


@on_cpu("BilinearSampler", "_bilinear_sampler_grad")
def sampler_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _serves(ins):
        return None
    back = op.name == "_bilinear_sampler_grad"
    data, grid = ins[-2:]
    n, c, h, w = data.shape
    fields = {"n": n, "channels": c, "height": h, "width": w, "out": grid.shape[2:]}
    function = "plk_sampler_backward" if back else "plk_sampler_run"
    steps = prod(grid.shape) * (c * (4 if back else 2) + 10)
    return Native(function, ("plk_sampler", fields), cost(*ins, *outs, steps=steps))


@on_cpu("_deformable_columns", "_deformable_columns_grad")
def columns_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _serves(ins):
        return None
    back = op.name == "_deformable_columns_grad"
    data, offset = ins[back : back + 2]
    function = "plk_deformable_columns_backward" if back else "plk_deformable_columns_run"
    fields = _deformable(data, offset, attrs, attrs["modulated"])
    columns = ins[0] if back else outs[0]
    steps = prod(columns.shape) * (6 if back else 2)
    return Native(function, ("plk_deformable", fields), cost(*ins, *outs, steps=steps))


@on_cpu("_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution")
def deformable_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _serves(ins):
        return None
    modulated = op.name == "_contrib_ModulatedDeformableConvolution"
    fields = _deformable(ins[0], ins[1], attrs, modulated) | {
        "conv_groups": attrs["num_group"],
        "filters": attrs["num_filter"],
        "bias": not attrs["no_bias"],
    }
    channels = ins[0].shape[1]
    places = channels * prod(attrs["kernel"]) * prod(outs[0].shape[2:]) * ins[0].shape[0]
    steps = places * (2 + attrs["num_filter"] / attrs["num_group"] / 25)
    return Native("plk_deformable_run", ("plk_deformable", fields), cost(*ins, *outs, steps=steps))


def _deformable(data, offset, attrs, modulated):
    n, c, h, w = data.shape
    return {
        "n": n,
        "channels": c,
        "groups": attrs["num_deformable_group"],
        "height": h,
        "width": w,
        "kernel": attrs["kernel"],
        "stride": attrs["stride"] or (1, 1),
        "dilate": attrs["dilate"] or (1, 1),
        "pad": attrs["pad"] or (0, 0),
        "out": offset.shape[2:],
        "modulated": modulated,
    }
