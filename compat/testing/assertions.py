"""Assertions on arrays: equal, or almost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ndarray.ndarray import NDArray
from .compare import get_etol
from .tolerance import get_tols


def as_numpy(x: Any) -> np.ndarray:
    """An NDArray, or anything NumPy takes, as a NumPy array."""
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)


def same(a: Any, b: Any) -> bool:
    """Are two arrays equal in every element?"""
    return bool(np.array_equal(as_numpy(a), as_numpy(b)))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Do two arrays share their memory? Writes to one and reads the other."""
    array1[:] += 1
    if not same(array1, array2):
        array1[:] -= 1
        return False
    array1[:] -= 1
    return same(array1, array2)


def almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """|a - b| <= atol + rtol * |b| everywhere?"""
    a, b = as_numpy(a), as_numpy(b)
    rtol, atol = get_tols(a, b, rtol, atol)
    if not use_broadcast and a.shape != b.shape:
        return False
    return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol, atol, equal_nan))


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    names: Any = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: Sequence[int] = (10, 10),
) -> None:
    """Raises AssertionError with the worst elements unless |a - b| <= atol + rtol * |b|
    everywhere."""
    a, b = as_numpy(a), as_numpy(b)
    if almost_equal(a, b, rtol, atol, equal_nan, use_broadcast):
        return
    rtol, atol = get_tols(a, b, rtol, atol)
    if a.shape != b.shape and not use_broadcast:
        raise AssertionError(f"shapes differ: {names[0]} {a.shape} and {names[1]} {b.shape}")
    x, y = np.broadcast_arrays(a.astype(np.float64), b.astype(np.float64))
    with np.errstate(all="ignore"):
        excess = np.abs(x - y) / (atol + rtol * np.abs(y) + 1e-300)
    excess = np.where(
        np.isnan(excess), np.where(np.isnan(x) & np.isnan(y) & equal_nan, 0, np.inf), excess
    )
    bad = np.argwhere(excess > 1)
    lines = [f"{len(bad)} of {x.size} elements differ by more than rtol {rtol} and atol {atol}"]
    for place in sorted(map(tuple, bad), key=lambda p: -excess[p])[: mismatches[0]]:
        lines.append(
            f"  {tuple(int(i) for i in place)}: {names[0]} {x[place]:.8g}  {names[1]}"
            f" {y[place]:.8g}"
        )
    raise AssertionError("\n".join(lines))


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Any = None,
    atol: Any = None,
    etol: Any = None,
    names: Any = ("a", "b"),
    equal_nan: bool = False,
    mismatches: Sequence[int] = (10, 10),
) -> None:
    """Like assert_almost_equal, but a fraction `etol` of the elements may differ."""
    a, b = as_numpy(a), as_numpy(b)
    rtol, atol = get_tols(a, b, rtol, atol)
    close = np.isclose(a, b, rtol, atol, equal_nan)
    if 1 - close.mean() > get_etol(etol):
        assert_almost_equal(a, b, rtol, atol, names, equal_nan, mismatches=mismatches)


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Any = None, atol: Any = None) -> None:
    """assert_almost_equal for nested tuples of arrays; None equals anything."""
    if t1 is None or t2 is None:
        return
    if not isinstance(t1, tuple):
        assert_almost_equal(t1, t2, rtol, atol)
        return
    for a, b in zip(t1, t2):
        compare_ndarray_tuple(a, b, rtol, atol)


def assert_allclose(
    a: Any, b: Any, rtol: float = 1e-07, atol: int = 0, equal_nan: bool = True
) -> None:
    """Like assert_almost_equal, with NumPy's tolerances."""
    assert_almost_equal(a, b, rtol, atol, equal_nan=equal_nan)


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Any = None, atol: Any = None, names: Any = ("a", "b")
) -> None:
    """Like assert_almost_equal where neither array is NaN."""
    a, b = as_numpy(a).copy(), as_numpy(b).copy()
    nan = np.isnan(a) | np.isnan(b)
    a[nan] = b[nan] = 0
    assert_almost_equal(a, b, rtol, atol, names)


def assert_exception(f: Any, exception_type: Any, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError unless f(*args, **kwargs) raises exception_type."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type.__name__}")
