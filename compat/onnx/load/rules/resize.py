"""Resize and Upsample: each axis is a product with a matrix of shares, or a choice of elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..run import Call, dtype_of, rule
from .shape import checked


@rule("Resize", static=(1, 2, 3))
def resize(c: Call, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    n = len(x.shape)
    if c.opset < 11:  # (x, scales)
        roi, scales = None, roi
        return _resized(c, x, list(range(n)), [float(s) for s in scales], None, None, "asymmetric")
    axes = [a % n for a in c("axes", range(n))]
    if sizes is not None and sizes.size:
        out = [int(s) for s in sizes]
        factors = [o / x.shape[a] for o, a in zip(out, axes)]
        policy = c("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors = [factor] * len(axes)
            out = [math.floor(x.shape[a] * factor + 0.5) for a in axes]
        return _resized(c, x, axes, factors, out, roi, None)
    if scales is None or not scales.size:
        raise c.fail("needs scales or sizes")
    return _resized(c, x, axes, [float(s) for s in scales], None, roi, None)


@rule("Upsample", static=(1,))
def upsample(c: Call, x: Any, scales: Any) -> Any:
    factors = [float(s) for s in scales]
    return _resized(c, x, list(range(len(x.shape))), factors, None, None, "asymmetric")


def _resized(
    c: Call, x: Any, axes: list[int], factors: list[float], out: Any, roi: Any, old: str | None
) -> Any:
    if any(not 0 < f < math.inf for f in factors):
        raise c.fail(f"scales must be positive, got {factors}")
    mode = c("mode", "nearest")
    how = old or c("coordinate_transformation_mode", "half_pixel")
    dtype, outside = dtype_of(x), None
    for i, axis in enumerate(axes):
        size, factor = x.shape[axis], factors[i]
        count = out[i] if out is not None else math.floor(size * factor)
        checked(c, [*x.shape[:axis], count, *x.shape[axis + 1 :]])
        box = (0.0, 1.0)
        if how == "tf_crop_and_resize" and roi is not None:
            box = (float(roi[i]), float(roi[i + len(axes)]))
        if count == size and factor == 1 and box == (0.0, 1.0):
            continue
        places = _places(how, size, count, factor, box)
        if how == "tf_crop_and_resize":
            beyond = (places < 0) | (places > size - 1)
            shape = [-1 if a == axis else 1 for a in range(len(x.shape))]
            beyond = beyond.reshape(shape)
            outside = beyond if outside is None else outside | beyond
        if mode == "nearest":
            rounding = "floor" if old else c("nearest_mode", "round_prefer_floor")
            x = _chosen(c, x, axis, _nearest(places, size, rounding))
        else:
            shares = _shares(c, places, size, factor, mode)
            x = _product(
                c, x, axis, shares.astype(np.float64 if dtype == "float64" else np.float32)
            )
    if outside is not None and outside.any():
        value = c("extrapolation_value", 0.0)
        x = c.np.where(c.array(outside), c.cast(c.np.full(outside.shape, value), dtype), x)
    return c.cast(x, dtype)


def _places(how: str, size: int, count: int, factor: float, box: tuple[float, float]) -> np.ndarray:
    """Where each new element is on the old axis."""
    i = np.arange(count, dtype=np.float64)
    if how == "align_corners":
        return i * (size - 1) / (count - 1) if count > 1 else i * 0
    if how == "asymmetric":
        return i / factor
    if how == "tf_crop_and_resize":
        start, end = box
        if count > 1:
            return start * (size - 1) + i * (end - start) * (size - 1) / (count - 1)
        return np.full(count, 0.5 * (start + end) * (size - 1))
    if how == "pytorch_half_pixel" and count <= 1:
        return i * 0
    if how == "half_pixel_symmetric":
        center, exact = size / 2, factor * size
        return center * (1 - count / exact) + (i + 0.5) / factor - 0.5
    return (i + 0.5) / factor - 0.5


def _nearest(places: np.ndarray, size: int, rounding: str) -> np.ndarray:
    down, shift = {
        "floor": (True, 0.0),
        "ceil": (False, 0.0),
        "round_prefer_floor": (False, -0.5),
        "round_prefer_ceil": (True, 0.5),
    }[rounding]
    found = np.floor(places + shift) if down else np.ceil(places + shift)
    return np.clip(found, 0, size - 1).astype(np.int64)


def _chosen(c: Call, x: Any, axis: int, at: np.ndarray) -> Any:
    size = x.shape[axis]
    times = len(at) // size if size else 0
    if times > 1 and np.array_equal(at, np.repeat(np.arange(size), times)):
        return c.np.repeat(x, times, axis=axis)
    return c.np.take(x, c.array(at), axis=axis, mode="clip")


def _shares(c: Call, places: np.ndarray, size: int, factor: float, mode: str) -> np.ndarray:
    """(new, old): the share that each old element has in each new one."""
    shrink = min(1.0, factor) if c("antialias", 0) else 1.0
    if mode == "linear":
        reach = 1.0
    elif mode == "cubic":
        reach = 2.0
    else:
        raise c.fail(f"mode must be nearest, linear or cubic, got {mode!r}")
    if mode == "linear" and shrink == 1 and not c("exclude_outside", 0):
        places = np.clip(places, 0, size - 1)
    radius = reach / shrink
    first = np.floor(places - radius).astype(int)
    steps = np.arange(int(2 * radius) + 3)
    at = first[:, None] + steps
    weights = _kernel(c, (at - places[:, None]) * shrink, mode)
    if c("exclude_outside", 0):
        weights = np.where((at < 0) | (at >= size), 0, weights)
    weights /= weights.sum(1, keepdims=True)
    made = np.zeros((len(places), size))
    np.add.at(made, (np.arange(len(places))[:, None], np.clip(at, 0, size - 1)), weights)
    return made


def _kernel(c: Call, x: np.ndarray, mode: str) -> np.ndarray:
    d = np.abs(x)
    if mode == "linear":
        return np.maximum(0, 1 - d)
    a = c("cubic_coeff_a", -0.75)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _product(c: Call, x: Any, axis: int, shares: np.ndarray) -> Any:
    matrix = c.array(np.ascontiguousarray(shares))
    x = c.cast(x, dtype_of(shares))
    last = len(x.shape) - 1
    if axis == last:
        return c.np.matmul(x, c.np.transpose(matrix))
    if axis == last - 1:
        return c.np.matmul(matrix, x)
    return c.np.swapaxes(
        c.np.matmul(c.np.swapaxes(x, axis, last), c.np.transpose(matrix)), axis, last
    )
