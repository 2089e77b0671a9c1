"""Python's and NumPy's protocols: conversion to numbers and lists, formatting, truth values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.error import InvalidType, InvalidValue
from ..kernels.spec import from_bfloat16
from . import functions
from .ndarray import NDArray


def plain(array: NDArray) -> np.ndarray:
    """The values in a dtype that NumPy supports; waits."""
    values = array.asnumpy()
    return from_bfloat16(values) if array._spec.dtype == "bfloat16" else values


def text(array: NDArray) -> str:
    """The values as NumPy prints them."""
    return str(plain(array))


def item(self: NDArray, *index: Any) -> Any:
    """One element as a Python number: of an array of one element, or x.item(3) by flat index, or
    x.item(1, 0). Waits."""
    if not index and self.size != 1:
        raise InvalidValue(
            f"item: the array must have one element, got shape {self.shape}\n  fix: x.item(0),"
            " x.item(1, 0), x.tolist()"
        )
    return plain(self).item(*index)


def tolist(self: NDArray) -> Any:
    """The values as nested lists of Python numbers; waits."""
    return plain(self).tolist()


def _one(self, what: str):
    if self.size != 1:
        raise InvalidType(
            f"{what}: only an array of one element can be converted, got shape {self.shape}"
        )
    return plain(self).reshape(-1)[0]


def __index__(self):
    value = _one(self, "index")
    if value.dtype.kind not in "iu":
        raise InvalidType(
            "index: only an integer array can be an index of Python sequences, got dtype "
            f"{self._spec.dtype}"
        )
    return int(value)


def __round__(self, ndigits=None):
    """round(x, n) of an array of one element: a Python number. nd.round(x) is elementwise."""
    return round(_one(self, "round").item(), ndigits)


def __format__(self, spec: str) -> str:
    """f"{x:.3f}" of an array of one element; without a format, of any."""
    return format(_one(self, "format").item(), spec) if spec else str(self)


def __len__(self):
    if not self.shape:
        raise InvalidType("len() of a 0-d array")
    return self.shape[0]


def __bool__(self):
    if self.size == 0:
        return False
    if self.size != 1:
        raise InvalidValue(
            "The truth value of an NDArray with multiple elements is ambiguous\n  fix: x.any(),"
            " x.all()"
        )
    return bool(self.asscalar())


def _reduction(name: str, extreme: str, doc: str):
    def method(self, axis=None, out=None, keepdims=False):
        if self.size:
            return getattr(functions, extreme)(self != 0, axis=axis, keepdims=keepdims, out=out)
        found = getattr(plain(self), name)(axis, keepdims=keepdims)
        return functions.array(found, self.context, self._spec.dtype)

    method.__name__, method.__doc__ = name, doc
    return method


any_ = _reduction("any", "max", "1 where any element along axis is not 0, else 0; self's dtype.")
all_ = _reduction("all", "min", "1 where no element along axis is 0, else 0; self's dtype.")


def _number(kind: type) -> Callable[[NDArray], Any]:
    return lambda self: kind(_one(self, kind.__name__))


for _method in (item, tolist, any_, all_, __index__, __round__, __format__, __len__, __bool__):
    setattr(NDArray, _method.__name__, _method)
for _name, _kind in {"__float__": float, "__int__": int, "__trunc__": int}.items():
    setattr(NDArray, _name, _number(_kind))
