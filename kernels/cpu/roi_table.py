"""Entries of operators on regions of interest, float32."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..ops.roi import MAX_SAMPLES
from .layout import cost
from .table import native


def _fields(data_shape, rois, bins, scale, **more):
    n, c, h, w = data_shape
    return {
        "n": n,
        "channels": c,
        "height": h,
        "width": w,
        "n_rois": rois.shape[0],
        "bins": bins,
        "scale": scale,
        "sampling": 0,
        "most_samples": MAX_SAMPLES,
        "by_position": False,
        "aligned": False,
    } | more


@native("_contrib_ROIAlign", "_roi_align_grad")
def align_entry(op, ins, outs, attrs):
    back = op.name == "_roi_align_grad"
    if any(t.dtype != "float32" for t in ins):
        return None
    pooled = ins[0] if back else outs[0]
    fields = _fields(
        outs[0].shape if back else ins[0].shape,
        ins[1],
        attrs["pooled_size"],
        attrs["spatial_scale"],
        sampling=max(attrs["sample_ratio"], 0),
        by_position=attrs["position_sensitive"],
        aligned=attrs["aligned"],
    )
    function = "plk_roi_align_backward" if back else "plk_roi_align_run"
    return Native(function, ("plk_roi", fields), cost(*ins, *outs, steps=10 * prod(pooled.shape)))


@native("ROIPooling")
def pool_entry(op, ins, outs, attrs):
    if any(t.dtype != "float32" for t in ins) or prod(ins[0].shape[2:]) >= 1 << 31:
        return None
    fields = _fields(ins[0].shape, ins[1], attrs["pooled_size"], attrs["spatial_scale"])
    steps = 10 * prod(outs[0].shape)
    return Native("plk_roi_pool_run", ("plk_roi", fields), cost(*ins, *outs, steps=steps))


@native("_roi_pooling_grad")
def pool_grad_entry(op, ins, outs, attrs):
    dy, rois, index = ins
    if dy.dtype != "float32" or rois.dtype != "float32" or index.dtype != "int32":
        return None
    fields = _fields(attrs["data_shape"], rois, dy.shape[2:], 1.0)
    steps = 2 * prod(dy.shape)
    return Native("plk_roi_pool_backward", ("plk_roi", fields), cost(*ins, *outs, steps=steps))
