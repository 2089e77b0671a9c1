"""Image operators."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..cpu.layout import ITEM_BYTES, code, cost
from ..native import Native
from ..ops.image_resize import rule_for
from ..record import Attrs, Operator, Types
from . import on_cpu


def _place(x, mean, factor, shift) -> tuple[str, tuple]:
    """One uint8 image (H, W, C) to float planes."""
    h, w, c = x.shape
    fields = {
        "height": h,
        "width": w,
        "row_bytes": w * c,
        "n_channels": c,
        "out_dtype": code("float32"),
        "mean": mean,
        "factor": factor,
        "shift": shift,
    }
    return "plk_place_run", ("plk_place", fields)


@on_cpu("_image_to_tensor")
def to_tensor_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    if x.dtype != "uint8":
        return None
    *n, h, w, c = x.shape
    price = cost(x, *outs, steps=prod(x.shape))
    if not n and c in (1, 3):
        return Native(*_place(x, [0.0] * c, [1 / 255] * c, [0.0] * c), price)
    fields = {"n_images": prod(n), "n_pixels": h * w, "n_channels": c}
    return Native("plk_to_tensor_run", ("plk_image", fields), price)


@on_cpu("_image_tensor_normalize")
def tensor_normalize_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    c = x.shape[-1]
    if x.dtype != "uint8" or c not in (1, 3):
        return None
    mean, std = (list(v if len(v) == c else v[:1] * c) for v in (attrs["mean"], attrs["std"]))
    mean, factor = [255 * m for m in mean], [1 / (255 * s) for s in std]
    return Native(*_place(x, mean, factor, [0.0] * c), cost(x, *outs, steps=prod(x.shape)))


@on_cpu(
    "_image_flip_left_right",
    "_image_flip_top_bottom",
    "_image_random_flip_left_right",
    "_image_random_flip_top_bottom",
)
def flip_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    *n, h, w, c = x.shape
    item = ITEM_BYTES[x.dtype]
    if op.name.endswith("left_right"):
        fields = {"n": prod(n) * h, "n_pixels": w, "pixel_bytes": c * item}
    else:
        fields = {"n": prod(n), "n_pixels": h, "pixel_bytes": w * c * item}
    fields["random"] = "random" in op.name
    return Native("plk_flip_run", ("plk_flip", fields), cost(x, *outs))


@on_cpu("_image_normalize")
def normalize_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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


@on_cpu("_image_resize", "_cvimresize")
def resize_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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
        "rule": rule_for(h, w, y.shape[-3], y.shape[-2], attrs["interp"]),
    }
    steps = 4 * (prod(x.shape) + prod(y.shape))
    return Native("plk_resize_run", ("plk_resize", fields), cost(x, y, steps=steps))
