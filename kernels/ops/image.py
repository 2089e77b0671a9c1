"""Image operators on (H, W, C) or (N, H, W, C): tensors, flips, crops, changes of colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Type, operator, sample, uniform, values

LUMA = (0.299, 0.587, 0.114)  # of red, green, blue; ITU-R BT.601
# Eigenvectors times eigenvalues of the colours of ImageNet's pixels. Source: Krizhevsky et al.
# 2012, section 4.1.
LIGHTING = (
    (55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009),
    (55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140),
    (55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203),
)


def _image(op: str, t: Type, channels: tuple[int, ...] | None = None, axis: int = -1) -> None:
    if len(t.shape) not in (3, 4):
        order = "(H, W, C) or (N, H, W, C)" if axis == -1 else "(C, H, W) or (N, C, H, W)"
        raise ShapeError(op, f"data must be {order}, got {t.shape}")
    if channels and t.shape[axis] not in channels:
        raise ShapeError(
            op,
            f"data must have {' or '.join(map(str, channels))} channels, got {t.shape[axis]} in"
            f" {t.shape}",
        )


def _same(op: str, channels=None):
    def infer(ins, **_):
        _image(op, ins[0], channels)
        return [ins[0]]

    return infer


def _stored(xp, values, like):
    """Computed floats in an image's dtype: whole numbers are cut to their range and truncated."""
    dtype = np.dtype(like.dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = xp.clip(values, limits.min, limits.max)
    return values.astype(dtype)


# ---- to_tensor, normalize ------------------------------------------------------------------------


def _tensor_infer(ins):
    _image("_image_to_tensor", ins[0])
    *n, h, w, c = ins[0].shape
    return [Type((*n, c, h, w), "float32")]


operator(
    "_image_to_tensor",
    aliases=("_npx__image_to_tensor",),
    infer=_tensor_infer,
    ref=lambda xp, x: xp.moveaxis(x, -1, -3).astype("float32") * xp.float32(1 / 255),
    grad=lambda F, dys, xs, ys: [
        F.cast(
            F.transpose(dys[0], axes=(1, 2, 0) if len(xs[0].shape) == 3 else (0, 2, 3, 1))
            * (1 / 255),
            dtype=xs[0].dtype,
        )
    ],
    samples=(sample(uniform((4, 5, 3), 0, 255)), sample(uniform((2, 3, 4, 1), 0, 255))),
    doc="(H, W, C) in [0, 255] -> (C, H, W) float32 in [0, 1]; or with a batch axis in front.",
)


def _normalize_infer(ins, mean, std):
    op, t = "_image_normalize", ins[0]
    _image(op, t, axis=-3)
    c = t.shape[-3]
    for name, given in (("mean", mean), ("std", std)):
        if len(given) not in (1, c) and not (len(given) == 4 and len(set(given)) == 1):
            raise OperatorError(
                op, f"{name} must have 1 or channels = {c} values, got {len(given)}"
            )
    if 0.0 in std:
        raise OperatorError(op, f"std must not hold 0, got {std}")
    return [t]


def _per_channel(xp, values, x):
    values = values[:1] if len(values) == 4 and len(set(values)) == 1 else values  # the default
    return xp.asarray(values, dtype="float32").reshape(-1, 1, 1)


def _normalize_grad(F, dys, xs, ys, mean, std):
    zero = (0.0,) * len(mean)
    return [F._image_normalize(dys[0], mean=zero, std=std)]


operator(
    "_image_normalize",
    aliases=("_npx__image_normalize",),
    params=(Param("mean", "floats", (0.0,) * 4), Param("std", "floats", (1.0,) * 4)),
    infer=_normalize_infer,
    grad=_normalize_grad,
    ref=lambda xp, x, mean, std: (x - _per_channel(xp, mean, x)) / _per_channel(xp, std, x),
    samples=(
        sample((3, 4, 5), mean=(0.1, 0.2, 0.3), std=(0.5, 1.5, 2.0)),
        sample((2, 1, 3, 3), mean=(1.0,), std=(2.0,)),
    ),
    doc=(
        "(x - mean) / std for each channel of (C, H, W) or (N, C, H, W); one value serves all"
        " channels."
    ),
)


def _tensor_normalize_infer(ins, mean, std):
    t = ins[0]
    if len(t.shape) != 3:
        raise ShapeError("_image_tensor_normalize", f"data must be (H, W, C), got {t.shape}")
    h, w, c = t.shape
    return _normalize_infer([Type((c, h, w), "float32")], mean, std)


def _tensor_normalize_ref(xp, x, mean, std):
    tensor = xp.moveaxis(x, -1, -3).astype("float32") * xp.float32(1 / 255)
    return (tensor - _per_channel(xp, mean, tensor)) / _per_channel(xp, std, tensor)


operator(
    "_image_tensor_normalize",
    params=(Param("mean", "floats", (0.0,) * 4), Param("std", "floats", (1.0,) * 4)),
    infer=_tensor_normalize_infer,
    ref=_tensor_normalize_ref,
    grad=lambda F, dys, xs, ys, mean, std: [
        F.cast(
            F.transpose(
                F._image_normalize(dys[0], mean=(0.0,) * len(mean), std=std), axes=(1, 2, 0)
            )
            * (1 / 255),
            dtype=xs[0].dtype,
        )
    ],
    samples=(
        sample(uniform((4, 5, 3), 0, 255), mean=(0.1, 0.2, 0.3), std=(0.5, 1.5, 2.0)),
        sample(values(np.arange(12).reshape(2, 2, 3), "uint8"), mean=(0.1,), std=(0.2,)),
    ),
    doc="_image_to_tensor and _image_normalize at once.",
)


# ---- flips, crop ---------------------------------------------------------------------------------

for _name, _axis in (("left_right", -2), ("top_bottom", -3)):
    operator(
        f"_image_flip_{_name}",
        aliases=(f"_npx__image_flip_{_name}",),
        infer=_same(f"_image_flip_{_name}"),
        ref=lambda xp, x, axis=_axis: xp.flip(x, axis=axis).copy(),
        grad=lambda F, dys, xs, ys, op=f"_image_flip_{_name}": [getattr(F, op)(dys[0])],
        samples=(sample((3, 4, 3)), sample((2, 3, 4, 1))),
        doc=f"Mirrors an image: {_name.replace('_', ' and ')} swap.",
    )
    operator(
        f"_image_random_flip_{_name}",
        aliases=(f"_npx__image_random_flip_{_name}",),
        random=True,
        infer=_same(f"_image_random_flip_{_name}"),
        ref=lambda xp, x, rng, axis=_axis: (
            xp.flip(x, axis=axis) if rng.random() < 0.5 else x
        ).copy(),
        samples=(sample((3, 1, 3)) if _axis == -2 else sample((1, 3, 3)),),
        doc=f"Mirrors an image with probability 1/2: {_name.replace('_', ' and ')} swap.",
    )


def _crop_infer(ins, x, y, width, height):
    op, t = "_image_crop", ins[0]
    _image(op, t)
    *n, h, w, c = t.shape
    if x < 0 or y < 0 or width < 1 or height < 1 or x + width > w or y + height > h:
        raise ShapeError(
            op,
            f"the crop must lie inside the image of width {w} and height {h}, got x={x}, y={y}, "
            f"width={width}, height={height}",
        )
    return [Type((*n, height, width, c), t.dtype)]


def _crop_grad(F, dys, xs, ys, x, y, width, height):
    *n, h, w, _ = xs[0].shape
    dy = dys[0]
    for axis, low, size, whole in ((len(n), y, height, h), (len(n) + 1, x, width, w)):
        borders = [
            (
                F._zeros(shape=(*dy.shape[:axis], extent, *dy.shape[axis + 1 :]), dtype=dy.dtype)
                if extent
                else None
            )
            for extent in (low, whole - low - size)
        ]
        pieces = [piece for piece in (borders[0], dy, borders[1]) if piece is not None]
        dy = F.concat(*pieces, dim=axis) if len(pieces) > 1 else dy
    return [dy]


operator(
    "_image_crop",
    aliases=("_npx__image_crop",),
    infer=_crop_infer,
    grad=_crop_grad,
    params=(Param("x", "int"), Param("y", "int"), Param("width", "int"), Param("height", "int")),
    ref=lambda xp, d, x, y, width, height: d[..., y : y + height, x : x + width, :].copy(),
    samples=(
        sample((5, 6, 3), x=1, y=2, width=4, height=3),
        sample((2, 4, 4, 1), x=0, y=0, width=4, height=2),
    ),
    doc="The part of an image that begins at column x, row y.",
)


# ---- colours -------------------------------------------------------------------------------------


def grey(xp: Any, x: Array) -> Array:
    """Luma of (..., 3), the value itself of (..., 1); keeps the last axis."""
    if x.shape[-1] == 1:
        return x
    return (x * xp.asarray(LUMA, dtype=x.dtype)).sum(axis=-1, keepdims=True)


def brightness(xp: Any, x: Array, factor: float) -> Array:
    return x * factor


def contrast(xp: Any, x: Array, factor: float) -> Array:
    return x * factor + (1 - factor) * grey(xp, x).mean(axis=(-3, -2, -1), keepdims=True)


def saturation(xp: Any, x: Array, factor: float) -> Array:
    return x * factor + (1 - factor) * grey(xp, x)


def hue(xp: Any, x: Array, factor: float) -> Array:
    """Turns the hue of red, green, blue in [0, 255] by factor * 360 degrees; lightness and
    saturation stay."""
    if x.shape[-1] == 1:
        return x
    x = x / 255
    high, low = x.max(axis=-1), x.min(axis=-1)
    spread = high - low
    light = (high + low) / 2
    safe = xp.where(spread == 0, 1, spread)
    r, g, b = (x[..., i] for i in range(3))
    angle = xp.where(
        high == r, (g - b) / safe, xp.where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe)
    )
    angle = (xp.where(spread == 0, 0, angle) + 6 * factor) % 6
    sat = xp.where(spread == 0, 0, spread / xp.maximum(1 - xp.abs(2 * light - 1), 1e-12))
    chroma = (1 - xp.abs(2 * light - 1)) * sat
    # Each channel is a trapezoid over the colour circle, a third of it apart.
    out = [
        light + chroma * (xp.clip(xp.abs((angle + shift) % 6 - 3) - 1, 0, 1) - 0.5)
        for shift in (0, 4, 2)
    ]
    return xp.stack(out, axis=-1) * 255


