"""Pools."""

from __future__ import annotations

import functools
import itertools
from math import prod
from typing import Any

import numpy as np

from ..run import Call, dtype_of, rule
from .pointwise import is_float
from .shape import padded, reshaped
from .windows import Windows, spatial, windows


@rule("MaxPool")
def max_pool(c: Call, x: Any) -> Any:
    w = windows(c, x.shape, c("kernel_shape"))
    known = is_float(x) or dtype_of(x) in ("int8", "uint8")
    simple = w.symmetric and set(w.dilate) == {1} and known and len(w.kernel) < 4
    if simple and not c.wants(1):
        return c.nn.Pooling(x, kernel=w.kernel, stride=w.stride, pad=w.before, pool_type="max")
    least = -np.inf if is_float(x) else np.iinfo(dtype_of(x)).min
    wide = padded(c, x, spatial(zip(w.before, w.after)), value=least)
    parts = _parts(c, wide, w)
    if not c.wants(1):
        return functools.reduce(c.np.maximum, parts)
    places = _parts(c, c.array(_places(c, x.shape, w)), w)
    every = c.np.stack(parts, axis=0)
    best = c.np.expand_dims(c.np.argmax(every, axis=0).astype("int64"), 0)
    where = c.np.stack([c.np.broadcast_to(p, parts[0].shape) for p in places], axis=0)
    chosen = c.np.take_along_axis(where, best, axis=0)
    return functools.reduce(c.np.maximum, parts), c.np.squeeze(chosen, axis=0)


def _parts(c: Call, x: Any, w: Windows) -> list[Any]:
    """For each place of the kernel what all windows have there."""
    found = []
    for at in itertools.product(*map(range, w.kernel)):
        key: list[Any] = [slice(None), slice(None)]
        for i, n, s, d in zip(at, w.out, w.stride, w.dilate):
            key.append(slice(i * d, i * d + (n - 1) * s + 1, s))
        found.append(x[tuple(key)])
    return found


def _places(c: Call, shape: Any, w: Windows) -> Any:
    """The number of each element in its array, -1 in the padding."""
    numbers = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    if c("storage_order", 0):
        order = np.arange(prod(shape[2:])).reshape(shape[:1:-1]).T
        numbers = numbers.reshape(*shape[:2], -1)[..., :1, None].reshape(
            *shape[:2], *[1] * len(w.out)
        )
        numbers = numbers + order
    return np.pad(numbers, spatial(zip(w.before, w.after)), constant_values=-1)


@rule("AveragePool")
def average_pool(c: Call, x: Any) -> Any:
    w = windows(c, x.shape, c("kernel_shape"))
    inside = bool(c("count_include_pad", 0))
    pads = c("pads", [0] * 2 * len(w.kernel))
    cut = list(zip(w.after, pads[len(w.kernel) :])) if c("ceil_mode", 0) else []
    plain = w.symmetric and set(w.dilate) == {1} and all(a <= p for a, p in cut)
    if plain and len(w.kernel) < 4:
        return c.nn.Pooling(
            x,
            kernel=w.kernel,
            stride=w.stride,
            pad=w.before,
            pool_type="avg",
            count_include_pad=inside,
        )
    ones = np.ones(x.shape[2:], np.float64)
    if inside:
        widths = [(b, min(a, p)) for b, a, p in zip(w.before, w.after, pads[len(w.kernel) :])]
        if c("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
            widths = list(zip(w.before, w.after))
        rest = [(0, max(0, a - n)) for a, (_, n) in zip(w.after, widths)]
        ones = np.pad(np.pad(ones, widths, constant_values=1), rest)
    else:
        ones = np.pad(ones, list(zip(w.before, w.after)))
    counts = sum(
        ones[
            tuple(
                slice(i * d, i * d + (n - 1) * s + 1, s)
                for i, n, s, d in zip(at, w.out, w.stride, w.dilate)
            )
        ]
        for at in itertools.product(*map(range, w.kernel))
    )
    wide = padded(c, x, spatial(zip(w.before, w.after)))
    total = functools.reduce(c.np.add, _parts(c, wide, w))
    return total * c.array((1 / np.asarray(counts)).astype(np.dtype(x.dtype)))


@rule("LpPool")
def lp_pool(c: Call, x: Any) -> Any:
    w = windows(c, x.shape, c("kernel_shape"))
    p = c("p", 2)
    wide = padded(c, x, spatial(zip(w.before, w.after)))
    powers = _parts(c, c.np.power(c.np.abs(wide), float(p)), w)
    return c.np.power(functools.reduce(c.np.add, powers), 1 / p)


@rule("GlobalAveragePool")
def global_average_pool(c: Call, x: Any) -> Any:
    if 3 <= len(x.shape) <= 5:
        return c.nn.Pooling(x, kernel=(1,) * (len(x.shape) - 2), pool_type="avg", global_pool=True)
    return c.np.mean(x, axis=tuple(range(2, len(x.shape))), keepdims=True)


@rule("GlobalMaxPool")
def global_max_pool(c: Call, x: Any) -> Any:
    if 3 <= len(x.shape) <= 5:
        return c.nn.Pooling(x, kernel=(1,) * (len(x.shape) - 2), pool_type="max", global_pool=True)
    return c.np.max(x, axis=tuple(range(2, len(x.shape))), keepdims=True)


@rule("GlobalLpPool")
def global_lp_pool(c: Call, x: Any) -> Any:
    p, at = c("p", 2), tuple(range(2, len(x.shape)))
    return c.np.power(c.np.sum(c.np.power(c.np.abs(x), float(p)), axis=at, keepdims=True), 1 / p)


@rule("MaxUnpool", static=(2,))
def max_unpool(c: Call, x: Any, places: Any, to: Any = None) -> Any:
    n = len(x.shape) - 2
    kernel, stride, pads = c("kernel_shape"), c("strides", [1] * n), c("pads", [0] * 2 * n)
    own = [(x.shape[i + 2] - 1) * stride[i] + kernel[i] - pads[i] - pads[i + n] for i in range(n)]
    shape = (*x.shape[:2], *own)
    flat = c.np.zeros((prod(shape),), dtype=dtype_of(x))
    at = c.np.expand_dims(c.np.reshape(places, (-1,)), 0)
    made = c.nn._internal._scatter_set_nd(flat, c.np.reshape(x, (-1,)), at, shape=flat.shape)
    made = reshaped(c, made, shape)
    if to is None:
        return made
    extra = [(0, int(m) - s) for m, s in zip(np.asarray(to).reshape(-1), shape)]
    return padded(c, made, extra)
