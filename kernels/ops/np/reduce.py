"""Reductions and scans as NumPy has them: over all axes to shape (), of bools as numbers, of whole
numbers as they are; means and moments of whole numbers are float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import as_float, cast, dtype_of, floating, front, promoted, reshaped
from ...record import FLOATS, Array, Param, Sample, sample, uniform, values
from ...shapes import many_axes, one_axis
from ..reduce import reduced_shape

AXIS, KEEPDIMS = Param("axis", "shape?", None), Param("keepdims", "bool", False)
DTYPE, INITIAL = Param("dtype", "dtype?", None), Param("initial", "float?", None)
DDOF = Param("ddof", "float", 0.0)
NAN = float("nan")
USUAL = (
    sample((2, 3)),
    sample((2, 3, 4), axis=(0, 2), keepdims=True),
    sample((2, 3), axis=-1),
    sample((2, 3), axis=()),
)
WITH_NAN = (
    sample((2, 3)),
    sample((2, 3, 4), axis=(0, 2), keepdims=True),
    sample(values([[1.0, NAN, 3.0], [NAN, 4.5, 2.0]]), axis=1),
    sample(values([[1.0, NAN], [2.0, NAN]]), axis=0),
)


def axes_of(axis: Any, n_axes: int) -> tuple[int, ...]:
    """The axes that a reduction is over. axis: () is none."""
    return () if axis == () else tuple(many_axes("np", axis, n_axes))


def reduced(F: Any, name: str, x: Array, axis: Any, keepdims: bool, **more: Any) -> Array:
    """A reduction of nd, whose result has NumPy's shape."""
    if axis == ():
        return getattr(F, name)(x, axis=tuple(range(len(x.shape))), exclude=True, **more)
    return getattr(F, name)(x, axis=axis, keepdims=keepdims, to_scalar=True, **more)


def counted(x: Array, axis: Any) -> int:
    """How many elements make one result."""
    return prod([x.shape[a] for a in axes_of(axis, len(x.shape))])


def is_number(F: Any, x: Array) -> Array:
    """1 where x is not NaN, in x's dtype."""
    return F.broadcast_equal(x, x)


def full_like(F: Any, x: Array, value: float) -> Array:
    return F._full(shape=tuple(x.shape), dtype=dtype_of(x), value=value)


def without_nan(F: Any, x: Array, value: float) -> Array:
    """x with a number for NaN."""
    return F.where(is_number(F, x), x, full_like(F, x, value)) if dtype_of(x) in FLOATS else x


def _given(**options: Any) -> dict[str, Any]:
    """Options of a NumPy function that are given."""
    return {k: v for k, v in options.items() if v is not None}


# ---- sums and products ---------------------------------------------------------------------------
def _accumulates(name: str, of: str, ref: Callable, merge: str, aliases: tuple = ()) -> None:
    def rule(F: Any, a: Array, axis: Any, dtype: str | None, keepdims: bool, initial: float | None):
        given = dtype_of(a)
        dtype = dtype or ("int64" if given == "bool" else given)
        if {given, dtype}.isdisjoint(FLOATS) and given != dtype and axis != ():
            y = reduced(F, of, a, axis, keepdims, dtype=dtype)
        else:
            y = reduced(F, of, cast(F, a, dtype), axis, keepdims)
        return y if initial is None else getattr(F, merge)(y, scalar=initial)

    def numpy(xp: Any, a: Array, axis: Any, dtype: Any, keepdims: bool, initial: Any) -> Any:
        kind = dtype or ("int64" if a.dtype == bool else a.dtype)
        return ref(a, axis=axis, dtype=kind, keepdims=keepdims, **_given(initial=initial))

    nan = "nan" in name
    front(
        name,
        rule,
        inputs=("a",),
        params=(AXIS, DTYPE, KEEPDIMS, INITIAL),
        aliases=aliases,
        ref=numpy,
        samples=(*(WITH_NAN if nan else USUAL), sample((2, 3), axis=1, initial=2.0)),
        doc=f"The {of} over axes (None: all). Of bools an int64; else of the dtype of a, or dtype."
        + " NaN is left out." * nan,
    )


_accumulates("_np_sum", "sum", np.sum, "_plus_scalar")
_accumulates("_np_prod", "prod", np.prod, "_mul_scalar", ("_np_product",))
_accumulates("_npi_nansum", "nansum", np.nansum, "_plus_scalar")
_accumulates("_npi_nanprod", "nanprod", np.nanprod, "_mul_scalar")


def _count(F: Any, a: Array, axis: Any, keepdims: bool) -> Array:
    return F._np_sum(cast(F, a, "bool"), axis=axis, keepdims=keepdims)


