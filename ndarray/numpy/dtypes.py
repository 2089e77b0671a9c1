"""Constants and dtypes of mx.np: NumPy's own."""

from __future__ import annotations

from typing import Any

import numpy as onp

from ...kernels.front import promoted
from ...kernels.record import DTYPES, dtype_name
from ..ndarray import NDArray

pi, e, euler_gamma = onp.pi, onp.e, onp.euler_gamma
inf = Inf = Infinity = infty = PINF = onp.inf
NINF = -onp.inf
nan = NaN = NAN = onp.nan
PZERO, NZERO = 0.0, -0.0
newaxis = None

bool = bool_ = onp.bool_
int8, int16, int32, int64 = onp.int8, onp.int16, onp.int32, onp.int64
uint8, uint16, uint32, uint64 = onp.uint8, onp.uint16, onp.uint32, onp.uint64
float16, float32, float64 = onp.float16, onp.float32, onp.float64
half, single, double = onp.half, onp.single, onp.double
intp, byte, ubyte, short, ushort = onp.intp, onp.byte, onp.ubyte, onp.short, onp.ushort
generic, number, integer, floating = onp.generic, onp.number, onp.integer, onp.floating
signedinteger, unsignedinteger, inexact = onp.signedinteger, onp.unsignedinteger, onp.inexact
bfloat16 = "bfloat16"  # NumPy has none; every dtype= takes the name
dtype = onp.dtype
finfo, iinfo = onp.finfo, onp.iinfo
issubdtype, promote_types = onp.issubdtype, onp.promote_types


def _dtype_of(x: Any) -> Any:
    """What NumPy's functions on dtypes take: arrays give theirs."""
    return x.dtype if isinstance(x, NDArray) else x


def result_type(*arrays_and_dtypes: Any) -> onp.dtype:
    """The dtype in which arrays, and dtypes, meet: that of np.add. Numbers lift it as they lift an
    array's."""
    kinds = [_dtype_of(x) for x in arrays_and_dtypes]
    names = [dtype_name(k) for k in kinds if not isinstance(k, (int, float))]
    names += ["float32" for k in kinds if isinstance(k, float)]
    if not names or any(n not in DTYPES for n in names):
        return onp.result_type(*kinds)
    return onp.dtype(promoted(*names))


def min_scalar_type(a: Any) -> onp.dtype:
    """The smallest dtype of NumPy that holds a number; of an array, its own."""
    return onp.min_scalar_type(a.asnumpy() if isinstance(a, NDArray) else a)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> Any:
    """Does NumPy's rule of that name allow the conversion?"""
    return onp.can_cast(_dtype_of(from_), _dtype_of(to), casting=casting)  # type: ignore[arg-type]


def isdtype(dtype: Any, kind: Any) -> Any:
    """Is it a dtype of a kind: "bool", "integral", "real floating" ...?"""
    return onp.isdtype(onp.dtype(dtype), kind)


__all__ = [
    n
    for n in globals()
    if n[0] != "_"
    and n not in ("annotations", "Any", "onp", "promoted", "DTYPES", "dtype_name", "NDArray")
]
