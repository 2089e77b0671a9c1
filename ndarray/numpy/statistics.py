"""Reductions under NumPy's keywords, and functions of values, order and sets whose arguments decide
which operator they are: numbers, lists or arrays, some or none. Here sum, all, max ... are NumPy's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine.error import InvalidType, InvalidValue, ShapeError
from ...kernels.record import REGISTRY
from ..functions import operator_function
from ..launch import copy_into
from ..ndarray import NDArray
from . import ufuncs
from .array import array, is_symbol, operand
from .operators import NUMBERS
from .shapes import call

Axis = int | Sequence[int] | None


def _derived(full: str, name: str) -> Callable[..., Any]:
    return operator_function(REGISTRY[full], name, operand)


def _chosen(a: Any, where: Any, value: float) -> Any:
    """a where a condition holds, elsewhere a number."""
    condition = where if isinstance(where, NDArray) or is_symbol(where) else array(where, "bool")
    return call("_npi_where_rscalar", condition, a, scalar=value, is_int=True)


def _given(made: Any, out: Any) -> Any:
    if out is None:
        return made
    if out.shape != made.shape:
        raise ShapeError("out", f"must have the result's shape {made.shape}, got {out.shape}")
    copy_into(made, out)
    return out


# ---- reductions of what a condition chooses ------------------------------------------------------
NEUTRAL = {
    "sum": ("_np_sum", 0),
    "prod": ("_np_prod", 1),
    "product": ("_np_prod", 1),
    "all": ("_np_all", 1),
    "alltrue": ("_np_all", 1),
    "any": ("_np_any", 0),
    "sometrue": ("_np_any", 0),
    "nansum": ("_npi_nansum", 0),
    "nanprod": ("_npi_nanprod", 1),
    "count_nonzero": ("_npi_count_nonzero", 0),
}


def _with_where(name: str, full: str, neutral: float) -> Callable[..., Any]:
    function = _derived(full, name)

    @functools.wraps(function)
    def reduction(a: Any, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        if where is not True:
            a = _chosen(operand(a), where, neutral)
        return function(a, *args, **kwargs)

    reduction.__module__ = __name__
    return reduction


for _name, (_full, _neutral) in NEUTRAL.items():
    globals()[_name] = _with_where(_name, _full, _neutral)


def _extreme(name: str, full: str) -> Callable[..., Any]:
    function = _derived(full, name)

    @functools.wraps(function)
    def reduction(a: Any, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        if where is not True:
            if kwargs.get("initial") is None:
                raise InvalidValue(f"np.{name}: where= needs initial=, for results of no elements")
            a = _chosen(operand(a), where, kwargs["initial"])
        return function(a, *args, **kwargs)

    reduction.__module__ = __name__
    return reduction


EXTREMES = {
    "max": "_np_max",
    "amax": "_np_max",
    "min": "_np_min",
    "amin": "_np_min",
    "nanmax": "_npi_nanmax",
    "nanmin": "_npi_nanmin",
}
for _name, _full in EXTREMES.items():
    globals()[_name] = _extreme(_name, _full)


def _count(a: Any, where: Any, axis: Axis, keepdims: bool) -> Any:
    condition = where if isinstance(where, NDArray) or is_symbol(where) else array(where, "bool")
    ones = call("_npi_broadcast_to", condition, shape=a.shape)
    return call("_np_sum", ones, axis=axis, keepdims=keepdims)


def _moment(name: str, moment: Callable[..., Any]) -> Callable[..., Any]:
    function = _derived(f"_npi_{name}", name)

    @functools.wraps(function)
    def reduction(a: Any, *args: Any, where: Any = True, **kwargs: Any) -> Any:
        if where is True:
            return function(a, *args, **kwargs)
        names = [p.name for p in REGISTRY[f"_npi_{name}"].params]
        given = dict(zip(names, args)) | kwargs
        x = operand(a)
        dtype = given.get("dtype")
        x = x if dtype is None else x.astype(dtype)
        axis, keepdims = given.get("axis"), given.get("keepdims", False)
        made = moment(x, where, axis, keepdims, given.get("ddof", 0))
        return _given(made, given.get("out"))

    reduction.__module__ = __name__
    return reduction


def _mean_where(x: Any, where: Any, axis: Axis, keepdims: bool, ddof: float) -> Any:
    total = call("_np_sum", _chosen(x, where, 0), axis=axis, keepdims=keepdims)
    return total / _count(x, where, axis, keepdims)


def _var_where(x: Any, where: Any, axis: Axis, keepdims: bool, ddof: float) -> Any:
    apart = x - _mean_where(x, where, axis, True, 0)
    total = call("_np_sum", _chosen(apart * apart, where, 0), axis=axis, keepdims=keepdims)
    return total / (_count(x, where, axis, keepdims) - ddof)


def _std_where(x: Any, where: Any, axis: Axis, keepdims: bool, ddof: float) -> Any:
    return call("_npi_sqrt", _var_where(x, where, axis, keepdims, ddof))


mean = _moment("mean", _mean_where)
var = _moment("var", _var_where)
std = _moment("std", _std_where)


# ---- averages and quantiles ----------------------------------------------------------------------
def average(
    a: Any,
    axis: Axis = None,
    weights: Any = None,
    returned: bool = False,
    out: Any = None,
    keepdims: bool = False,
) -> Any:
    """The mean over axes with weights; returned: (mean, the sums of the weights). Of whole numbers
    a float32."""
    inputs = (a,) if weights is None else (a, weights)
    how = {"axis": axis, "returned": returned, "weighted": weights is not None}
    made = call("_npi_average", *inputs, keepdims=keepdims, **how)
    return tuple(made) if returned else _given(made, out)


def _quantile(name: str) -> Callable[..., Any]:
    def quantile(
        a: Any,
        q: Any,
        axis: Axis = None,
        out: Any = None,
        overwrite_input: bool | None = None,
        interpolation: str = "linear",
        keepdims: bool = False,
        *,
        method: str | None = None,
    ) -> Any:
        how = {"axis": axis, "keepdims": keepdims, "interpolation": method or interpolation}
        q = q.item() if isinstance(q, onp.generic) else q
        if q.__class__ in NUMBERS:
            return call(f"_npi_{name}", a, out=out, q_scalar=q, **how)
        if not (isinstance(q, NDArray) or is_symbol(q)):  # a list: as exact as a number
            q = array(onp.asarray(q, onp.float64))
        return call(f"_npi_{name}", a, q, out=out, **how)

    quantile.__name__ = quantile.__qualname__ = name
    quantile.__doc__ = f"{REGISTRY[f'_npi_{name}'].doc} q: a number, a list or an array."
    return quantile


percentile, quantile = _quantile("percentile"), _quantile("quantile")
nanpercentile, nanquantile = _quantile("nanpercentile"), _quantile("nanquantile")


# ---- elements ------------------------------------------------------------------------------------
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """a, or the nearer bound outside of the bounds: numbers, arrays, or None for no bound."""
    a_min, a_max = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    if kwargs:
        raise InvalidType(f"np.clip: {', '.join(kwargs)}: no such parameter")
    bounds = [b.item() if isinstance(b, onp.generic) else b for b in (a_min, a_max)]
    if not [b for b in bounds if b is not None and b.__class__ not in NUMBERS]:
        return call("_npi_clip", a, out=out, a_min=bounds[0], a_max=bounds[1])
    made = operand(a)
    for name, bound in zip(("maximum", "minimum"), bounds):
        if bound.__class__ in NUMBERS:
            is_int = bound.__class__ is not float
            made = call(f"_npi_{name}_scalar", made, scalar=bound, is_int=is_int)
        elif bound is not None:
            made = call(f"_npi_{name}", made, bound)
    return _given(made, out)


def around(x: Any, decimals: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """The nearest number of so many decimals, halves to the even one."""
    if x.__class__ in NUMBERS or isinstance(x, onp.generic):
        return onp.around(x, decimals)
    return call("_npi_around", x, out=out, decimals=decimals)


round = round_ = around  # noqa: A001 - NumPy's name


def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    **kwargs: Any,
) -> Any:
    """x with other numbers for NaN and infinities: default 0 and the dtype's ends. copy False:
    written into x."""
    made = call("_npi_nan_to_num", x, nan=nan, posinf=posinf, neginf=neginf)
    return _given(made, x) if not copy and isinstance(x, NDArray) else made


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, n times. prepend, append: put before and after
    a."""
    a = operand(a)
    parts = [a]
    for at, value in ((0, prepend), (len(parts), append)):
        if value is None:
            continue
        end = operand(value)
        if not end.shape:
            shape = [1 if i == axis % a.ndim else size for i, size in enumerate(a.shape)]
            end = call("_npi_broadcast_to", end, shape=tuple(shape))
        parts.insert(0 if at == 0 else len(parts), end)
    if len(parts) > 1:
        a = call("_npi_concatenate", *parts, dim=axis)
    return call("_npi_diff", a, n=n, axis=axis)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the flat array, with numbers before and after them."""
    inputs, how = [ary], {}
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        if value.__class__ in NUMBERS:
            how[f"{name}_scalar"] = value
        elif value is not None:
            how[f"{name}_arr_given"] = True
            inputs.append(value)
    return call("_npi_ediff1d", *inputs, **how)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule, at x or dx apart."""
    inputs = (y,) if x is None else (y, x)
    return call("_npi_trapezoid", *inputs, dx=dx, axis=axis, has_x=x is not None)


