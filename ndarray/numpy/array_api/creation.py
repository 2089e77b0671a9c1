"""Arrays from numbers, other arrays and nothing: creation functions of the array API standard.

What one number fills is filled by the engine; other values are made by NumPy on the host, which is
exact in every dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ....engine import Context, current_context
from ....engine.error import InvalidType, InvalidValue
from ....kernels.record import lookup
from ....kernels.spec import DType
from ...invoke import invoke
from ...ndarray import NDArray, from_memory, seen_as
from ..array import fresh, ndarray
from ..dlpack import from_dlpack
from .dtypes import FLOAT, INTEGER, name_of

Shape = int | Sequence[int]
EXACT = 2**53  # whole numbers up to here are doubles, which is how fills get theirs


def on_device(values: Any, dtype: str, device: Context | None) -> ndarray:
    """NumPy's values as an array."""
    return fresh(from_memory(onp.asarray(values), device or current_context(), dtype))


def default_dtype(value: Any) -> str:
    """The dtype of Python numbers; of NumPy's arrays and numbers their own."""
    if isinstance(value, (onp.ndarray, onp.generic)):
        return name_of(value.dtype)
    kind = onp.asarray(value).dtype.kind
    if kind not in "biuf":
        raise InvalidType(
            f"array API: values must be bools, ints or floats, got {value!r}\n"
            "  fix: plait has no complex dtypes"
        )
    return {"b": "bool", "f": FLOAT, "u": "uint64"}.get(kind, INTEGER)


def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | None = None,
    device: Context | None = None,
    copy: bool | None = None,
) -> ndarray:
    """An array of a number, nested sequences, or another array. copy: True copies; False never
    does, and raises ValueError where it had to; None copies what is not a plait array already.

    dtype: default bool, int64 and float32 for Python's numbers, else that of the array.
    """
    name = None if dtype is None else name_of(dtype)
    if not isinstance(obj, (NDArray, onp.ndarray)) and hasattr(obj, "__dlpack__"):
        obj = from_dlpack(obj, copy=False if copy is False else None)
    if isinstance(obj, NDArray):
        same = name in (None, obj._spec.dtype) and device in (None, obj.context)
        if same and not copy:
            return seen_as(ndarray, obj)
        if copy is False:
            raise InvalidValue("asarray: copy=False cannot change dtype or device")
        moved = obj if device is None else obj.as_in_context(device)
        return seen_as(ndarray, moved.astype(name or obj._spec.dtype))
    if copy is False:
        if isinstance(obj, onp.ndarray) and name in (None, name_of(obj.dtype)):
            return from_dlpack(obj, device=device, copy=False)
        raise InvalidValue(f"asarray: copy=False needs an array, got {type(obj).__name__}")
    values = _values(obj)
    return on_device(values, name or default_dtype(values), device)


def _values(obj: Any) -> Any:
    """Nested sequences whose arrays are numbers."""
    if isinstance(obj, NDArray):
        return obj.asnumpy() if obj.shape else obj.item()
    if isinstance(obj, (list, tuple)):
        return [_values(x) for x in obj]
    return obj


def full(
    shape: Shape, fill_value: Any, *, dtype: DType | None = None, device: Context | None = None
) -> ndarray:
    """One number in every element; dtype: default that of the number."""
    name = default_dtype(fill_value) if dtype is None else name_of(dtype)
    if isinstance(fill_value, int) and abs(fill_value) > EXACT:
        return on_device(onp.full(shape, fill_value, name), name, device)
    attrs = {"shape": shape, "dtype": name, "value": float(fill_value)}
    return fresh(invoke(lookup("_full"), (), attrs, None, device))


def _filled(name: str, value: int) -> tuple[Callable[..., ndarray], Callable[..., ndarray]]:
    def of_shape(
        shape: Shape, *, dtype: DType | None = None, device: Context | None = None
    ) -> ndarray:
        return full(shape, value, dtype=dtype or FLOAT, device=device)

    def like(
        x: ndarray, /, *, dtype: DType | None = None, device: Context | None = None
    ) -> ndarray:
        return full(x.shape, value, dtype=dtype or name_of(x), device=device or x.context)

    of_shape.__name__ = of_shape.__qualname__ = name
    like.__name__ = like.__qualname__ = f"{name}_like"
    of_shape.__doc__ = f"{value} in every element; float32 by default."
    like.__doc__ = f"{value} in every element of an array like x."
    return of_shape, like


zeros, zeros_like = _filled("zeros", 0)
ones, ones_like = _filled("ones", 1)
empty, empty_like = _filled("empty", 0)


def full_like(
    x: ndarray,
    /,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Context | None = None,
) -> ndarray:
    """One number in every element of an array like x."""
    return full(x.shape, fill_value, dtype=dtype or name_of(x), device=device or x.context)


def arange(
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: Context | None = None,
) -> ndarray:
    """Numbers from start (0 if only one is given) to stop by step."""
    start, stop = (0, start) if stop is None else (start, stop)
    whole = all(isinstance(n, int) for n in (start, stop, step))
    name = (INTEGER if whole else FLOAT) if dtype is None else name_of(dtype)
    return on_device(onp.arange(start, stop, step), name, device)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Context | None = None,
    endpoint: bool = True,
) -> ndarray:
    """num numbers from start to stop."""
    name = FLOAT if dtype is None else name_of(dtype)
    return on_device(onp.linspace(start, stop, num, endpoint=endpoint), name, device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Context | None = None,
) -> ndarray:
    """Ones on diagonal k, zeros elsewhere."""
    name = FLOAT if dtype is None else name_of(dtype)
    return on_device(onp.eye(n_rows, n_cols, k=k, dtype=name), name, device)


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, ones),
    *(ones_like, zeros, zeros_like),
)