front(
    "_npi_count_nonzero",
    _count,
    inputs=("a",),
    params=(AXIS, KEEPDIMS),
    ref=lambda xp, a, axis, keepdims: np.sum(a != 0, axis=axis, keepdims=keepdims, dtype=np.int64),
    samples=(sample(values([[0, 1, 2], [0, 0, NAN]])), *USUAL),
    doc="How many elements over axes are not 0, int64.",
)


# ---- extremes ------------------------------------------------------------------------------------
def _extreme(name: str, of: str, ref: Callable, aliases: tuple[str, ...]) -> None:
    def rule(F: Any, a: Array, axis: Any, keepdims: bool, initial: float | None) -> Array:
        if not counted(a, axis):
            if initial is None:
                raise ShapeError(
                    f"np.{of}",
                    f"the reduced axes must not be empty, got shape {tuple(a.shape)} and axis "
                    f"{axis}",
                    fix="give initial=",
                )
            shape = reduced_shape(tuple(a.shape), axes_of(axis, len(a.shape)), keepdims, True)
            return F._full(shape=shape, dtype=dtype_of(a), value=initial)
        y = reduced(F, of, a, axis, keepdims)
        if initial is not None:
            y = getattr(F, f"_{of}imum_scalar")(y, scalar=initial)
        return cast(F, y, dtype_of(a))

    front(
        name,
        rule,
        inputs=("a",),
        params=(AXIS, KEEPDIMS, INITIAL),
        aliases=aliases,
        ref=lambda xp, a, axis, keepdims, initial: ref(
            a, axis=axis, keepdims=keepdims, **_given(initial=initial)
        ),
        samples=(*USUAL, sample((2, 3), axis=1, initial=1.0)),
        doc=f"The {of}imum over axes (None: all); NaN if there is one. initial: of no elements.",
    )


_extreme("_np_max", "max", np.max, ("_np_amax",))
_extreme("_np_min", "min", np.min, ("_np_amin",))


def _nan_extreme(name: str, of: str, ref: Callable, least: float) -> None:
    def rule(F: Any, a: Array, axis: Any, keepdims: bool, initial: float | None) -> Array:
        plain = getattr(F, f"_np_{of}")
        if dtype_of(a) not in FLOATS:
            return plain(a, axis=axis, keepdims=keepdims, initial=initial)
        number = is_number(F, a)
        y = plain(without_nan(F, a, least), axis=axis, keepdims=keepdims, initial=initial)
        if initial is not None:
            return y
        some = reduced(F, "max", number, axis, keepdims)
        return F.where(some, y, full_like(F, y, NAN))

    front(
        name,
        rule,
        inputs=("a",),
        params=(AXIS, KEEPDIMS, INITIAL),
        ref=lambda xp, a, axis, keepdims, initial: ref(
            a, axis=axis, keepdims=keepdims, **_given(initial=initial)
        ),
        samples=WITH_NAN,
        doc=f"The {of}imum over axes without NaN; NaN where there is nothing else.",
    )


_nan_extreme("_npi_nanmax", "max", np.nanmax, -math.inf)
_nan_extreme("_npi_nanmin", "min", np.nanmin, math.inf)
front(
    "_npi_ptp",
    lambda F, a, axis, keepdims: F._npi_subtract(
        F._np_max(a, axis=axis, keepdims=keepdims), F._np_min(a, axis=axis, keepdims=keepdims)
    ),
    inputs=("a",),
    params=(AXIS, KEEPDIMS),
    ref=lambda xp, a, axis, keepdims: np.ptp(a, axis=axis, keepdims=keepdims),
    samples=USUAL[:3],
    doc="The maximum less the minimum over axes.",
)


def _position(name: str, of: str, ref: Callable, least: float | None = None) -> None:
    def rule(F: Any, a: Array, axis: int | None, keepdims: bool) -> Array:
        if not counted(a, axis):
            raise ShapeError(
                f"np.{name.removeprefix('_npi_')}",
                f"the reduced axis must not be empty, got shape {tuple(a.shape)} and axis {axis}",
            )
        x = a if least is None else without_nan(F, a, least)
        return getattr(F, of)(x, axis=axis, keepdims=keepdims, dtype="int64", to_scalar=True)

    front(
        name,
        rule,
        inputs=("a",),
        params=(Param("axis", "int?", None), KEEPDIMS),
        ref=lambda xp, a, axis, keepdims: ref(a, axis=axis, keepdims=keepdims),
        samples=(
            sample((2, 3)),
            sample((2, 3, 4), axis=-2, keepdims=True),
            sample((2, 3), axis=0),
            *((sample(values([[1.0, NAN, 3.0], [NAN, 4.5, 2.0]]), axis=1),) * (least is not None)),
        ),
        doc=f"The position of the first {of[3:]}imum along an axis, int64; None: of the flat one.",
    )