trapz = trapezoid


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Any:
    """The piecewise linear function through (xp, fp) at x. period: of x and xp, which then need no
    order."""
    if period is not None:
        if not period:
            raise InvalidValue("np.interp: period must not be 0")
        period = abs(period)
        x, xp, fp = operand(x) % period, operand(xp) % period, operand(fp)
        order = call("_npi_argsort", xp)
        xp, fp = call("_npi_take", xp, order, axis=0), call("_npi_take", fp, order, axis=0)
        before, after = slice(-1, None), slice(0, 1)
        xp = call("_npi_concatenate", xp[before] - period, xp, xp[after] + period, dim=0)
        fp = call("_npi_concatenate", fp[before], fp, fp[after], dim=0)
        left = right = None
    made = call("_npi_interp", x, xp, fp, left=left, right=right)
    return made


# ---- covariances ---------------------------------------------------------------------------------
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """The covariances of the rows of m and y (columns: rowvar False). fweights: how often each
    observation counts; aweights: how much."""
    x = _variables(m, y, rowvar, dtype)
    if fweights is None and aweights is None:
        return call("_npi_cov", x, bias=bias, ddof=ddof)
    w = operand(1.0)
    for given in (fweights, aweights):
        w = w if given is None else w * operand(given)
    total = call("_np_sum", w)
    lost = (0 if bias else 1) if ddof is None else ddof
    seen = w if aweights is None else w * operand(aweights)
    factor = total - lost * (call("_np_sum", seen) / total if aweights is not None else 1)
    x = x.reshape((1, -1)) if x.ndim < 2 else x
    apart = x - (call("_np_sum", x * w, axis=(1,), keepdims=True) / total)
    made = call("_np_dot", apart * w, apart.T) / factor
    return made.reshape(()) if made.shape == (1, 1) else made


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlation coefficients of the rows of x and y, or of their columns."""
    return call("_npi_corrcoef", _variables(x, y, rowvar, dtype))


def _variables(m: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    """Observations in columns."""

    def rows(a: Any) -> Any:
        a = operand(a)
        a = a if dtype is None else a.astype(dtype)
        if a.ndim < 2:
            return a.reshape((1, -1)) if y is not None else a
        return a if rowvar or a.shape[0] == 1 else a.T

    return rows(m) if y is None else call("_npi_concatenate", rows(m), rows(y), dim=0)


# ---- two results ---------------------------------------------------------------------------------
def divmod(x1: Any, x2: Any) -> tuple[Any, Any]:  # noqa: A001 - NumPy's name
    """(x1 // x2, x1 % x2)."""
    return ufuncs.floor_divide(x1, x2), ufuncs.mod(x1, x2)  # type: ignore[attr-defined]


def modf(x: Any) -> tuple[Any, Any]:
    """(the fraction, the whole part), both with the sign of x."""
    fraction, whole = call("_npi_modf", x)
    return fraction, whole


# ---- counts and sets -----------------------------------------------------------------------------
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often 0, 1, 2 ... occur in x, or the sums of their weights."""
    inputs = (x,) if weights is None else (x, weights)
    how = {"minlength": minlength, "has_weights": weights is not None}
    return call("_npi_bincount", *inputs, **how)


def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,  # noqa: A002 - NumPy's name
    normed: None = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, Any]:
    """(how many elements fall in each bin, the edges). bins: their number between the ends `range`,
    default the least and the largest element; or the edges. weights: what an element counts.
    density: divided by the widths and the total."""
    a = operand(a).reshape((-1,))
    if bins.__class__ is int:
        edges = _edges(a, bins, range)
    else:
        edges = operand(bins)
    if weights is None:
        counts, _ = call("_npi_histogram", a, edges.astype(a.dtype))
    else:
        inside = (a >= edges[0]) & (a <= edges[-1])
        place = call("_npi_searchsorted", edges, a, side="right") - 1
        n = edges.shape[0] - 1
        place = call("_npi_clip", place, a_min=0, a_max=n - 1)
        counted = _chosen(operand(weights).reshape((-1,)), inside, 0)
        counts = bincount(place, counted, n)
    if density:
        widths = call("_npi_diff", edges)
        return counts / widths / call("_np_sum", counts), edges
    return counts, edges


def _edges(a: Any, bins: int, ends: Any) -> Any:
    if bins < 1:
        raise InvalidValue(f"np.histogram: bins must be at least 1, got {bins}")
    if ends is None:
        low, high = (
            float(call(f"_np_{f}", a)) if a.size else float(f == "max") for f in ("min", "max")
        )
    else:
        low, high = map(float, ends)
    if not low <= high or not onp.isfinite(high - low):
        raise InvalidValue(f"np.histogram: range must be finite and rise, got {low} to {high}")
    if low == high:
        low, high = low - 0.5, high + 0.5
    dtype = a.dtype if onp.dtype(a.dtype).kind == "f" else onp.float32
    return array(onp.linspace(low, high, bins + 1).astype(dtype), ctx=a.context)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """The edges that np.histogram would use."""
    return (
        _edges(operand(a).reshape((-1,)), bins, range) if bins.__class__ is int else operand(bins)
    )


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


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Have both one shape and equal elements?"""
    a1, a2 = operand(a1), operand(a2)
    if a1.shape != a2.shape:
        return False
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


__all__ = [
    *(*NEUTRAL, *EXTREMES, "mean", "var", "std", "average", "percentile", "quantile"),
    *("nanpercentile", "nanquantile", "clip", "around", "round", "round_", "nan_to_num", "diff"),
    *(
        "divmod",
        "modf",
        "ediff1d",
        "trapezoid",
        "trapz",
        "interp",
        "cov",
        "corrcoef",
        "bincount",
        "histogram",
    ),
    *("histogram_bin_edges", "unique", "isin", "in1d", "setdiff1d", "setxor1d", "union1d"),
    *("intersect1d", "searchsorted", "lexsort", "allclose", "array_equal", "array_equiv"),
]