CHANGES = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}


def _float(x):
    return x.astype("float32") if np.dtype(x.dtype).kind in "iu" else x


def _changed(xp, x, rng, name, low, high):
    return _stored(xp, CHANGES[name](xp, _float(x), low + (high - low) * rng.random()), x)


def _factors_infer(op):
    def infer(ins, min_factor, max_factor):
        _image(op, ins[0], (1, 3))
        if max_factor < min_factor:
            raise OperatorError(
                op, f"min_factor must not be above max_factor, got {min_factor} and {max_factor}"
            )
        return [ins[0]]

    return infer


for _name in CHANGES:
    operator(
        f"_image_random_{_name}",
        aliases=(f"_npx__image_random_{_name}",),
        random=True,
        params=(Param("min_factor", "float"), Param("max_factor", "float")),
        infer=_factors_infer(f"_image_random_{_name}"),
        ref=lambda xp, x, min_factor, max_factor, rng, name=_name: _changed(
            xp, x, rng, name, min_factor, max_factor
        ),
        samples=(sample(uniform((3, 4, 3), 0, 255), min_factor=0.3, max_factor=0.3),),
        doc=f"Changes the {_name} of an image by a factor drawn from [min_factor, max_factor).",
    )


def jitter(xp: Any, x: Array, rng: np.random.Generator, amounts: dict[str, float]) -> Array:
    """The changes of CHANGES in random order; factor 1 +- amount (hue: +- amount turns)."""
    out = _float(x)
    for name in rng.permutation([n for n, amount in amounts.items() if amount > 0]).tolist():
        draw = amounts[name] * (2 * rng.random() - 1)
        out = CHANGES[name](xp, out, draw if name == "hue" else 1 + draw)
        out = xp.clip(out, 0, 255) if np.dtype(x.dtype).kind in "iu" else out
    return _stored(xp, out, x)