_position("_npi_argmax", "argmax", np.argmax)
_position("_npi_argmin", "argmin", np.argmin)
_position("_npi_nanargmax", "argmax", np.nanargmax, -math.inf)
_position("_npi_nanargmin", "argmin", np.nanargmin, math.inf)


# ---- logic ---------------------------------------------------------------------------------------
def _truth(name: str, of: str, ref: Callable, aliases: tuple[str, ...]) -> None:
    front(
        name,
        lambda F, a, axis, keepdims: reduced(F, of, a, axis, keepdims),
        inputs=("a",),
        params=(AXIS, KEEPDIMS),
        aliases=aliases,
        ref=lambda xp, a, axis, keepdims: ref(a, axis=axis, keepdims=keepdims),
        samples=(sample(values([[1, 0, NAN], [2, 3, 1]]), axis=1), *USUAL),
        doc=f"Over axes: is {'none' if of == '_all' else 'any'} of the elements "
        f"{'0' if of == '_all' else 'not 0'} (a bool).",
    )


_truth("_np_all", "_all", np.all, ("_np_alltrue",))
_truth("_np_any", "_any", np.any, ("_np_sometrue",))


# ---- means and moments ---------------------------------------------------------------------------
def _mean(F: Any, a: Array, axis: Any, dtype: str | None, keepdims: bool, initial: Any) -> Array:
    return reduced(F, "mean", cast(F, a, dtype or floating(dtype_of(a))), axis, keepdims)


def _nanmean(F: Any, a: Array, axis: Any, dtype: str | None, keepdims: bool, initial: Any) -> Array:
    x = cast(F, a, dtype or floating(dtype_of(a)))
    total, n = (reduced(F, "nansum", y, axis, keepdims) for y in (x, is_number(F, x)))
    return total / n


for _name, _rule, _ref in (("mean", _mean, np.mean), ("nanmean", _nanmean, np.nanmean)):
    front(
        f"_npi_{_name}",
        _rule,
        inputs=("a",),
        params=(AXIS, DTYPE, KEEPDIMS, INITIAL),
        ref=lambda xp, a, axis, dtype, keepdims, initial, _ref=_ref: _ref(
            a, axis=axis, keepdims=keepdims
        ),
        samples=WITH_NAN if "nan" in _name else USUAL,
        doc="The mean over axes (None: all); of whole numbers a float32."
        + " NaN is left out." * ("nan" in _name),
    )


def _variance(F: Any, x: Array, axis: Any, ddof: float, keepdims: bool) -> Array:
    axes = axes_of(axis, len(x.shape))
    if not axes:
        return F.square(x - x) / max(1 - ddof, 0.0)
    _, var = F.moments(x, axes=axes, keepdims=keepdims)
    var = reshaped(F, var, reduced_shape(tuple(x.shape), axes, keepdims, True))
    n = counted(x, axis)
    return var if not ddof else var * float(n) / float(max(n - ddof, 0))


def _nanvariance(F: Any, x: Array, axis: Any, ddof: float, keepdims: bool) -> Array:
    number = is_number(F, x)
    mean = reduced(F, "nansum", x, axis, True) / reduced(F, "sum", number, axis, True)
    apart = F.where(number, F.broadcast_sub(x, mean), F.zeros_like(x))
    total = reduced(F, "sum", F.square(apart), axis, keepdims)
    n = reduced(F, "sum", number, axis, keepdims) - float(ddof)
    return F.where(F._greater_scalar(n, scalar=0.0), total / n, full_like(F, n, NAN))


def _moment(name: str, rule: Callable, ref: Callable, root: bool) -> None:
    def full(F: Any, a: Array, axis: Any, dtype: str | None, ddof: float, keepdims: bool) -> Array:
        x = cast(F, a, dtype or floating(dtype_of(a)))
        var = rule(F, x, axis, ddof, keepdims)
        return F.sqrt(var) if root else var

    nan = "nan" in name
    what = "standard deviation" if root else "variance"
    front(
        f"_npi_{name}",
        full,
        inputs=("a",),
        params=(AXIS, DTYPE, DDOF, KEEPDIMS),
        ref=lambda xp, a, axis, dtype, ddof, keepdims: ref(
            a if a.dtype != bool else a.astype(np.float32), axis=axis, ddof=ddof, keepdims=keepdims
        ),
        samples=(*(WITH_NAN if nan else USUAL[:3]), sample((3, 4), axis=0, ddof=1.0)),
        doc=f"The {what} over axes, over N - ddof; of whole numbers a float32."
        + " NaN is left out." * nan,
    )


_moment("var", _variance, np.var, False)
_moment("std", _variance, np.std, True)
_moment("nanvar", _nanvariance, np.nanvar, False)
_moment("nanstd", _nanvariance, np.nanstd, True)


