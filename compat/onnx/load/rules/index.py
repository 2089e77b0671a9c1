"""Operators that pick, place, sort and find elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....engine.error import DynamicShape
from .....ndarray.ndarray import NDArray
from ..run import Call, dtype_of, rule
from .shape import axis_of, checked, sliced


def wrapped(c: Call, indices: Any, n: int) -> Any:
    """Indices below n, negative ones counted from the end."""
    if isinstance(indices, np.ndarray):
        if indices.size and not (-n <= indices.min() and indices.max() < n):
            raise c.fail(f"indices must be -{n} to {n - 1}, got {indices.min()}, {indices.max()}")
        return c.array(np.where(indices < 0, indices + n, indices))
    return c.np.where(c.np.less(indices, 0), indices + n, indices)


@rule("Gather", maybe=(1,))
def gather(c: Call, x: Any, indices: Any) -> Any:
    axis = axis_of(c, c("axis", 0), len(x.shape))
    n = x.shape[axis]
    if isinstance(indices, np.ndarray):
        if indices.ndim == 0 and n:
            i = int(indices) + (n if indices < 0 else 0)
            if not 0 <= i < n:
                raise c.fail(f"the index must be -{n} to {n - 1}, got {int(indices)}")
            return c.np.squeeze(sliced(c, x, axis, i, i + 1), axis=axis)
        return c.np.take(x, wrapped(c, indices, n), axis=axis, mode="clip")
    return c.np.take(x, indices, axis=axis, mode="wrap")


@rule("GatherElements", maybe=(1,))
def gather_elements(c: Call, x: Any, indices: Any) -> Any:
    axis = axis_of(c, c("axis", 0), len(x.shape))
    for i, n in enumerate(indices.shape):  # of other axes, the first elements count
        if i != axis:
            x = sliced(c, x, i, 0, n)
    return c.np.take_along_axis(x, wrapped(c, indices, x.shape[axis]), axis=axis)


def _places(c: Call, indices: Any, shape: Any) -> Any:
    """Places of slices in an array of its leading axes joined; indices: (..., k)."""
    k = indices.shape[-1]
    if k > len(shape):
        raise c.fail(f"indices of {k} axes are too many for an array of {len(shape)}")
    total: Any = None
    for i in range(k):
        part = indices[..., i] if isinstance(indices, np.ndarray) else _last(c, indices, i)
        part = wrapped(c, part, shape[i])
        part = part * int(prod(shape[i + 1 : k]))
        total = part if total is None else total + part
    return total


def _last(c: Call, x: Any, i: int) -> Any:
    return c.np.squeeze(sliced(c, x, len(x.shape) - 1, i, i + 1), axis=-1)


@rule("GatherND", maybe=(1,))
def gather_nd(c: Call, x: Any, indices: Any) -> Any:
    b, k = c("batch_dims", 0), indices.shape[-1]
    batch, shape = tuple(x.shape[:b]), tuple(x.shape[b:])
    at = _places(c, indices, shape)
    rest = shape[k:]
    if b:  # each batch element has its own part of the joined axis
        n, size = prod(batch), prod(shape[:k])
        offset = (np.arange(n) * size).reshape(batch + (1,) * (len(at.shape) - b))
        at = at + c.array(offset.astype(np.int64))
    flat = c.np.reshape(x, (prod(batch) * prod(shape[:k]), *rest))
    return c.np.take(flat, at, axis=0, mode="clip")


@rule("ScatterND", maybe=(1,))
def scatter_nd(c: Call, x: Any, indices: Any, updates: Any) -> Any:
    k, shape = indices.shape[-1], tuple(x.shape)
    at = c.np.reshape(_places(c, indices, shape), (-1,))
    rows = c.np.reshape(updates, (prod(indices.shape[:-1]), *shape[k:]))
    flat = c.np.reshape(x, (prod(shape[:k]), *shape[k:]))
    return c.np.reshape(_scattered(c, flat, at, rows), shape)


@rule("ScatterElements", "Scatter", maybe=(1,))
def scatter_elements(c: Call, x: Any, indices: Any, updates: Any) -> Any:
    shape, n = tuple(x.shape), len(x.shape)
    axis = axis_of(c, c("axis", 0), n)
    strides = [prod(shape[i + 1 :]) for i in range(n)]
    at = wrapped(c, indices, shape[axis]) * strides[axis]
    others = np.zeros(indices.shape, np.int64)
    for i, size in enumerate(indices.shape):
        if i != axis:
            others += (np.arange(size) * strides[i]).reshape(
                [-1 if j == i else 1 for j in range(n)]
            )
    at = c.np.reshape(at + c.array(others), (-1,))
    flat = _scattered(c, c.np.reshape(x, (-1,)), at, c.np.reshape(updates, (-1,)))
    return c.np.reshape(flat, shape)


def _scattered(c: Call, x: Any, at: Any, rows: Any) -> Any:
    """x with rows at places of axis 0, put there or combined with what is there."""
    how = c("reduction", "none")
    where = c.np.expand_dims(at, 0)
    if how == "none":
        return c.nn._internal._scatter_set_nd(x, rows, where, shape=x.shape)
    if how == "add":
        return x + c.nn._internal._backward_gather_nd(rows, where, shape=x.shape)
    if not isinstance(x, NDArray):
        raise DynamicShape(c.node.op, f"{c.node}: reduction {how!r} runs on arrays only")
    made = x.asnumpy().copy()
    getattr(np, {"mul": "multiply", "max": "maximum", "min": "minimum"}[how]).at(
        made, at.asnumpy(), rows.asnumpy()
    )
    return c.array(made)


@rule("OneHot", static=(1,), maybe=(0,))
def one_hot(c: Call, indices: Any, depth: Any, values: Any) -> Any:
    n = int(np.asarray(depth).reshape(-1)[0])
    checked(c, [*indices.shape, n])
    axis = axis_of(c, c("axis", -1), len(indices.shape) + 1)
    if isinstance(indices, np.ndarray):
        indices = c.array(indices)
    whole = indices.astype("int64")
    whole = c.np.where(c.np.less(whole, 0), whole + n, whole)
    steps = np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(indices.shape) + 1)])
    same = c.np.equal(c.np.expand_dims(whole, axis), c.array(steps.astype(np.int64)))
    off, on = (sliced(c, values, 0, i, i + 1) for i in range(2))
    return c.np.where(same, on, off)


# ---- order ---------------------------------------------------------------------------------------


@rule("TopK", static=(1,))
def top_k(c: Call, x: Any, k: Any) -> Any:
    axis, n = axis_of(c, c("axis", -1), len(x.shape)), int(np.asarray(k).reshape(-1)[0])
    if not 0 <= n <= x.shape[axis]:
        raise c.fail(f"k must be 0 to {x.shape[axis]}, got {n}")
    if n == 0:
        none = sliced(c, x, axis, 0, 0)
        return none, none.astype("int64")
    ascending = not c("largest", 1)
    found = c.nn.topk(x, axis=axis, k=n, ret_typ="both", is_ascend=ascending, dtype="int64")
    return found[0], found[1]


def _arg(c: Call, x: Any, function: str) -> Any:
    axis = axis_of(c, c("axis", 0), len(x.shape))
    if c("select_last_index", 0):
        found = x.shape[axis] - 1 - getattr(c.np, function)(c.np.flip(x, axis), axis=axis)
    else:
        found = getattr(c.np, function)(x, axis=axis)
    found = found.astype("int64")
    return c.np.expand_dims(found, axis) if c("keepdims", 1) else found


@rule("ArgMax")
def arg_max(c: Call, x: Any) -> Any:
    return _arg(c, x, "argmax")


@rule("ArgMin")
def arg_min(c: Call, x: Any) -> Any:
    return _arg(c, x, "argmin")


@rule("CumSum", static=(1,))
def cum_sum(c: Call, x: Any, axis: Any) -> Any:
    at = axis_of(c, int(np.asarray(axis).reshape(-1)[0]), len(x.shape))
    backward = c("reverse", 0)
    x = c.np.flip(x, at) if backward else x
    if c("exclusive", 0):
        first = c.np.zeros_like(sliced(c, x, at, 0, 1))
        x = c.np.concatenate([first, sliced(c, x, at, 0, x.shape[at] - 1)], axis=at)
    made = c.np.cumsum(x, axis=at, dtype=dtype_of(x))
    return c.np.flip(made, at) if backward else made


@rule("ReverseSequence")
def reverse_sequence(c: Call, x: Any, lengths: Any) -> Any:
    time, batch = c("time_axis", 0), c("batch_axis", 1)
    if time == batch or {time, batch} != {0, 1}:
        raise c.fail(f"time_axis and batch_axis must be 0 and 1, got {time} and {batch}")
    x = x if time == 0 else c.np.swapaxes(x, 0, 1)
    found = c.nn.SequenceReverse(x, lengths, use_sequence_length=True)
    return found if time == 0 else c.np.swapaxes(found, 0, 1)


# ---- results whose shapes depend on values: their inputs are known -------------------------------


@rule("NonZero", static=(0,))
def non_zero(c: Call, x: Any) -> Any:
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@rule("Compress", static=(1,))
def compress(c: Call, x: Any, condition: Any) -> Any:
    axis = c("axis")
    if axis is None:
        x, axis = c.np.reshape(x, (-1,)), 0
    places = np.nonzero(condition[: x.shape[axis]])[0]
    return c.np.take(x, c.array(places.astype(np.int64)), axis=axis, mode="clip")


@rule("Unique", static=(0,))
def unique(c: Call, x: Any) -> Any:
    axis = c("axis")
    found, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not c("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        found = np.take(found, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return found, *(a.astype(np.int64) for a in (first, inverse, counts))


@rule("NonMaxSuppression", static=(0, 1, 2, 3, 4))
def non_max_suppression(
    c: Call, boxes: Any, scores: Any, limit: Any = None, iou: Any = None, score: Any = None
) -> Any:
    most = int(np.asarray(limit).reshape(-1)[0]) if limit is not None else 0
    overlap = float(np.asarray(iou).reshape(-1)[0]) if iou is not None else 0.0
    least = -np.inf if score is None else float(np.asarray(score).reshape(-1)[0])
    if c("center_point_box", 0):
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = np.concatenate([center - half, center + half], -1)
    low = np.minimum(boxes[..., :2], boxes[..., 2:])
    high = np.maximum(boxes[..., :2], boxes[..., 2:])
    rows = []
    for b, k in np.ndindex(*scores.shape[:2]):
        for i in _suppressed(low[b], high[b], scores[b, k], most, overlap, least):
            rows.append((b, k, i))
    return np.array(rows, np.int64).reshape(-1, 3)


def _suppressed(low: Any, high: Any, scores: Any, most: int, overlap: float, least: float) -> list:
    """Places of boxes that overlap no better box."""
    area = np.prod(high - low, -1)
    order = np.argsort(-scores, kind="stable")
    left = order[scores[order] > least]
    kept: list[int] = []
    while left.size and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(int(best))
        sides = np.minimum(high[best], high[left]) - np.maximum(low[best], low[left])
        both = np.prod(np.maximum(sides, 0), -1)
        union = area[best] + area[left] - both
        left = left[both <= overlap * union]
    return kept
