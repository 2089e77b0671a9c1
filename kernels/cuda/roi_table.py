"""Entries of the pooling of regions: ROIAlign, PSROIPooling, ROIPooling."""

from __future__ import annotations

from math import prod

from ..ops.roi import MAX_SAMPLES, pair
from ..record import FLOATS
from .compile import GENERATED, OPTIONS
from .launch import Buffer, Float64, Int32, Int64, Launch, Struct, launches
from .layout import THREADS, TYPES, blocks_for
from .matmul_plan import ScratchSpace
from .table import native

EXACT = (*OPTIONS, *GENERATED)  # roi.cu
LIMIT = 1 << 31


def _regions(shape, rois, bins, scale, sampling=0, aligned=False) -> Struct:
    """The struct Regions of roi.cu."""
    sizes = (*shape, rois.shape[0], *bins, max(sampling, 0), MAX_SAMPLES, bool(aligned))
    return Struct(*map(Int32, sizes), Float64(scale))


def _launch(function: str, size: int, arguments) -> Launch:
    grid = blocks_for(size, THREADS)
    return Launch("roi.cu", function, grid, (THREADS,), arguments, options=EXACT)


def _by_bands(kind: str, ins, outs, bins, groups: int, back: bool, **more):
    """Averages, or their transpose."""
    x, rois = ins
    data, pooled = (outs[0], x) if back else (x, outs[0])
    if x.dtype not in FLOATS or any(t.dtype != x.dtype for t in (rois, *outs)):
        return None
    of, t, scratch = _regions(data.shape, rois, bins, **more), TYPES[x.dtype], ScratchSpace()
    wide = "float64" if x.dtype == "float64" else "float32"
    count, found, given = rois.shape[0], [], []
    for axis, n_bins, pixels in ((2, bins[0], data.shape[2]), (1, bins[1], data.shape[3])):
        weights = scratch.take_array(wide, count, n_bins, pixels)
        spans, bad = (
            scratch.take_array("int32", 2 * count, n_bins),
            scratch.take_array("int32", count),
        )
        given.append((weights, spans, bad))
        sizes = map(Int32, (axis, n_bins, pixels))
        name = f"bands<{kind}, {t}, {TYPES[wide]}>"
        arguments = [of, Buffer(1), *sizes, weights, spans, bad]
        found.append(_launch(name, count * n_bins, arguments))
    size = prod(outs[0].shape)
    if scratch.nbytes >= LIMIT or max(size, prod(x.shape)) >= LIMIT:
        return None
    counts = [Int64(size), Int32(pooled.shape[1]), Int32(groups)]
    parts = [place for parts in zip(*given) for place in parts]
    name = f"{'unpool' if back else 'pool'}<{t}, {TYPES[wide]}>"
    found.append(_launch(name, size, [of, *counts, Buffer(0), Buffer(1), *parts, Buffer(2)]))
    return launches(*found, scratch_bytes=scratch.nbytes)


@native("_contrib_ROIAlign", "_roi_align_grad")
def align_entry(op, ins, outs, attrs):
    bins = pair(op.name, attrs["pooled_size"])
    by_position = attrs["position_sensitive"]
    if by_position and bins[0] != bins[1]:
        return None
    more = {"scale": attrs["spatial_scale"], "sampling": attrs["sample_ratio"]}
    more["aligned"] = attrs["aligned"]
    back = op.name == "_roi_align_grad"
    return _by_bands("ALIGN", ins, outs, bins, bins[0] if by_position else 0, back, **more)


@native("_contrib_PSROIPooling", "_psroi_pooling_grad")
def parts_entry(op, ins, outs, attrs):
    bins, groups = (attrs["pooled_size"],) * 2, attrs["group_size"] or attrs["pooled_size"]
    back = op.name == "_psroi_pooling_grad"
    return _by_bands("PARTS", ins, outs, bins, groups, back, scale=attrs["spatial_scale"])


@native("ROIPooling")
def largest_entry(op, ins, outs, attrs):
    x, rois = ins
    if x.dtype not in FLOATS or rois.dtype != x.dtype or prod(x.shape[2:]) >= LIMIT:
        return None
    of = _regions(x.shape, rois, pair(op.name, attrs["pooled_size"]), attrs["spatial_scale"])
    size = prod(outs[0].shape)
    arguments = [of, Int64(size), *map(Buffer, range(4))]
    return launches(_launch(f"pool_largest<{TYPES[x.dtype]}>", size, arguments))