operator(
    "_image_random_color_jitter",
    aliases=("_npx__image_random_color_jitter",),
    random=True,
    params=tuple(Param(name, "float") for name in CHANGES),
    infer=_same("_image_random_color_jitter", (1, 3)),
    ref=lambda xp, x, rng, **amounts: jitter(xp, x, rng, amounts),
    samples=(
        sample(uniform((3, 4, 3), 0, 255), brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0),
    ),
    doc=(
        "Changes brightness, contrast, saturation (factors 1 +- value) and hue (+- value turns) in"
        " random order."
    ),
)


def light(xp: Any, x: Array, alpha: Sequence[float]) -> Array:
    """Adds the principal colours of natural images, weighted by alpha (3,)."""
    if x.shape[-1] == 1:
        return x.copy()
    weights = xp.asarray(alpha).astype("float32")
    shift = (xp.asarray(LIGHTING, np.float32) * weights).sum(axis=1)
    return _stored(xp, _float(x) + shift.astype(_float(x).dtype), x)


operator(
    "_image_adjust_lighting",
    aliases=("_npx__image_adjust_lighting",),
    params=(Param("alpha", "floats"),),
    infer=_same("_image_adjust_lighting", (1, 3)),
    ref=lambda xp, x, alpha: light(xp, x, alpha),
    grad=lambda F, dys, xs, ys, alpha: [dys[0]],
    samples=(sample((3, 4, 3), alpha=(0.1, 0.2, 0.3)),),
    doc="Adds principal colours weighted by alpha (3 values). Source: Krizhevsky et al. 2012.",
)
operator(
    "_image_random_lighting",
    aliases=("_npx__image_random_lighting",),
    random=True,
    params=(Param("alpha_std", "float", 0.05),),
    infer=_same("_image_random_lighting", (1, 3)),
    ref=lambda xp, x, alpha_std, rng: light(
        xp, x, rng.normal(0, alpha_std, 3) if alpha_std else (0, 0, 0)
    ),
    samples=(sample((3, 4, 3), alpha_std=0.0),),
    doc="Adds principal colours with normal weights of standard deviation alpha_std.",
)
