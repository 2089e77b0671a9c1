"""Reductions as NumPy has them: over all axes to shape (), of bools and small integers as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...front import cast, dtype_of, floating, front
from ...record import Array, Param, sample

AXIS, KEEPDIMS = Param("axis", "shape?", None), Param("keepdims", "bool", False)
DTYPE, INITIAL = Param("dtype", "dtype?", None), Param("initial", "float?", None)


def reduced(F: Any, name: str, x: Array, axis: Any, keepdims: bool) -> Array:
    """A reduction of nd, whose result has NumPy's shape. axis: () reduces nothing."""
    if axis == ():
        return getattr(F, name)(x, axis=tuple(range(len(x.shape))), exclude=True)
    return getattr(F, name)(x, axis=axis, keepdims=keepdims, to_scalar=True)


def _accumulates(name: str, of: str, ref: Callable, merge: str) -> None:
    def rule(F: Any, a: Array, axis: Any, dtype: str | None, keepdims: bool, initial: float | None):
        given = dtype_of(a)
        x = cast(F, a, dtype or ("int64" if given == "bool" else given))
        y = reduced(F, of, x, axis, keepdims)
        return y if initial is None else getattr(F, merge)(y, scalar=initial)

    def numpy(xp: Any, a: Array, axis: Any, dtype: Any, keepdims: bool, initial: Any) -> Any:
        kind = dtype or ("int64" if a.dtype == bool else a.dtype)
        start = {} if initial is None else {"initial": initial}
        return ref(a, axis=axis, dtype=kind, keepdims=keepdims, **start)

    front(
        name,
        rule,
        inputs=("a",),
        params=(AXIS, DTYPE, KEEPDIMS, INITIAL),
        ref=numpy,
        samples=(
            sample((2, 3)),
            sample((2, 3, 4), axis=(0, 2), keepdims=True),
            sample((2, 3), axis=1, initial=2.0),
        ),
        doc=f"The {of} over axes (None: all). Of bools an int64; else of the dtype of a, or dtype.",
    )


_accumulates("_np_sum", "sum", np.sum, "_plus_scalar")
_accumulates("_np_prod", "prod", np.prod, "_mul_scalar")


def _mean(F: Any, a: Array, axis: Any, dtype: str | None, keepdims: bool, initial: Any) -> Array:
    return reduced(F, "mean", cast(F, a, dtype or floating(dtype_of(a))), axis, keepdims)


front(
    "_npi_mean",
    _mean,
    inputs=("a",),
    params=(AXIS, DTYPE, KEEPDIMS, INITIAL),
    ref=lambda xp, a, axis, dtype, keepdims, initial: np.mean(a, axis=axis, keepdims=keepdims),
    samples=(sample((2, 3)), sample((2, 3, 4), axis=(0, 2), keepdims=True), sample((2, 3), axis=1)),
    doc="The mean over axes (None: all); of whole numbers a float32.",
)
