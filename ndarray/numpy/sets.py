"""Sets, places in sorted arrays, equality of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as onp

from ...engine.error import InvalidType
from ...kernels.record import REGISTRY
from .array import operand
from .shapes import call


# ---- sets ----------------------------------------------------------------------------------------
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    **kwargs: Any,
) -> Any:
    """The values that occur, sorted; with flags also where each is first, which each element is,
    and how many there are, as a tuple."""
    flags = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
    }
    made = call("_npi_unique", ar, axis=axis, **flags)
    return tuple(made) if isinstance(made, list) else made


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, **_: Any
) -> Any:
    """Where elements are among test_elements."""
    return call("_npi_isin", element, test_elements, invert=invert)


def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Where elements of the flat ar1 are among ar2."""
    return isin(operand(ar1).reshape((-1,)), ar2, assume_unique, invert)


def _of_sets(name: str) -> Callable[..., Any]:
    def function(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
        return call(f"_npi_{name}", ar1, ar2)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = REGISTRY[f"_npi_{name}"].doc
    return function


setdiff1d, setxor1d, union1d = _of_sets("setdiff1d"), _of_sets("setxor1d"), _of_sets("union1d")


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """What is in both, sorted. return_indices: also where each is first in ar1 and in ar2."""
    both = call("_npi_intersect1d", ar1, ar2)
    if not return_indices:
        return both
    places = []
    for x in (ar1, ar2):
        values, first = unique(x, return_index=True)
        places.append(call("_npi_take", first, call("_npi_searchsorted", values, both), axis=0))
    return (both, *places)


# ---- order ---------------------------------------------------------------------------------------
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where elements of v belong in the sorted vector a; sorter: the positions that sort a."""
    a = a if sorter is None else call("_npi_take", a, sorter, axis=0)
    return call("_npi_searchsorted", a, v, side=side)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The positions that sort by the last key, equal ones by the one before it, and so on."""
    keys = [operand(k) for k in keys]
    if not keys:
        raise InvalidType("np.lexsort: needs at least one key")
    order = call("_npi_argsort", keys[0], axis=axis)
    for key in keys[1:]:
        found = call("_npi_argsort", call("_npi_take_along_axis", key, order, axis=axis), axis=axis)
        order = call("_npi_take_along_axis", order, found, axis=axis)
    return order


# ---- equality ------------------------------------------------------------------------------------
def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Are all elements equal within atol + rtol * |b|?"""
    close = call("_npi_isclose", a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return bool(call("_np_all", close))


SOON = 1 << 18  # elements that NumPy compares before a thread of the engine answers


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Have both one shape and equal elements?"""
    a1, a2 = operand(a1), operand(a2)
    if a1.shape != a2.shape:
        return False
    if not equal_nan and a1._spec is a2._spec and a1._spec.device.on_host:
        if a1.size < SOON and a1._spec.dtype != "bfloat16":
            return onp.array_equal(a1._values(), a2._values())
        return bool(call("_same", a1, a2))
    same = call("_npi_equal", a1, a2)
    if equal_nan:
        same = same | (call("_npi_isnan", a1) & call("_npi_isnan", a2))
    return bool(call("_np_all", same))


def array_equiv(a1: Any, a2: Any) -> bool:
    """Do both broadcast, to equal elements?"""
    a1, a2 = operand(a1), operand(a2)
    try:
        onp.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return False
    return bool(call("_np_all", call("_npi_equal", a1, a2)))


# ---- names of the array API standard -------------------------------------------------------------
class UniqueAll(NamedTuple):
    """values: sorted. indices: where each is first. inverse_indices: which each element is.
    counts: how many there are."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """values: sorted. counts: how many there are of each."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """values: sorted. inverse_indices: which each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any) -> UniqueAll:
    """The values that occur, where each is first, which each element is, how many there are."""
    return UniqueAll(*unique(x, True, True, True))


def unique_counts(x: Any) -> UniqueCounts:
    """The values that occur, and how many there are of each."""
    return UniqueCounts(*unique(x, return_counts=True))


def unique_inverse(x: Any) -> UniqueInverse:
    """The values that occur, and which each element is."""
    return UniqueInverse(*unique(x, return_inverse=True))


def unique_values(x: Any) -> Any:
    """The values that occur, sorted."""
    return unique(x)


__all__ = [
    *("unique", "isin", "in1d", "setdiff1d", "setxor1d", "union1d", "intersect1d"),
    *("searchsorted", "lexsort", "allclose", "array_equal", "array_equiv"),
    *("unique_all", "unique_counts", "unique_inverse", "unique_values"),
]
