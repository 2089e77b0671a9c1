"""Creation functions of nd: array, zeros, ones, full, empty, arange, linspace, eye and their kin."""
from __future__ import annotations

import numpy as np

from ..engine import current_context
from ..engine.error import MXNetError
from ..kernels.record import dtype_name, lookup
from ..kernels.spec import NUMPY_DTYPES, spec
from .ndarray import NDArray, empty_like_spec, from_memory
from .invoke import invoke

__all__ = ["array", "zeros", "ones", "full", "empty", "arange", "linspace", "eye", "waitall"]


def array(source_array, ctx=None, dtype=None) -> NDArray:
    """An NDArray with a copy of the values of anything NumPy understands.

    dtype: default float32; the source's own when it is an NDArray.
    """
    if isinstance(source_array, NDArray):
        name = dtype_name(dtype) if dtype is not None else source_array._spec.dtype
        return from_memory(source_array.asnumpy(), ctx or source_array.context, name)
    try:
        values = np.asarray(source_array)
        if values.dtype == object:
            values = np.asarray([v.asnumpy() if isinstance(v, NDArray) else v for v in source_array])
    except ValueError as error:
        raise TypeError(f"array: the source must be an array or a regular nesting of sequences: {error}") from None
    if values.dtype.kind not in "biufV":
        raise TypeError(f"array: the source must hold numbers, got NumPy dtype {values.dtype}")
    return from_memory(values, ctx, dtype_name(dtype) if dtype is not None else "float32")


def _shape(shape) -> tuple[int, ...]:
    return (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)


def empty(shape, ctx=None, dtype=None) -> NDArray:
    """Uninitialised memory."""
    return empty_like_spec(spec(_shape(shape), dtype_name(dtype or "float32"), ctx or current_context()))


def zeros(shape, ctx=None, dtype=None, out=None, stype=None, **_) -> NDArray:
    """Zeros of a shape."""
    return invoke(lookup("_zeros"), (), {"shape": _shape(shape), "dtype": dtype_name(dtype or "float32")}, out, ctx)


def ones(shape, ctx=None, dtype=None, out=None, **_) -> NDArray:
    """Ones of a shape."""
    return invoke(lookup("_ones"), (), {"shape": _shape(shape), "dtype": dtype_name(dtype or "float32")}, out, ctx)


def full(shape, val, ctx=None, dtype="float32", out=None) -> NDArray:
    """`val` in every place."""
    return invoke(lookup("_full"), (), {"shape": _shape(shape), "value": float(val),
                                        "dtype": dtype_name(dtype or "float32")}, out, ctx)


def arange(start, stop=None, step=1.0, repeat=1, infer_range=None, ctx=None, dtype="float32") -> NDArray:
    """start, start + step, ... below stop (start counts from 0 when stop is None), each `repeat` times."""
    if infer_range is not None:
        raise MXNetError("arange: infer_range is only for symbols")
    return invoke(lookup("_arange"), (), {"start": start, "stop": stop, "step": step, "repeat": repeat,
                                          "dtype": dtype_name(dtype or "float32")}, None, ctx)


def linspace(start, stop, num, endpoint=True, ctx=None, dtype="float32") -> NDArray:
    """`num` evenly spaced numbers from start to stop."""
    return invoke(lookup("_linspace"), (), {"start": start, "stop": stop, "num": num, "endpoint": endpoint,
                                            "dtype": dtype_name(dtype or "float32")}, None, ctx)


def eye(N, M=0, k=0, ctx=None, dtype="float32") -> NDArray:
    """Ones on diagonal k of an (N, M) array (M = 0: N), zeros elsewhere."""
    return invoke(lookup("_eye"), (), {"N": N, "M": M, "k": k, "dtype": dtype_name(dtype or "float32")}, None, ctx)


def waitall() -> None:
    """Waits for every operation. Raises errors of operations that nobody was told yet."""
    from ..engine import waitall as wait_for_all
    wait_for_all()
