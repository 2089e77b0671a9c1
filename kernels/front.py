"""Fronts: operators that are others under a name and with defaults of their own. All of mx.np is
made of them. See traits.Front."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine import hooks
from .record import FLOATS, Array, Operator, Type, dtype_name, operator
from .spec import ITEM_BYTES
from .traits import Front

DEFAULT = "float32"  # of what numbers, lists and integers become where floats are computed


def front(
    name: str, rule: Callable[..., Any], *, ref: Callable[..., Any], **fields: Any
) -> Operator:
    """Registers a front. The types of its outputs are those of what it stands for.

    rule: (F, *inputs, **attrs) -> output, or list of outputs; F has all operators, other fronts
        too. Inputs have .shape and .dtype (a name), and Python's operators on equal dtypes.
    ref: as of any operator, in NumPy: what tests compare the rule with.
    """

    def infer(ins: list[Type], **attrs: Any) -> list[Type]:
        return hooks.get("types of a front")(found, ins, attrs)

    traits = (Front(rule), *fields.pop("traits", ()))
    found = operator(name, infer=infer, ref=ref, traits=traits, **fields)
    return found


# ---- dtypes --------------------------------------------------------------------------------------


def dtype_of(x: Array) -> str:
    """The name of an array's or value's dtype."""
    return dtype_name(x.dtype)


@functools.cache
def promoted(*dtypes: str) -> str:
    """The dtype of a result of several dtypes: of integers as in NumPy, of a float and integers
    that float, of floats the widest (float16 and bfloat16: float32)."""
    floats = {d for d in dtypes if d in FLOATS}
    if floats:
        if len(floats) > 1 and floats <= {"float16", "bfloat16"}:
            return "float32"
        return max(floats, key=lambda d: ITEM_BYTES[d])
    found = str(np.result_type(*dtypes))
    return DEFAULT if found == "float64" else found  # uint64 and int64


def floating(dtype: str) -> str:
    """A float dtype stays, whole numbers become float32."""
    return dtype if dtype in FLOATS else DEFAULT


def cast(F: Any, x: Array, dtype: str) -> Array:
    """x in a dtype, itself if it has that."""
    return x if dtype_of(x) == dtype else F.Cast(x, dtype=dtype)


def alike(F: Any, *xs: Array, least: str = "") -> list[Array]:
    """Operands in their common dtype. least: a dtype that takes part."""
    dtype = promoted(*[dtype_of(x) for x in xs], *([least] if least else []))
    return [cast(F, x, dtype) for x in xs]


def as_float(F: Any, x: Array) -> Array:
    """x in a float dtype."""
    return cast(F, x, floating(dtype_of(x)))


# ---- shapes --------------------------------------------------------------------------------------


def reshaped(F: Any, x: Array, shape: tuple[int, ...]) -> Array:
    """x under a shape of as many elements."""
    return x if tuple(x.shape) == tuple(shape) else F.reshape_to(x, shape=tuple(shape))


def broadcast(F: Any, x: Array, shape: tuple[int, ...]) -> Array:
    """x under NumPy's broadcasting to a shape."""
    if tuple(x.shape) == tuple(shape):
        return x
    x = reshaped(F, x, (1,) * (len(shape) - len(x.shape)) + tuple(x.shape))
    if 0 not in shape:
        return F.broadcast_to(x, shape=tuple(shape))
    for i, n in enumerate(shape):  # broadcast_to reads 0 as "keep"
        if n == 0 and x.shape[i]:
            x = F.slice_axis(x, axis=i, begin=0, end=0)
    return reshaped(F, x, tuple(shape))
