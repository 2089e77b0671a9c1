"""What mx.np takes from NumPy as it is, or as text and indices of an array: printing, files of
text, ranges written as indices."""

from __future__ import annotations

from typing import Any

import numpy as onp

from ...engine.error import InvalidType
from ..ndarray import NDArray
from .array import operand
from .creation import arange, linspace
from .shapes import column_stack, concatenate

errstate, ndindex, s_, index_exp = onp.errstate, onp.ndindex, onp.s_, onp.index_exp
printoptions, get_printoptions = onp.printoptions, onp.get_printoptions


def _host(x: Any) -> Any:
    return x.asnumpy() if isinstance(x, NDArray) else x


def ndenumerate(arr: Any) -> Any:
    """(index, number) of each element of a copy."""
    return onp.ndenumerate(_host(arr))


def array2string(a: Any, *args: Any, **kwargs: Any) -> str:
    """An array as text; options are NumPy's."""
    return onp.array2string(_host(a), *args, **kwargs)


def array_repr(
    arr: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """An array as text that shows its dtype."""
    return onp.array_repr(_host(arr), max_line_width, precision, suppress_small)


def array_str(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The elements of an array as text."""
    return onp.array_str(_host(a), max_line_width, precision, suppress_small)


def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:
    """Writes a vector or matrix as lines of text; options are NumPy's."""
    onp.savetxt(fname, _host(X), *args, **kwargs)


def _part(key: Any) -> Any:
    """What stands in the brackets of r_ and c_, as an array. Raises TypeError for text."""
    if isinstance(key, str):
        raise InvalidType(f"np.r_, np.c_: take arrays and ranges, got the text {key!r}")
    if not isinstance(key, slice):
        x = operand(key)
        return x if x.ndim else x.reshape(1)
    start, step = key.start or 0, 1 if key.step is None else key.step
    if isinstance(step, complex):
        return linspace(start, key.stop, int(abs(step)))
    return arange(start, key.stop, step)


class _Joined:
    """np.r_[a, 0, 1:4]: arrays, numbers and ranges joined along axis 0; np.c_: as columns. A step
    5j means 5 points, both ends included."""

    def __init__(self, join: Any):
        self._join = join

    def __getitem__(self, key: Any) -> Any:
        return self._join([_part(k) for k in (key if isinstance(key, tuple) else (key,))])


r_, c_ = _Joined(concatenate), _Joined(column_stack)
__all__ = [
    *("array2string", "array_repr", "array_str", "c_", "errstate", "get_printoptions", "index_exp"),
    *("ndenumerate", "ndindex", "printoptions", "r_", "s_", "savetxt"),
]
