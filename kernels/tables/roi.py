"""Regions of interest: ROIAlign, PSROIPooling, RROIAlign, ROIPooling."""

from __future__ import annotations

from math import prod
from typing import Any

from .. import cuda
from ..cpu.layout import cost
from ..native import Native
from ..ops.roi import MAX_SAMPLES, pair
from ..ops.roi_sampled import most_turned
from ..record import FLOATS, Attrs, Operator, Types
from . import on_cpu, on_cuda

LIMIT = 1 << 31  # kernels use 32-bit indices


def _align(op, ins, outs, attrs) -> tuple[bool, Any, Any, dict]:
    """(whether it is the gradient, data, pooled, ROIAlign's attributes by the kernels' names)"""
    back = op.name == "_roi_align_grad"
    data, pooled = (outs[0], ins[0]) if back else (ins[0], outs[0])
    sampling, aligned = max(attrs["sample_ratio"], 0), attrs["aligned"]
    return (
        back,
        data,
        pooled,
        {"scale": attrs["spatial_scale"], "sampling": sampling, "aligned": aligned},
    )


# ---- CPU: float32 --------------------------------------------------------------------------------


def _on_cpu(function: str, ins, outs, data_shape, bins, steps, **more) -> Native | None:
    if any(t.dtype != "float32" for t in ins[:2]):
        return None
    n, c, h, w = data_shape
    fields = {
        "n": n,
        "channels": c,
        "height": h,
        "width": w,
        "n_rois": ins[1].shape[0],
        "bins": bins,
        "groups": (0, 0),
        "sampling": 0,
        "most_samples": MAX_SAMPLES,
        "aligned": False,
        "whole": False,
        **more,
    }
    return Native(function, ("plk_roi", fields), cost(*ins, *outs, steps=steps))


@on_cpu("_contrib_ROIAlign", "_roi_align_grad")
def align_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back, data, pooled, more = _align(op, ins, outs, attrs)
    function = "plk_roi_align_backward" if back else "plk_roi_align_run"
    more["groups"] = attrs["pooled_size"] if attrs["position_sensitive"] else (0, 0)
    steps = 10 * prod(pooled.shape)
    return _on_cpu(function, ins, outs, data.shape, attrs["pooled_size"], steps, **more)


@on_cpu("_contrib_PSROIPooling", "_psroi_pooling_grad")
def parts_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back = op.name == "_psroi_pooling_grad"
    data, pooled = (outs[0], ins[0]) if back else (ins[0], outs[0])
    function = "plk_roi_align_backward" if back else "plk_roi_align_run"
    bins, groups = (attrs["pooled_size"],) * 2, (attrs["group_size"] or attrs["pooled_size"],) * 2
    more = {"scale": attrs["spatial_scale"], "groups": groups, "whole": True}
    return _on_cpu(function, ins, outs, data.shape, bins, 10 * prod(pooled.shape), **more)


@on_cpu("_contrib_RROIAlign", "_rroi_align_grad")
def turned_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    back, bins = op.name == "_rroi_align_grad", attrs["pooled_size"]
    data, pooled = (outs[0], ins[0]) if back else (ins[0], outs[0])
    function = "plk_roi_turned_backward" if back else "plk_roi_turned_run"
    more = {
        "scale": attrs["spatial_scale"],
        "sampling": max(attrs["sampling_ratio"], 0),
        "most_samples": min(MAX_SAMPLES, most_turned(bins, data.shape[1])),
    }
    return _on_cpu(function, ins, outs, data.shape, bins, 40 * prod(pooled.shape), **more)


@on_cpu("ROIPooling")
def largest_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if prod(x.shape[2:]) >= LIMIT:
        return None
    bins, scale = attrs["pooled_size"], attrs["spatial_scale"]
    steps = 10 * prod(y.shape)
    return _on_cpu("plk_roi_pool_run", ins, outs, x.shape, bins, steps, scale=scale)


