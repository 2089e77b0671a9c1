"""The array of mx.np: NDArray's memory, engine and tape under NumPy's rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as onp

from ...engine import Context, current_context
from ...engine._array import set_np_class
from ...engine.error import InvalidType
from ...kernels.record import dtype_name
from ...kernels.spec import NUMPY_DTYPES, DType
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
    _element: ClassVar[tuple[int, ...]] = ()

    @property
    def dtype(self) -> onp.dtype:
        """NumPy's dtype."""
        return NUMPY_DTYPES[self._spec.dtype]


set_np_class(ndarray)


def fresh(x: NDArray) -> ndarray:
    """An array that nobody else has, made one of mx.np."""
    x.__class__ = ndarray
    return x  # type: ignore[return-value]


def array(
    object: Any,
    dtype: DType | None = None,
    ctx: Context | None = None,
    copy: bool | None = True,
    ndmin: int = 0,
) -> ndarray:
    """The values of an array, a number, or nested sequences.

    dtype: default that of an array; float32 for numbers and sequences, of bools too, as in MXNet.
    copy: False or None keeps an array of the wanted dtype and device.
    Raises TypeError for what holds no numbers.
    """
    name = None if dtype is None else dtype_name(dtype)
    if isinstance(object, NDArray):
        made = _of_array(object, name, ctx, bool(copy))
    else:
        is_array = isinstance(object, (onp.ndarray, onp.generic))
        try:
            values = onp.asarray(_without_arrays(object))
        except ValueError as error:
            raise InvalidType(f"np.array: the sequences must be regular: {error}") from None
        if values.dtype.kind not in "biufV":
            raise InvalidType(
                f"np.array: the values must be numbers, got NumPy dtype {values.dtype}"
            )
        if name is None:
            name = dtype_name(values.dtype) if is_array else "float32"
        made = fresh(from_memory(values, ctx or current_context(), name))
    if made.ndim >= ndmin:
        return made
    return seen_as(ndarray, made.reshape((1,) * (ndmin - made.ndim) + made.shape))


def _of_array(x: NDArray, name: str | None, ctx: Context | None, copy: bool) -> ndarray:
    found = seen_as(ndarray, x)
    if name not in (None, x._spec.dtype):
        found = found.astype(name)
    elif copy and ctx in (None, x.context):
        found = found.copy()
    return found if ctx is None else found.as_in_context(ctx)


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


def is_symbol(x: Any) -> bool:
    """Does a Symbol stand where an array is meant?"""
    return not isinstance(x, NDArray) and hasattr(x, "_call_operator")


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function a method of the array, under its name."""
    setattr(ndarray, function.__name__, function)
    return function


__all__ = ["array", "ndarray"]
