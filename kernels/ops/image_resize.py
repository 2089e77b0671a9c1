"""Images resized and framed with OpenCV's values: _image_resize, _cvimresize, _cvcopyMakeBorder.

Pixel centres lie at half numbers. Bytes are computed in the fixed point of OpenCV, so that they
are equal to its results; other dtypes in float32 (float64 as such).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Shape, Type, operator, sample, uniform, values

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)  # OpenCV's numbers
ENLARGING = 5  # what OpenCV makes of AREA unless both axes shrink
WEIGHT_BITS = 11


def resized(height: int, width: int, size: Shape, keep_ratio: bool) -> tuple[int, int]:
    """(height, width) after resizing to `size`: (width, height), or one number for both, or for the
    shorter edge."""
    if len(size) == 2:
        return size[1], size[0]
    if not keep_ratio:
        return size[0], size[0]
    if height > width:
        return int(height * size[0] / width), size[0]
    return size[0], int(width * size[0] / height)


# ---- weights -------------------------------------------------------------------------------------


def _nearest(n_in, n_out, scale):
    taps = np.floor(np.arange(n_out) * scale)[:, None]
    return taps, np.ones_like(taps)


def _places(n_out, scale):
    """Whole parts and fractions of the centres of the outputs, in pixels of the input."""
    at = ((np.arange(n_out) + 0.5) * scale - 0.5).astype(np.float32)
    low = np.floor(at)
    return low, at - low


def _two_taps(n_in, low, f):
    f = np.where((low < 0) | (low >= n_in - 1), np.float32(0), f)
    return low[:, None] + [0, 1], np.stack([1 - f, f], axis=1)


def _linear(n_in, n_out, scale):
    return _two_taps(n_in, *_places(n_out, scale))


def _enlarging(n_in, n_out, scale):
    """Linear, but only where an output pixel covers two inputs."""
    i = np.arange(n_out)
    low = np.floor(i * scale)
    f = ((i + 1) - (low + 1) / scale).astype(np.float32)
    return _two_taps(n_in, low, np.where(f <= 0, np.float32(0), f - np.floor(f)))


def _cubic(n_in, n_out, scale, a=-0.75):
    low, f = _places(n_out, scale)
    f = f.astype(np.float64)

    def near(t):
        return ((a + 2) * t - (a + 3)) * t * t + 1

    far = ((a * (f + 1) - 5 * a) * (f + 1) + 8 * a) * (f + 1) - 4 * a
    first = [w.astype(np.float32).astype(np.float64) for w in (far, near(f), near(1 - f))]
    return low[:, None] + [-1, 0, 1, 2], np.stack([*first, 1 - sum(first)], axis=1)


def _lanczos(n_in, n_out, scale):
    low, f = _places(n_out, scale)
    offsets = np.arange(-3, 5)
    t = f[:, None].astype(np.float64) - offsets
    weights = (np.sinc(t) * np.sinc(t / 4)).astype(np.float32)
    return low[:, None] + offsets, weights / weights.sum(axis=1, keepdims=True)


def _area(n_in, n_out, scale):
    """Each output is the mean of the inputs that it covers."""
    start = np.arange(n_out) * scale
    taps = np.floor(start)[:, None] + np.arange(int(np.ceil(scale)) + 1)
    covered = np.minimum(taps + 1, (start + scale)[:, None]) - np.maximum(taps, start[:, None])
    # OpenCV leaves out slivers
    covered = np.where((covered > 1e-3) & (taps < n_in), covered, 0)
    return taps, covered / np.minimum(scale, n_in - start)[:, None]


RULES = {
    NEAREST: _nearest,
    LINEAR: _linear,
    CUBIC: _cubic,
    AREA: _area,
    LANCZOS: _lanczos,
    ENLARGING: _enlarging,
}


def rule_for(height: int, width: int, out_height: int, out_width: int, interp: int) -> int:
    """The key of RULES that OpenCV applies for an interpolation."""
    if interp == AREA and (out_height > height or out_width > width):
        return ENLARGING
    if interp == LINEAR and (height, width) == (2 * out_height, 2 * out_width):
        return AREA
    return interp


@lru_cache(maxsize=64)
def resize_taps(n_in: int, n_out: int, rule: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_out, k) places in the input and their float32 weights, for each output."""
    taps, weights = RULES[rule](n_in, n_out, n_in / n_out)
    return np.clip(taps, 0, n_in - 1).astype(np.int64), weights.astype(np.float32)