def _average(
    F: Any, a: Array, *given: Array, axis: Any, returned: bool, weighted: bool, keepdims: bool
) -> Any:
    x = as_float(F, a)
    if not weighted:
        made = reduced(F, "mean", x, axis, keepdims)
        return [made, full_like(F, made, float(counted(a, axis)))] if returned else made
    (w,) = given
    dtype = promoted(dtype_of(x), dtype_of(w))
    x, w = cast(F, x, dtype), cast(F, w, dtype)
    axes = axes_of(axis, len(x.shape))
    if tuple(w.shape) != tuple(x.shape):
        if tuple(w.shape) != tuple(x.shape[i] for i in axes) or axis is None:
            raise ShapeError(
                "np.average",
                f"weights must have a's shape {tuple(x.shape)}, or that of axis {axis}, got "
                f"{tuple(w.shape)}",
            )
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        w = F.transpose(w, axes=tuple(order)) if len(order) > 1 else w
        w = reshaped(F, w, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
        w = F.broadcast_to(w, shape=tuple(x.shape))
    total = reduced(F, "sum", w, axis, keepdims)
    made = F.broadcast_div(reduced(F, "sum", x * w, axis, keepdims), total)
    return [made, total] if returned else made


def _average_ref(
    xp: Any,
    a: Array,
    w: Array | None = None,
    *,
    axis: Any,
    returned: bool,
    keepdims: bool,
    **_: Any,
) -> Any:
    """np.average, but NaN where the sum of the weights is 0: an error would need their values."""
    if w is None:
        w = np.ones_like(a, np.float32)
    elif w.shape != a.shape:
        w = w.reshape([n if i in axes_of(axis, a.ndim) else 1 for i, n in enumerate(a.shape)])
    w = np.broadcast_to(w, a.shape)
    total = np.sum(w, axis=axis, keepdims=keepdims, dtype=np.float64)
    made = np.sum(a * np.float64(w), axis=axis, keepdims=keepdims) / total
    return (made, total) if returned else made


front(
    "_npi_average",
    _average,
    inputs=("a", "weights"),
    input_names=lambda weighted, **_: ("a", "weights") if weighted else ("a",),
    n_outputs=lambda returned, **_: 2 if returned else 1,
    params=(
        AXIS,
        Param("returned", "bool", False),
        Param("weighted", "bool", True),
        KEEPDIMS,
    ),
    ref=_average_ref,
    samples=(
        sample((2, 3), weighted=False, axis=1, returned=True),
        sample((2, 3), uniform((2, 3), 0.5, 1.5)),
        sample((2, 3), uniform((3,), 0.5, 1.5), axis=1, keepdims=True),
        sample((2, 3), uniform((2,), 0.5, 1.5), axis=(0,), returned=True),
    ),
    doc="The mean over axes with weights; returned: the sums of the weights, too.",
)


# ---- scans ---------------------------------------------------------------------------------------
def _flat(F: Any, a: Array, axis: int | None) -> tuple[Array, int]:
    if axis is None:
        return reshaped(F, a, (prod(a.shape),)), 0
    return a, one_axis("np", axis, len(a.shape))


def _cumprod(F: Any, a: Array, axis: int | None, dtype: str | None) -> Array:
    given = dtype_of(a)
    x, axis = _flat(F, cast(F, a, dtype or ("int64" if given == "bool" else given)), axis)
    return F._cumprod(x, axis=axis)


def _scan(name: str, rule: Callable, ref: Callable, aliases: tuple, doc: str) -> None:
    nan = "nan" in name
    extra: tuple[Sample, ...] = (sample(values([[1.0, NAN, 3.0], [NAN, 4.5, 2.0]]), axis=1),)
    front(
        name,
        rule,
        inputs=("a",),
        params=(Param("axis", "int?", None), DTYPE),
        aliases=aliases,
        ref=lambda xp, a, axis, dtype: ref(
            a, axis=axis, dtype=dtype or ("int64" if a.dtype == bool else a.dtype)
        ),
        samples=(sample((2, 3)), sample((2, 5), axis=1), *(extra if nan else ())),
        doc=doc,
    )


_scan(
    "_npi_cumprod",
    _cumprod,
    np.cumprod,
    ("_npi_cumproduct",),
    "Products of all elements up to each one along an axis; None: of the flat array.",
)
_scan(
    "_npi_nancumsum",
    lambda F, a, axis, dtype: F._np_cumsum(without_nan(F, a, 0.0), axis=axis, dtype=dtype),
    np.nancumsum,
    (),
    "Sums of all elements up to each one along an axis, without NaN.",
)
_scan(
    "_npi_nancumprod",
    lambda F, a, axis, dtype: _cumprod(F, without_nan(F, a, 1.0), axis, dtype),
    np.nancumprod,
    (),
    "Products of all elements up to each one along an axis, without NaN.",
)
