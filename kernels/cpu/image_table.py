"""Entries of image operators."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native, native
from ..ops.image_resize import rule_for
from .layout import cost


@native("_image_to_tensor")
def to_tensor_entry(op, ins, outs, attrs):
    x = ins[0]
    if x.dtype != "uint8":
        return None
    *n, h, w, c = x.shape
    fields = {"n_images": prod(n), "n_pixels": h * w, "n_channels": c}
    return Native("plk_to_tensor_run", ("plk_image", fields), cost(x, *outs, steps=prod(x.shape)))


@native("_image_normalize")
def normalize_entry(op, ins, outs, attrs):
    x = ins[0]
    *n, c, h, w = x.shape
    if x.dtype != "float32" or c > lib.PLK_MAX_CHANNELS:
        return None
    mean, std = (list(v if len(v) == c else v[:1] * c) for v in (attrs["mean"], attrs["std"]))
    fields = {"n_images": prod(n), "n_pixels": h * w, "n_channels": c, "mean": mean, "std": std}
    return Native(
        "plk_image_normalize_run",
        ("plk_image_normalize", fields),
        cost(x, *outs, steps=prod(x.shape)),
    )


@native("_image_resize", "_cvimresize")
def resize_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype != "uint8":
        return None
    *n, h, w, c = x.shape
    fields = {
        "n_images": prod(n),
        "height": h,
        "width": w,
        "n_channels": c,
        "row_bytes": w * c,
        "out_height": y.shape[-3],
        "out_width": y.shape[-2],
        "rule": rule_for(h, w, *y.shape[-3:-1], attrs["interp"]),
    }
    steps = 4 * (prod(x.shape) + prod(y.shape))
    return Native("plk_resize_run", ("plk_resize", fields), cost(x, y, steps=steps))