@on_cpu("_roi_pooling_grad")
def largest_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, _, index = ins
    if index.dtype != "int32":
        return None
    steps, shape = 2 * prod(dy.shape), attrs["data_shape"]
    return _on_cpu("plk_roi_pool_backward", ins, outs, shape, dy.shape[2:], steps, scale=1.0)


# ---- CUDA ----------------------------------------------------------------------------------------


def _launch(function: str, size: int, arguments):
    return cuda.spread("roi.cu", function, size, arguments, options=cuda.compile.EXACT)


def _regions(shape, rois, bins, scale, sampling=0, aligned=False):
    """The struct Regions of roi.cu."""
    sizes = (*shape, rois.shape[0], *bins, sampling, MAX_SAMPLES, bool(aligned))
    return cuda.Struct(*map(cuda.Int32, sizes), cuda.Float64(scale))


def _by_bands(kind: str, ins, outs, bins, groups: int, back: bool, **more) -> Native | None:
    """The averages, or their gradient."""
    x, rois = ins
    data, pooled = (outs[0], x) if back else (x, outs[0])
    if x.dtype not in FLOATS or any(t.dtype != x.dtype for t in (rois, *outs)):
        return None
    of, t = _regions(data.shape, rois, bins, **more), cuda.TYPES[x.dtype]
    wide = "float64" if x.dtype == "float64" else "float32"
    count, found, given, scratch = rois.shape[0], [], [], cuda.ScratchSpace()
    for axis, n_bins, pixels in ((2, bins[0], data.shape[2]), (1, bins[1], data.shape[3])):
        weights = scratch.take_array(wide, count, n_bins, pixels)
        spans = scratch.take_array("int32", 2 * count, n_bins)
        bad = scratch.take_array("int32", count)
        given.append((weights, spans, bad))
        sizes = map(cuda.Int32, (axis, n_bins, pixels))
        name = f"bands<{kind}, {t}, {cuda.TYPES[wide]}>"
        arguments = [of, cuda.Buffer(1), *sizes, weights, spans, bad]
        found.append(_launch(name, count * n_bins, arguments))
    size = prod(outs[0].shape)
    if scratch.nbytes >= LIMIT or max(size, prod(x.shape)) >= LIMIT:
        return None
    counts = [cuda.Int64(size), cuda.Int32(pooled.shape[1]), cuda.Int32(groups)]
    parts = [place for parts in zip(*given) for place in parts]
    name = f"{'unpool' if back else 'pool'}<{t}, {cuda.TYPES[wide]}>"
    arguments = [of, *counts, cuda.Buffer(0), cuda.Buffer(1), *parts, cuda.Buffer(2)]
    return cuda.launches(*found, _launch(name, size, arguments), scratch_bytes=scratch.nbytes)


@on_cuda("_contrib_ROIAlign", "_roi_align_grad")
def align_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    bins = pair(op.name, attrs["pooled_size"])
    by_position = attrs["position_sensitive"]
    if by_position and bins[0] != bins[1]:
        return None
    back, _, _, more = _align(op, ins, outs, attrs)
    return _by_bands("ALIGN", ins, outs, bins, bins[0] if by_position else 0, back, **more)


@on_cuda("_contrib_PSROIPooling", "_psroi_pooling_grad")
def parts_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    bins, groups = (attrs["pooled_size"],) * 2, attrs["group_size"] or attrs["pooled_size"]
    back = op.name == "_psroi_pooling_grad"
    return _by_bands("PARTS", ins, outs, bins, groups, back, scale=attrs["spatial_scale"])


@on_cuda("ROIPooling")
def largest_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, rois = ins
    if x.dtype not in FLOATS or rois.dtype != x.dtype or prod(x.shape[2:]) >= LIMIT:
        return None
    of = _regions(x.shape, rois, pair(op.name, attrs["pooled_size"]), attrs["spatial_scale"])
    size = prod(outs[0].shape)
    arguments = [of, cuda.Int64(size), *map(cuda.Buffer, range(4))]
    return cuda.launches(_launch(f"pool_largest<{cuda.TYPES[x.dtype]}>", size, arguments))
