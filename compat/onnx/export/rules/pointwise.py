"""Pointwise operators that have an operator of ONNX's own. All others are written by their
references (arrays.py: UFUNCS)."""

from __future__ import annotations

from typing import Any

from ..graph import Graph, broadcast
from ..rule import Rule, pairs, rule, table
from ..tensors import Tensor

ONE = (
    "relu:Relu sigmoid:Sigmoid softsign:Softsign tanh:Tanh exp:Exp log:Log sqrt:Sqrt erf:Erf"
    " abs:Abs negative:Neg floor:Floor ceil:Ceil reciprocal:Reciprocal"
    " sin:Sin cos:Cos tan:Tan arcsin:Asin arccos:Acos arctan:Atan sinh:Sinh cosh:Cosh"
    " arcsinh:Asinh arccosh:Acosh arctanh:Atanh"
)
TWO = {
    "Add": "elemwise_add broadcast_add _grad_add",
    "Sub": "elemwise_sub broadcast_sub",
    "Mul": "elemwise_mul broadcast_mul",
    "Max": "_maximum broadcast_maximum",
    "Min": "_minimum broadcast_minimum",
}
SCALAR = {
    "Add": "_plus_scalar",
    "Sub": "_minus_scalar",
    "Mul": "_mul_scalar",
    "Max": "_maximum_scalar",
    "Min": "_minimum_scalar",
}
COMPARED = {
    "Equal": "_equal broadcast_equal",
    "Greater": "_greater broadcast_greater",
    "GreaterOrEqual": "_greater_equal broadcast_greater_equal",
    "Less": "_lesser broadcast_lesser",
    "LessOrEqual": "_lesser_equal broadcast_lesser_equal",
}


def _is_plain(x: Tensor) -> bool:
    """Does every operator of arithmetic take this dtype?"""
    return x.dtype.name in ("float32", "float64", "float16", "int32", "int64")


def _of_one(kind: str) -> Rule:
    def apply(g: Graph, x: Tensor, **_: Any) -> Tensor:
        if x.dtype.kind != "f":
            return g.converter.by_reference(g, x)
        return g.op(kind, x)

    return apply


for _name, _kind in pairs(ONE):
    rule(_name)(_of_one(_kind))


def _of_two(kind: str) -> Rule:
    def apply(g: Graph, x: Tensor, y: Tensor) -> Tensor:
        if not _is_plain(x) or x.dtype != y.dtype:
            return g.converter.by_reference(g, x, y)
        return g.op(kind, x, y, shape=broadcast(x.shape, y.shape))

    return apply


def _with_scalar(kind: str) -> Rule:
    def apply(g: Graph, x: Tensor, *, scalar: float, **rest: Any) -> Tensor:
        if x.dtype.kind != "f":
            return g.converter.by_reference(g, x, scalar=scalar, **rest)
        return g.op(kind, x, float(scalar))

    return apply


def _compared(kind: str) -> Rule:
    def apply(g: Graph, x: Tensor, y: Tensor) -> Tensor:
        if not _is_plain(x) or x.dtype != y.dtype:
            return g.converter.by_reference(g, x, y)
        return g.op(kind, x, y, shape=broadcast(x.shape, y.shape), dtype="bool")

    return apply


table(TWO, _of_two)
table(SCALAR, _with_scalar)
table(COMPARED, _compared)


@rule("hard_sigmoid")
def hard_sigmoid(g: Graph, x: Tensor, *, alpha: float, beta: float) -> Tensor:
    return g.HardSigmoid(x, alpha=alpha, beta=beta)


@rule("clip")
def clip(g: Graph, x: Tensor, *, a_min: float, a_max: float) -> Tensor:
    if x.dtype.kind != "f":
        return g.converter.by_reference(g, x, a_min=a_min, a_max=a_max)
    return g.Clip(x, float(a_min), float(a_max))


@rule("add_n")
def add_n(g: Graph, *xs: Tensor, **_: Any) -> Tensor:
    if xs[0].dtype.kind != "f" or any(x.dtype != xs[0].dtype for x in xs):
        return g.converter.by_reference(g, *xs, **_)
    return g.Sum(*xs) if len(xs) > 1 else xs[0]


@rule("Cast", "amp_cast")
def cast(g: Graph, x: Tensor, *, dtype: str) -> Tensor:
    target = g.outs[0].dtype
    if x.dtype.kind == "f" and target.kind == "u":  # negative ones wrap around, as in C
        x = g.cast(x, "int64")
    return g.cast(x, target)


@rule("where")
def where(g: Graph, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if condition.ndim == 1 and x.ndim > 1:  # of rows
        condition = g.unsqueeze(condition, range(1, x.ndim))
    return g.where(g.cast(condition, "bool"), x, y)
