"""Dense layers with weights of 8 bits: a quarter of the memory that a decoder reads for each
token."""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine.error import DTypeError, ShapeError
from ..record import Param, Type, Types, operator, sample, values
from ..shapes import same_dtype

NAME = "_contrib_int8_dense"


def rows_of(x: Type, flatten: bool) -> tuple[tuple[int, ...], int]:
    """(the shape of the rows, the elements of each) of data."""
    if not x.shape:
        raise ShapeError(NAME, "data must have at least 1 dimension, got ()")
    return (x.shape[:1], prod(x.shape[1:])) if flatten else (x.shape[:-1], x.shape[-1])


def _infer(ins: Types, num_hidden: int, no_bias: bool, flatten: bool) -> list[Type]:
    x, w, scale, *bias = ins
    rows, k = rows_of(x, flatten)
    if w.dtype != "int8":
        raise DTypeError(NAME, f"weight must be int8, got {w.dtype}")
    if w.shape != (num_hidden, k):
        raise ShapeError(
            NAME,
            f"weight must have shape (num_hidden, inputs) = {(num_hidden, k)}, got data {x.shape}"
            f" and weight {w.shape}",
        )
    for name, t in zip(("scale", "bias"), (scale, *bias)):
        if t.shape != (num_hidden,):
            raise ShapeError(NAME, f"{name} must have shape ({num_hidden},), got {t.shape}")
    same = same_dtype(NAME, [x, scale, *bias], ("data", "scale", "bias"))
    return [Type((*rows, num_hidden), same)]


def _ref(xp, x, w, scale, bias=None, *, num_hidden, no_bias, flatten):
    x = x.reshape(x.shape[0], prod(x.shape[1:])) if flatten else x
    y = x @ w.astype(x.dtype).T * scale
    return y if no_bias else y + bias


def _fill(ins, num_hidden, no_bias, flatten):
    x, made = ins[0], list(ins)
    if x is not None:
        made[1] = made[1] or Type((num_hidden, rows_of(x, flatten)[1]), "int8")
        made[2:] = [t or Type((num_hidden,), x.dtype) for t in made[2:]]
    return made


def _grad(
    F: Any, dys: Any, xs: Any, ys: Any, num_hidden: int, no_bias: bool, flatten: bool
) -> list:
    x, w, scale = xs[:3]
    rows = prod(dys[0].shape[:-1])
    dy = F.reshape_to(dys[0], shape=(rows, num_hidden))
    x2 = F.reshape_to(x, shape=(rows, w.shape[1]))
    floats = F.cast(w, dtype=x.dtype)
    dx = F.dot(F.broadcast_mul(dy, F.reshape_to(scale, shape=(1, num_hidden))), floats)
    dscale = F.sum(dy * F.dot(x2, floats, transpose_b=True), axis=0)
    bias = [] if no_bias else [F.sum(dy, axis=0)]
    return [F.reshape_to(dx, shape=x.shape), None, dscale, *bias]


_WEIGHT = values([[1, -2, 3, 127], [-127, 0, 5, 9], [7, 7, -100, 64]], "int8")

operator(
    NAME,
    inputs=("data", "weight", "scale", "bias"),
    input_names=lambda no_bias, **_: ("data", "weight", "scale", *(() if no_bias else ("bias",))),
    params=(
        Param("num_hidden", "int"),
        Param("no_bias", "bool", False),
        Param("flatten", "bool", True),
    ),
    infer=_infer,
    fill=_fill,
    ref=_ref,
    grad=_grad,
    samples=(
        sample((2, 4), _WEIGHT, (3,), (3,), num_hidden=3),
        sample((3, 2, 2), _WEIGHT, (3,), num_hidden=3, no_bias=True),
        sample((2, 5, 4), _WEIGHT, (3,), (3,), num_hidden=3, flatten=False),
    ),
    doc=(
        "x . (weight * scale)^T + bias, computed in the dtype of data. weight (num_hidden, inputs)"
        " int8, scale (num_hidden,): of each row of the weight; bias (num_hidden,)."
    ),
)
