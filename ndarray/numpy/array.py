"""The array of mx.np: NDArray's memory, engine and tape under NumPy's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from ...engine import Context, current_context
from ...engine._array import set_np_class
from ...engine.error import InvalidType
from ...kernels.record import dtype_name
from ...kernels.spec import DType
from ..ndarray import NDArray, from_memory, seen_as


class ndarray(NDArray):  # noqa: N801 - NumPy's name
    """An array with NumPy's semantics: scalars of shape (), bool results of comparisons, mixed
    dtypes. Made by `np.array`, `np.zeros` ..., not by calling the class.

    It differs from NDArray in its methods alone. `as_nd_ndarray` gives the same memory, with the
    same gradients, as an NDArray; a call with one of these arrays among its inputs makes these.
    """

    __slots__ = ()
    # above NDArray's: an operator of both is ours
    __array_priority__ = 1001.0


set_np_class(ndarray)


def fresh(x: NDArray) -> ndarray:
    """An array that nobody else has, made one of mx.np."""
    x.__class__ = ndarray
    return x  # type: ignore[return-value]


def array(object: Any, dtype: DType | None = None, ctx: Context | None = None) -> ndarray:
    """A copy of the values of an array, a number, or nested sequences.

    dtype: default that of an array; float32 for numbers and sequences, of bools too, as in MXNet.
    Raises TypeError for what holds no numbers.
    """
    name = None if dtype is None else dtype_name(dtype)
    if isinstance(object, NDArray):
        found = object.astype(name or object._spec.dtype)
        return seen_as(ndarray, found if ctx is None else found.as_in_context(ctx))
    is_array = isinstance(object, (onp.ndarray, onp.generic))
    values = onp.asarray(_without_arrays(object))
    if values.dtype.kind not in "biufV":
        raise InvalidType(f"np.array: the values must be numbers, got NumPy dtype {values.dtype}")
    if name is None:
        name = dtype_name(values.dtype) if is_array else "float32"
    return fresh(from_memory(values, ctx or current_context(), name))


def _without_arrays(object: Any) -> Any:
    """Nested sequences whose arrays are NumPy's."""
    if isinstance(object, NDArray):
        return object.asnumpy()
    if isinstance(object, (list, tuple)):
        return [_without_arrays(x) for x in object]
    return object


def operand(x: Any) -> Any:
    """What stands where an array is meant: arrays and Symbols as they are, all else as an array."""
    if isinstance(x, NDArray) or hasattr(x, "_call_operator"):
        return x
    return array(x)


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function a method of the array, under its name."""
    setattr(ndarray, function.__name__, function)
    return function


__all__ = ["array", "ndarray"]
