"""Sums and the like over axes, places of maxima, sorting."""

from __future__ import annotations

from typing import Any

from ..arrays import FUNCTIONS, top
from ..graph import Graph
from ..rule import Rule, rule, table
from ..tensors import Tensor


def axes_of(x: Tensor, axis: Any, exclude: bool = False) -> list[int]:
    """The axes of a reduction's attributes, as MXNet reads them: none means all."""
    if axis is None or axis == () and not exclude:
        return list(range(x.ndim))
    given = [axis] if hasattr(axis, "__index__") else list(axis)
    named = {a % x.ndim for a in given}
    return [a for a in range(x.ndim) if (a in named) != exclude]


def _reduced(kind: str) -> Rule:
    def apply(
        g: Graph, x: Tensor, *, axis: Any, keepdims: bool, exclude: bool = False, **rest: Any
    ) -> Tensor:
        if x.dtype.kind != "f" or any(n == 0 for n in x.shape):
            given = {"axis": axis, "keepdims": keepdims, "exclude": exclude, **rest}
            return g.converter.by_reference(g, x, **given)
        made = g.reduce(kind, g.cast(x, g.outs[0].dtype), axes_of(x, axis, exclude), keepdims)
        return g.reshape(made, g.outs[0].shape) if made.ndim != len(g.outs[0].shape) else made

    return apply


table(
    {
        "ReduceSum": "sum",
        "ReduceMean": "mean",
        "ReduceMax": "max",
        "ReduceMin": "min",
        "ReduceProd": "prod",
    },
    _reduced,
)


@rule("norm")
def norm(g: Graph, x: Tensor, *, ord: int, axis: Any, keepdims: bool, **_: Any) -> Tensor:
    if ord not in (1, 2) or x.dtype.kind != "f":
        return g.converter.by_reference(g, x, ord=ord, axis=axis, keepdims=keepdims, **_)
    made = g.reduce(f"ReduceL{ord}", x, axes_of(x, axis), keepdims)
    return g.reshape(made, g.outs[0].shape) if made.ndim != len(g.outs[0].shape) else made


@rule("topk")
def topk(
    g: Graph, x: Tensor, *, axis: int | None, k: int, ret_typ: str, is_ascend: bool, dtype: str
) -> Any:
    whole = x.shape
    if axis is None:
        x, axis = g.reshape(x, (-1,)), 0
    axis %= x.ndim
    values, at = top(g, x, k if 0 < k < x.shape[axis] else x.shape[axis], axis, not is_ascend)
    if ret_typ == "mask":
        zeros = FUNCTIONS["filled"](g, x.shape, 0, "float32")
        ones = FUNCTIONS["filled"](g, at.shape, 1, "float32")
        return g.reshape(g.ScatterElements(zeros, at, ones, axis=axis), whole)
    return {"value": values, "indices": at, "both": [values, at]}[ret_typ]


@rule("sort")
def sort(g: Graph, x: Tensor, *, axis: int | None, is_ascend: bool) -> Tensor:
    x, axis = (g.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    return top(g, x, x.shape[axis], axis, not is_ascend)[0]


@rule("argsort")
def argsort(g: Graph, x: Tensor, *, axis: int | None, is_ascend: bool, **_: Any) -> Tensor:
    x, axis = (g.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    return top(g, x, x.shape[axis], axis, not is_ascend)[1]
