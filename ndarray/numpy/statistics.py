"""Reductions under NumPy's keywords, averages, quantiles, covariances, histograms: functions whose
arguments decide which operator runs. In this file sum, all, max ... are NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine.error import InvalidValue, ShapeError
from ...kernels.record import REGISTRY
from ..functions import operator_function
from ..launch import copy_into
from ..ndarray import NDArray
from .array import array, is_symbol, operand
from .operators import NUMBERS
from .shapes import call

Axis = int | Sequence[int] | None


# in MXNet's functions `out` does not come last
ORDER = {
    **dict.fromkeys(("max", "amax", "min", "amin"), ("a", "axis", "keepdims", "out")),
    **dict.fromkeys(("argmax", "argmin"), ("a", "axis", "out")),
    **dict.fromkeys(("mean", "var", "std", "prod", "product"), ("a", "axis", "dtype", "out")),
}


def derived(full: str, name: str, where: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The function of a record, with MXNet's order of arguments. where: see operator_function."""
    return operator_function(REGISTRY[full], name, operand, ORDER.get(name, ()), where)


def _chosen(a: Any, where: Any, value: float) -> Any:
    """a where a condition holds, elsewhere a number."""
    condition = where if isinstance(where, NDArray) or is_symbol(where) else array(where, "bool")
    return call("_npi_where_rscalar", condition, a, scalar=value, is_int=True)


def placed(made: Any, out: Any) -> Any:
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


def _reduction(full: str, name: str, where: Callable[..., Any]) -> Callable[..., Any]:
    made = derived(full, name, where)
    made.__module__ = __name__  # which says that it takes Symbols too
    return made


def _with_where(name: str, full: str, neutral: float) -> Callable[..., Any]:
    def reduced(inputs: Any, where: Any, attrs: dict, out: Any) -> Any:
        return function(_chosen(operand(inputs[0]), where, neutral), **{**attrs, "out": out})

    function: Callable[..., Any] = _reduction(full, name, reduced)
    return function


for _name, (_full, _neutral) in NEUTRAL.items():
    globals()[_name] = _with_where(_name, _full, _neutral)


def _extreme(name: str, full: str) -> Callable[..., Any]:
    def reduced(inputs: Any, where: Any, attrs: dict, out: Any) -> Any:
        if attrs.get("initial") is None:
            raise InvalidValue(f"np.{name}: where= needs initial=, for results of no elements")
        chosen = _chosen(operand(inputs[0]), where, attrs["initial"])
        return function(chosen, **{**attrs, "out": out})

    function: Callable[..., Any] = _reduction(full, name, reduced)
    return function


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
    def reduced(inputs: Any, where: Any, attrs: dict, out: Any) -> Any:
        x, dtype = operand(inputs[0]), attrs.get("dtype")
        x = x if dtype is None else x.astype(dtype)
        made = moment(x, where, attrs["axis"], attrs["keepdims"], attrs.get("ddof", 0))
        return placed(made, out)

    return _reduction(f"_npi_{name}", name, reduced)


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
    return tuple(made) if returned else placed(made, out)


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

    return rows(m) if y is None else call("_npi_concatenate", rows(m), rows(y), axis=0)


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
        counts, _ = call("_npi_histogram", a, edges)
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


__all__ = [
    *(*NEUTRAL, *EXTREMES, "mean", "var", "std", "average", "percentile", "quantile"),
    *("nanpercentile", "nanquantile", "cov", "corrcoef", "bincount", "histogram"),
    *("histogram_bin_edges",),
]