@lru_cache(maxsize=64)
def resize_matrix(n_in: int, n_out: int, rule: int) -> np.ndarray:
    """(n_out, n_in) float32: row i has the weights of the inputs of output i."""
    taps, weights = resize_taps(n_in, n_out, rule)
    matrix = np.zeros((n_out, n_in), np.float32)
    np.add.at(matrix, (np.arange(n_out)[:, None], taps), weights)
    return matrix


# ---- pixels --------------------------------------------------------------------------------------


def _fixed(weights):
    return np.rint(weights * (1 << WEIGHT_BITS)).astype(np.int64)


def _resized_bytes(xp, x, height, width, rule):
    """uint8 (..., H, W, C) in fixed point: weights of 11 bits along each axis."""
    (rows, row_weights), (columns, column_weights) = (
        resize_taps(n_in, n_out, rule)
        for n_in, n_out in ((x.shape[-3], height), (x.shape[-2], width))
    )
    if rule == NEAREST:
        return x[..., rows, columns[:, 0], :]
    if rule == AREA:
        return _area_of_bytes(xp, x, height, width)
    wide = x.astype("int64")
    across = sum(
        wide[..., columns[:, k], :] * xp.asarray(w)[:, None]
        for k, w in enumerate(_fixed(column_weights).T)
    )
    parts = [
        (across[..., rows[:, k], :, :], xp.asarray(w)[:, None, None])
        for k, w in enumerate(_fixed(row_weights).T)
    ]
    if len(parts) == 2:
        total = sum(((part >> 4) * w) >> 16 for part, w in parts) + 2 >> 2
    else:
        total = sum(part * w for part, w in parts) + (1 << 2 * WEIGHT_BITS - 1) >> 2 * WEIGHT_BITS
    return xp.clip(total, 0, 255).astype("uint8")


def _area_of_bytes(xp, x, height, width):
    *n, h, w, c = x.shape
    if (h, w) == (2 * height, 2 * width):
        sums = x.reshape(*n, height, 2, width, 2, c).sum(axis=(-4, -2), dtype="int64")
        return (sums + 2 >> 2).astype("uint8")
    return xp.rint(_by_matrices(xp, x.astype("float32"), height, width, AREA)).astype("uint8")


def _by_matrices(xp, x, height, width, rule):
    *n, h, w, c = x.shape
    columns = xp.asarray(resize_matrix(w, width, rule))
    rows = xp.asarray(resize_matrix(h, height, rule))
    across = xp.matmul(columns, x).reshape(*n, h, width * c)
    return xp.matmul(rows, across).reshape(*n, height, width, c)


def resize_pixels(xp: Any, x: Array, height: int, width: int, interp: int) -> Array:
    """An image (..., H, W, C) in another size; whole numbers are rounded."""
    dtype = np.dtype(x.dtype)
    rule = rule_for(x.shape[-3], x.shape[-2], height, width, interp)
    if dtype == np.uint8:
        return _resized_bytes(xp, x, height, width, rule)
    wide = x.astype("float32", copy=False) if dtype != np.float64 else x
    (rows, row_weights), (columns, column_weights) = (
        resize_taps(n_in, n_out, rule)
        for n_in, n_out in ((x.shape[-3], height), (x.shape[-2], width))
    )
    across = (wide[..., columns, :] * xp.asarray(column_weights)[..., None]).sum(axis=-2)
    down = across[..., rows, :, :] * xp.asarray(row_weights)[..., None, None]
    out = down.sum(axis=-3)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        out = xp.clip(xp.rint(out), limits.min, limits.max)
    return out.astype(x.dtype)


# ---- operators -----------------------------------------------------------------------------------


def _check(op: str, t: Type, size, interp, axes=(3, 4)):
    if len(t.shape) not in axes:
        form = "(H, W, C)" + (" or (N, H, W, C)" if 4 in axes else "")
        raise ShapeError(op, f"data must be {form}, got {t.shape}")
    if 0 in t.shape[-3:-1]:
        raise ShapeError(op, f"data must have at least one pixel, got {t.shape}")
    if size is None or len(size) not in (1, 2) or min(size) < 1:
        raise OperatorError(
            op, f"size must be one or two positive numbers (width, height), got {size}"
        )
    if not 0 <= interp <= LANCZOS:
        raise OperatorError(op, f"interp must be one of 0, 1, 2, 3, 4, got {interp}")


def _resize_infer(ins, size, keep_ratio, interp):
    op, t = "_image_resize", ins[0]
    _check(op, t, size, interp)
    *n, h, w, c = t.shape
    return [Type((*n, *resized(h, w, size, keep_ratio), c), t.dtype)]


def _resize_ref(xp, x, size, keep_ratio, interp):
    h, w = x.shape[-3:-1]
    return resize_pixels(xp, x, *resized(h, w, size, keep_ratio), interp)


