"""Reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..run import Call, dtype_of, rule
from .shape import _axes


def _reduction(name: str) -> Callable:
    def register(compute: Callable) -> Callable:
        @rule(name, static=(1,))
        def reduced(c: Call, x: Any, axes: Any = None) -> Any:
            n = len(x.shape)
            if axes is None or axes.size == 0:
                if c("noop_with_empty_axes", 0):
                    return x
                at = tuple(range(n))
            else:
                at = tuple(_axes(c, axes, n))
            if n == 0:
                at = ()
                return compute(c, c.np.reshape(x, (1,)), (0,), False)
            return compute(c, x, at, bool(c("keepdims", 1)))

        return compute

    return register


def _sum(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return c.np.sum(x, axis=at, keepdims=keep, dtype=dtype_of(x))


_reduction("ReduceSum")(_sum)


@_reduction("ReduceMean")
def _mean(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return c.np.mean(x, axis=at, keepdims=keep, dtype=dtype_of(x))


@_reduction("ReduceMax")
def _max(c: Call, x: Any, at: Any, keep: bool) -> Any:
    if dtype_of(x) == "bool":
        return c.np.max(x.astype("uint8"), axis=at, keepdims=keep).astype("bool")
    return c.np.max(x, axis=at, keepdims=keep)


@_reduction("ReduceMin")
def _min(c: Call, x: Any, at: Any, keep: bool) -> Any:
    if dtype_of(x) == "bool":
        return c.np.min(x.astype("uint8"), axis=at, keepdims=keep).astype("bool")
    return c.np.min(x, axis=at, keepdims=keep)


@_reduction("ReduceProd")
def _prod(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return c.np.prod(x, axis=at, keepdims=keep, dtype=dtype_of(x))


@_reduction("ReduceL1")
def _l1(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return _sum(c, c.np.abs(x), at, keep)


@_reduction("ReduceL2")
def _l2(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return c.np.sqrt(_sum(c, x * x, at, keep))


@_reduction("ReduceSumSquare")
def _sum_square(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return _sum(c, x * x, at, keep)


@_reduction("ReduceLogSum")
def _log_sum(c: Call, x: Any, at: Any, keep: bool) -> Any:
    return c.np.log(_sum(c, x, at, keep))


@_reduction("ReduceLogSumExp")
def _log_sum_exp(c: Call, x: Any, at: Any, keep: bool) -> Any:
    top = c.np.max(x, axis=at, keepdims=True)
    total = c.np.log(_sum(c, c.np.exp(x - top), at, True)) + top
    return total if keep else c.np.squeeze(total, axis=at)


# ---- along one axis ------------------------------------------------------------------------------


def _along(c: Call, x: Any, function: str) -> Any:
    n = len(x.shape)
    if c.opset >= 13:
        return getattr(c.nn, function)(x, axis=c("axis", -1))
    axis = c("axis", 1) % n if n else 0  # older opsets: of all later axes together
    if axis == n - 1:
        return getattr(c.nn, function)(x, axis=-1)
    shape = tuple(x.shape)
    flat = c.np.reshape(x, (*shape[:axis], -1))
    return c.np.reshape(getattr(c.nn, function)(flat, axis=-1), shape)


@rule("Softmax")
def softmax(c: Call, x: Any) -> Any:
    return _along(c, x, "softmax")


@rule("LogSoftmax")
def log_softmax(c: Call, x: Any) -> Any:
    return _along(c, x, "log_softmax")


@rule("Hardmax")
def hardmax(c: Call, x: Any) -> Any:
    shape, n = tuple(x.shape), len(x.shape)
    axis = c("axis", -1 if c.opset >= 13 else 1) % n
    if c.opset < 13:
        x, axis = c.np.reshape(x, (*shape[:axis], -1)), axis
    place = c.np.argmax(x, axis=axis)
    made = c.nn.one_hot(place, depth=x.shape[axis], dtype=dtype_of(x))
    return c.np.reshape(c.np.moveaxis(made, -1, axis), shape)