BYTES = values(np.arange(7 * 9 * 3).reshape(7, 9, 3) * 37 % 256, "uint8")

operator(
    "_image_resize",
    aliases=("_npx__image_resize",),
    infer=_resize_infer,
    params=(
        Param("size", "shape", None),
        Param("keep_ratio", "bool", False),
        Param("interp", "int", 1),
    ),
    ref=_resize_ref,
    samples=(
        sample(uniform((4, 6, 3), 0, 255), size=(3, 5)),
        sample(uniform((2, 4, 4, 1), 0, 255), size=(6,), interp=2),
        sample(uniform((4, 6, 3), 0, 255), size=(3,), keep_ratio=True, interp=3),
        sample(BYTES, size=(5, 12), interp=1),
    ),
    doc=(
        "Resizes to size = (width, height), or one number for both, or for the shorter edge with"
        " keep_ratio. interp: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos."
    ),
)


def _cv_infer(ins, w, h, interp):
    op, t = "_cvimresize", ins[0]
    _check(op, t, (w, h), interp, axes=(3,))
    return [Type((h, w, t.shape[-1]), t.dtype)]


operator(
    "_cvimresize",
    aliases=("_npi_cvimresize",),
    inputs=("src",),
    infer=_cv_infer,
    params=(Param("w", "int"), Param("h", "int"), Param("interp", "int", 1)),
    ref=lambda xp, x, w, h, interp: resize_pixels(xp, x, h, w, interp),
    samples=tuple(
        sample(BYTES, w=w, h=h, interp=interp)
        for interp in range(5)
        for w, h in ((5, 4), (12, 11), (5, 11))
    )
    + (
        sample(values(np.arange(8 * 6).reshape(8, 6, 1) * 37 % 256, "uint8"), w=3, h=4, interp=1),
        sample(uniform((4, 6, 2), 0, 1), w=3, h=3, interp=3),
    ),
    doc=(
        "Resizes an image (H, W, C). interp: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos;"
        " bytes get OpenCV's values."
    ),
)

BORDERS = {0: "constant", 1: "edge", 2: "symmetric", 3: "wrap", 4: "reflect"}  # OpenCV's numbers


def _border_infer(ins, top, bot, left, right, type, value, values):
    op, t = "_cvcopyMakeBorder", ins[0]
    if len(t.shape) != 3:
        raise ShapeError(op, f"src must be (H, W, C), got {t.shape}")
    if type & 15 and 0 in t.shape[:2]:
        raise ShapeError(op, f"src must have at least one pixel to be repeated, got {t.shape}")
    if min(top, bot, left, right) < 0:
        raise OperatorError(
            op,
            f"margins must not be negative, got {(top, bot, left, right)} (top, bot, left, right)",
        )
    if (type & 15) not in BORDERS:
        raise OperatorError(op, f"type must be one of {', '.join(map(str, BORDERS))}, got {type}")
    h, w, c = t.shape
    return [Type((h + top + bot, w + left + right, c), t.dtype)]


def _border_ref(xp, x, top, bot, left, right, type, value, values):
    widths = ((top, bot), (left, right), (0, 0))
    if type & 15:
        return xp.pad(x, widths, mode=BORDERS[type & 15])
    channels = x.shape[2]
    fill = (tuple(values) + (0.0,) * channels)[:channels] if values else (value,) * channels
    if np.dtype(x.dtype).kind in "iu":
        limits = np.iinfo(x.dtype)
        fill = tuple(np.clip(np.rint(fill), limits.min, limits.max))
    out = xp.empty((x.shape[0] + top + bot, x.shape[1] + left + right, channels), x.dtype)
    out[...] = xp.asarray(fill).astype(x.dtype)
    out[top : top + x.shape[0], left : left + x.shape[1]] = x
    return out


operator(
    "_cvcopyMakeBorder",
    aliases=("copyMakeBorder",),
    inputs=("src",),
    infer=_border_infer,
    params=(
        Param("top", "int"),
        Param("bot", "int"),
        Param("left", "int"),
        Param("right", "int"),
        Param("type", "int", 0),
        Param("value", "float", 0.0),
        Param("values", "floats", ()),
    ),
    ref=_border_ref,
    samples=tuple(
        sample(BYTES, top=1, bot=2, left=3, right=0, type=kind, value=7.0) for kind in BORDERS
    )
    + (sample(BYTES, top=0, bot=1, left=1, right=1, values=(1.0, 300.0, 3.0)),),
    doc=(
        "Puts a margin around an image (H, W, C). type: 0 a colour (`values`, or `value` for every"
        " channel), 1 the edge repeated, 2 mirrored, 3 wrapped, 4 mirrored without the edge."
    ),
)
