"""Sorting, quantiles, places in sorted arrays, sets: what follows from the order of values."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....engine.error import DynamicShape, InvalidValue, OperatorError, ShapeError
from ...front import alike, as_float, cast, dtype_of, front, reshaped
from ...record import FLOATS, NATIVE_INTS, Array, Param, sample, uniform, values
from ...shapes import one_axis
from ..reduce import reduced_shape
from .reduce import AXIS, KEEPDIMS, NAN, axes_of, full_like, is_number

# ---- sorting -------------------------------------------------------------------------------------
ORDER = (Param("axis", "int?", -1), Param("kind", "str?", None), Param("order", "str?", None))
KTH = Param("kth", "shape", (0,))


def _sortable(F: Any, name: str, a: Array, axis: int | None, order: str | None) -> Array:
    if order is not None:
        raise OperatorError(f"np.{name}", f"arrays have no fields to order by, got {order!r}")
    if not a.shape and axis is not None:
        raise ShapeError(f"np.{name}", "the array must have an axis, got shape ()")
    return cast(F, a, "uint8") if dtype_of(a) == "bool" else a


def _sorts(name: str, positions: bool, ref: Callable, more: tuple = (), doc: str = "") -> None:
    def rule(F: Any, a: Array, **how: Any) -> Array:
        x = _sortable(F, name, a, how["axis"], how["order"])
        if positions:
            return F.argsort(x, axis=how["axis"], is_ascend=True, dtype="int64")
        return cast(F, F.sort(x, axis=how["axis"]), dtype_of(a))

    given = {"kth": 1} if more else {}
    front(
        f"_npi_{name}",
        rule,
        inputs=("a",),
        params=(*more, *ORDER),
        ref=lambda xp, a, axis, kind, order, kth=None: ref(a, axis=axis),
        samples=(
            sample((3, 4), **given),
            sample((3, 4), axis=0, **given),
            sample((2, 3), axis=None, **given),
            sample(values([2.0, NAN, -1.0]), **given),
        ),
        doc=doc,
    )


def _argsort(a: Array, axis: int | None) -> Array:
    return np.argsort(a, axis=axis, kind="stable")


_sorts("sort", False, np.sort, (), "a sorted along an axis, or flat for None; NaN last.")
_sorts("argsort", True, _argsort, (), "The positions that sort a, int64; stable, NaN last.")
_sorts("partition", False, np.sort, (KTH,), "a with all before kth not above it: a sorted.")
_sorts("argpartition", True, _argsort, (KTH,), "The positions that partition a, int64.")
front(
    "_npi_msort",
    lambda F, a: F._npi_sort(a, axis=0),
    inputs=("a",),
    ref=lambda xp, a: np.sort(a, axis=0),
    samples=(sample((3, 2)),),
    doc="a sorted along its first axis.",
)


# ---- quantiles -----------------------------------------------------------------------------------
# place = n q + alpha + q (1 - alpha - beta) - 1. Source: Hyndman and Fan 1996, definitions 4 to 9
PLACES = {
    "weibull": (0.0, 0.0),
    "hazen": (0.5, 0.5),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
METHODS = ("linear", "lower", "higher", "midpoint", "nearest", *PLACES)


def _columns(F: Any, a: Array, axis: Any) -> tuple[Array, tuple[int, ...]]:
    """(the reduced axes as rows, all others as columns; the reduced axes)."""
    shape, axes = tuple(a.shape), axes_of(axis, len(a.shape))
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    x = F.transpose(a, axes=axes + kept) if len(shape) > 1 else a
    return reshaped(F, x, (prod(shape[i] for i in axes), prod(shape[i] for i in kept))), axes


def _between(F: Any, low: Array, high: Array, weight: Array) -> Array:
    return F.broadcast_add(low, F.broadcast_mul(F.broadcast_sub(high, low), weight))


def _at_places(F: Any, s: Array, q: Array, n: Any, method: str, nan: bool) -> Array:
    """Elements of sorted columns at the fractions q (m, 1), in float64. n: of how many elements of
    each column; an array (1, columns) where NaN is left out."""
    if method in PLACES:
        alpha, beta = PLACES[method]
        place = F.broadcast_mul(q, n + (1 - alpha - beta)) + (alpha - 1)
    else:
        place = F.broadcast_mul(q, n - 1)
    top = F._maximum_scalar(n - 1, scalar=0.0)
    place = F.broadcast_minimum(F._maximum_scalar(place, scalar=0.0), top)
    low = F.floor(place)
    high = F.ceil(place)

    def values_at(index: Array) -> Array:
        index = cast(F, F.BlockGrad(index), "int64")
        if nan:
            return F._take_along_axis(s, index, axis=0)
        return F.take(s, reshaped(F, index, (index.shape[0],)), axis=0)

    if method in ("lower", "higher", "nearest"):
        return values_at({"lower": low, "higher": high, "nearest": F._round_even(place)}[method])
    weight = cast(F, place - low, dtype_of(s))
    if method == "midpoint":
        weight = full_like(F, weight, 0.5)
    return _between(F, values_at(low), values_at(high), weight)


def _at_rank(F: Any, x: Array, q: float, method: str) -> Array:
    """As `_at_places` for one known fraction of columns, which are not sorted for it. method: also
    "mean", that of both elements, as the median is defined."""
    n = x.shape[0]
    alpha, beta = PLACES.get(method, (1.0, 1.0))
    place = q * (n + (1 - alpha - beta)) + (alpha - 1)
    place = min(max(place, 0.0), n - 1.0)
    low, high = math.floor(place), math.ceil(place)
    weight = 0.5 if method == "midpoint" else place - low
    if method in ("lower", "higher", "nearest"):
        low = high = {"lower": low, "higher": high, "nearest": round(place)}[method]
        weight = 0.0
    found = F._ranked(x, axis=0, ranks=(low, high, n - 1))
    below, above, last = (F.slice_axis(found, axis=0, begin=k, end=k + 1) for k in range(3))
    if high == low:
        made = below
    elif method == "mean":
        made = F.broadcast_add(below, above) * 0.5
    else:
        made = _between(F, below, above, full_like(F, below, weight))
    return F.where(is_number(F, last), made, last)  # NaN stands last


def _quantile(nan: bool, unit: float, fixed: float | None = None) -> Callable[..., Array]:
    """The rule of a quantile. unit: what q is 1 in. fixed: the q of a function without one."""

    def rule(
        F: Any,
        a: Array,
        *given: Array,
        axis: Any,
        keepdims: bool,
        q_scalar: float | None = fixed,
        interpolation: str = "linear",
    ) -> Array:
        x, axes = _columns(F, as_float(F, a), axis)
        n, width = x.shape
        shape = tuple(given[0].shape) if given else ()
        if q_scalar is not None and not 0 <= q_scalar <= unit:
            rule = f"q must be between 0 and {unit:g}, got {q_scalar:g}"
            raise InvalidValue(f"np.quantile: {rule}")
        out = shape + reduced_shape(tuple(a.shape), axes, keepdims, True)
        if not nan and fixed is None and not n or 0 in shape:
            raise ShapeError("np.quantile", f"a and q must have elements, got {tuple(a.shape)}")
        if not n or not width:
            return F._full(shape=out, dtype=dtype_of(x), value=NAN)
        if q_scalar is not None and not nan:
            method = interpolation if fixed is None else "mean"
            return reshaped(F, _at_rank(F, x, q_scalar / unit, method), out)
        if given:
            q = reshaped(F, cast(F, given[0], "float64"), (prod(shape), 1)) / unit
        else:
            assert q_scalar is not None
            q = F._full(shape=(1, 1), dtype="float64", value=q_scalar / unit)
        s = F.sort(x, axis=0)
        if nan:
            some = cast(F, F.sum(is_number(F, x), axis=0, keepdims=True), "float64")
        else:
            some = F._full(shape=(1, 1), dtype="float64", value=float(n))
        made = _at_places(F, s, q, some, interpolation, nan)
        if not nan:
            last = F.broadcast_to(
                F.slice_axis(s, axis=0, begin=n - 1, end=n), shape=tuple(made.shape)
            )
            made = F.where(is_number(F, last), made, last)  # NaN stands last
        return reshaped(F, made, out)

    return rule


Q = (
    AXIS,
    Param("interpolation", METHODS, "linear"),
    KEEPDIMS,
    Param("q_scalar", "float?", None),
)


def _reference(ref: Callable) -> Callable:
    def call(xp: Any, a: Array, q: Any = None, **how: Any) -> Any:
        given = how.pop("q_scalar", None)
        q = given if q is None else q
        how["method"] = how.pop("interpolation", "linear")
        a = a.astype(np.float64) if a.dtype.kind != "f" else a
        return (
            ref(a, np.float64(q), **how)
            if q is not None
            else ref(a, how["axis"], keepdims=how["keepdims"])
        )

    return call


def _register_quantile(name: str, unit: float, ref: Callable) -> None:
    nan = name.startswith("nan")
    draw = values([[3.0, NAN, 1.0, 7.0], [2.0, 5.0, NAN, NAN]]) if nan else (2, 4)
    front(
        f"_npi_{name}",
        _quantile(nan, unit),
        inputs=("a", "q"),
        input_names=lambda q_scalar, **_: ("a",) if q_scalar is not None else ("a", "q"),
        params=Q,
        ref=_reference(ref),
        samples=(
            sample((2, 4), q_scalar=0.3 * unit),
            sample(draw, q_scalar=0.3 * unit, axis=1, keepdims=True),
            sample((2, 3, 4), uniform((2,), 0.05 * unit, 0.3 * unit), axis=(0, 2)),
            sample((5,), values([[0.1 * unit], [0.9 * unit]], "float64")),
            *(
                sample((2, 7), q_scalar=0.37 * unit, axis=1, interpolation=method)
                for method in (METHODS[1:] if name == "quantile" else METHODS[1:2])
            ),
        ),
        doc="The elements below which a fraction q lies, over axes; whole numbers give float32.",
    )


def _register_median(name: str, ref: Callable) -> None:
    nan = name.startswith("nan")
    draw = values([[3.0, NAN, 1.0, 7.0], [2.0, 5.0, NAN, NAN]]) if nan else (2, 4)
    front(
        f"_npi_{name}",
        _quantile(nan, 1.0, 0.5),
        inputs=("a",),
        params=(AXIS, KEEPDIMS),
        ref=_reference(lambda a, axis, keepdims: ref(a, axis=axis, keepdims=keepdims)),
        samples=(
            sample((3, 5)),
            sample(draw, axis=1),
            sample((2, 3, 4), axis=(0, 1), keepdims=True),
        ),
        doc="The middle element over axes, or the mean of the two; whole numbers give float32.",
    )


_register_quantile("percentile", 100.0, np.percentile)
_register_quantile("quantile", 1.0, np.quantile)
_register_quantile("nanpercentile", 100.0, np.nanpercentile)
_register_quantile("nanquantile", 1.0, np.nanquantile)
_register_median("median", np.median)
_register_median("nanmedian", np.nanmedian)


# ---- places in sorted arrays ---------------------------------------------------------------------
SIDE = Param("side", ("left", "right"), "left")


def _searchsorted(F: Any, a: Array, v: Array, side: str) -> Array:
    a, v = alike(F, a, v)
    return F._searchsorted(a, v, side=side)


SORTED = values([-0.5, 0.2, 0.9, 1.5], "float64")
front(
    "_npi_searchsorted",
    _searchsorted,
    inputs=("a", "v"),
    params=(SIDE,),
    ref=lambda xp, a, v, side: np.searchsorted(a, v, side=side),
    samples=(sample(SORTED, (2, 3)), sample(SORTED, values([0.2, 9, -9]), side="right")),
    doc="Where elements of v belong in the sorted vector a, int64; side: of equal ones.",
)


def _digitize(F: Any, x: Array, bins: Array, right: bool) -> Array:
    if len(bins.shape) != 1:
        raise ShapeError("np.digitize", f"bins must be a vector, got {tuple(bins.shape)}")
    n = bins.shape[0]
    if not n:
        return F._full(shape=tuple(x.shape), dtype="int64", value=0.0)
    x, bins = alike(F, x, bins)
    rising = F._searchsorted(bins, x, side="left" if right else "right")
    falling = n - F._searchsorted(F.reverse(bins, axis=0), x, side="left" if right else "right")
    end = lambda i: F.slice_axis(bins, axis=0, begin=i, end=i + 1)
    rises = cast(F, F.broadcast_lesser_equal(end(0), end(n - 1)), "int64")
    up, down = F.broadcast_mul(rising, rises), F.broadcast_mul(falling, 1 - rises)
    return reshaped(F, up + down, tuple(x.shape))


front(
    "_npi_digitize",
    _digitize,
    inputs=("x", "bins"),
    params=(Param("right", "bool", False),),
    ref=lambda xp, x, bins, right: np.digitize(x, bins, right),
    samples=(
        sample((2, 3), SORTED),
        sample((4,), values([1.5, 0.2, -0.5]), right=True),
        sample(values([0.2, 1.5]), values([1.5, 0.2, -0.5])),
    ),
    doc="The bin of each x, whose edges rise or fall; right: a bin holds its right edge.",
)


def _interp(
    F: Any, x: Array, xp: Array, fp: Array, left: float | None, right: float | None
) -> Array:
    x, xp, fp = (as_float(F, a) for a in (x, xp, fp))
    x, xp, fp = alike(F, x, xp, fp)
    n = prod(xp.shape)
    if tuple(xp.shape) != tuple(fp.shape) or len(xp.shape) != 1 or not n:
        rule = (
            f"xp and fp must be vectors of one length, got {tuple(xp.shape)} and {tuple(fp.shape)}"
        )
        raise ShapeError("np.interp", rule)
    number = lambda value: full_like(F, x, value)
    first, last = (
        F.broadcast_to(
            reshaped(F, F.slice_axis(fp, axis=0, begin=i, end=i + 1), (1,) * len(x.shape)),
            shape=tuple(x.shape),
        )
        for i in (0, n - 1)
    )
    low = first if left is None else number(left)
    high = last if right is None else number(right)
    made = first
    if n > 1:
        at = F._searchsorted(xp, F.BlockGrad(x), side="right")
        at = F._minimum_scalar(F._maximum_scalar(at, scalar=1.0), scalar=float(n - 1))
        x0, x1, y0, y1 = (F.take(a, i, axis=0) for a in (xp, fp) for i in (at - 1, at))
        made = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    end = lambda i: F.slice_axis(xp, axis=0, begin=i, end=i + 1)
    flat = lambda a: reshaped(F, a, (prod(a.shape),))
    below = reshaped(F, F.broadcast_lesser(flat(x), end(0)), tuple(x.shape))
    above = reshaped(F, F.broadcast_greater(flat(x), end(n - 1)), tuple(x.shape))
    return F.where(below, low, F.where(above, high, made))


front(
    "_npi_interp",
    _interp,
    inputs=("x", "xp", "fp"),
    params=(Param("left", "float?", None), Param("right", "float?", None)),
    ref=lambda xp_, x, xp, fp, left, right: np.interp(x, xp, fp, left, right),
    samples=(
        sample(uniform((2, 3), -0.4, 0.15), SORTED, (4,)),
        sample(uniform((5,), -3, 3), SORTED, (4,), left=7.0, right=-1.0),
        sample(values([0.3, -2, 5]), values([0.2]), values([4.0])),
    ),
    doc="The piecewise linear function through (xp, fp) at x; xp must rise.",
)


# ---- sets ----------------------------------------------------------------------------------------
def _isin(F: Any, element: Array, test: Array, invert: bool) -> Array:
    n = prod(test.shape)
    if not n:
        return F._full(shape=tuple(element.shape), dtype="bool", value=float(invert))
    x, tests = alike(F, element, test)
    if dtype_of(x) == "bool":
        x, tests = cast(F, x, "uint8"), cast(F, tests, "uint8")
    if dtype_of(x) in NATIVE_INTS:
        return F._among(x, tests, invert=invert)
    tests = F.sort(reshaped(F, tests, (n,)), axis=0)
    at = F._minimum_scalar(F._searchsorted(tests, x, side="left"), scalar=float(n - 1))
    compare = F.broadcast_not_equal if invert else F.broadcast_equal
    return cast(F, compare(F.take(tests, at, axis=0), x), "bool")


front(
    "_npi_isin",
    _isin,
    inputs=("element", "test_elements"),
    params=(Param("invert", "bool", False),),
    ref=lambda xp, element, test, invert: np.isin(element, test, invert=invert),
    samples=(
        sample(values([[1, 2], [3, 4]]), values([4, 1, 9])),
        sample(values([1, NAN, 3]), values([[NAN, 3]]), invert=True),
    ),
    doc="Where elements are among test_elements; NaN is none of them.",
)


def on_values(name: str, *arrays: Array) -> None:
    """Raises DynamicShape for values of graphs: the result's shape depends on numbers."""
    if not all([hasattr(a, "asnumpy") for a in arrays]):
        raise DynamicShape(
            f"np.{name}", "its shape depends on values", "use it on arrays, not in a Symbol"
        )


def _ones(F: Any, n: int) -> Array:
    return F._full(shape=(n,), dtype="int64", value=1.0)


def _differs(F: Any, s: Array) -> Array:
    """Of sorted rows (n, m): 1 where a row is not the one before it."""
    n = s.shape[0]
    a, b = F.slice_axis(s, axis=0, begin=1, end=n), F.slice_axis(s, axis=0, begin=0, end=n - 1)
    apart = F.broadcast_not_equal(a, b)
    if dtype_of(s) in FLOATS:  # all NaN are one value
        apart = apart * (1 - F.broadcast_not_equal(a, a) * F.broadcast_not_equal(b, b))
    apart = F.max(cast(F, apart, "int64"), axis=1)
    return F.Concat(_ones(F, 1), apart, dim=0)


def _unique(
    F: Any,
    ar: Array,
    return_index: bool,
    return_inverse: bool,
    return_counts: bool,
    axis: int | None,
) -> Any:
    on_values("unique", ar)
    shape = tuple(ar.shape)
    if axis is None:
        rows = reshaped(F, ar, (prod(shape), 1))
    else:
        axis = one_axis("np.unique", axis, len(shape))
        order = (axis, *(i for i in range(len(shape)) if i != axis))
        rows = F.transpose(ar, axes=order)
        rows = reshaped(F, rows, (shape[axis], prod(shape) // max(shape[axis], 1)))
    n, width = rows.shape
    keys = cast(F, rows, "uint8") if dtype_of(ar) == "bool" else rows
    if n and width == 1 and not (return_index or return_inverse):
        made = F.sort(keys, axis=0)
        first = F._starts(reshaped(F, made, (n,)))
        made = cast(F, F._contrib_boolean_mask(made, first), dtype_of(ar))
        starts = places = first
        if return_counts:
            starts = F._contrib_boolean_mask(F._arange(start=0, stop=n, dtype="int64"), first)
    elif n:
        column = lambda k: reshaped(F, F.slice_axis(keys, axis=1, begin=k, end=k + 1), (n,))
        places = F._arange(start=0, stop=n, dtype="int64") if width != 1 else None
        for k in reversed(range(width)):
            key = column(k) if places is None else F.take(column(k), places, axis=0)
            found = F.argsort(key, axis=0, is_ascend=True, dtype="int64")
            places = found if places is None else F.take(places, found, axis=0)
        first = _differs(F, F.take(keys, places, axis=0))
        made = F._contrib_boolean_mask(F.take(rows, places, axis=0), first)
        starts = F._contrib_boolean_mask(F._arange(start=0, stop=n, dtype="int64"), first)
    else:
        made, first = rows, F._full(shape=(0,), dtype="int64", value=0.0)
        starts = places = first
    count = made.shape[0]
    if axis is None:
        outs = [reshaped(F, made, (count,))]
    else:
        rest = tuple(s for i, s in enumerate(shape) if i != axis)
        back = tuple(range(1, axis + 1)) + (0,) + tuple(range(axis + 1, len(shape)))
        outs = [F.transpose(reshaped(F, made, (count, *rest)), axes=back)]
    if return_index:
        outs.append(F.take(places, starts, axis=0) if n else places)
    if return_inverse:
        rank = F._np_cumsum(first, axis=0) - 1
        inverse = F._put_along_axis(rank, places, axis=0, size=n) if n else rank
        outs.append(reshaped(F, inverse, shape) if axis is None else inverse)
    if return_counts:
        ends = F.Concat(F.slice_axis(starts, axis=0, begin=1, end=count), _ones(F, 1) * n, dim=0)
        outs.append(ends - starts if n else starts)
    return outs if len(outs) > 1 else outs[0]


FLAGS = tuple(Param(f"return_{n}", "bool", False) for n in ("index", "inverse", "counts"))
ALL_FLAGS = {"return_index": True, "return_inverse": True, "return_counts": True}
TWICE = values([[3, 1, 3], [2, 1, 3]])
front(
    "_npi_unique",
    _unique,
    inputs=("ar",),
    params=(*FLAGS, Param("axis", "int?", None)),
    n_outputs=lambda return_index, return_inverse, return_counts, **_: (
        1 + return_index + return_inverse + return_counts
    ),
    ref=lambda xp, ar, **how: np.unique(ar, **how),
    samples=(
        sample(TWICE),
        sample((2, 3), **ALL_FLAGS),
        sample(TWICE, **ALL_FLAGS),
        sample(values([2, NAN, 1, NAN, 2]), return_counts=True),
        sample(values([[1, 2], [0, 5], [1, 2]]), axis=0, **ALL_FLAGS),
        sample(values([[1, 2, 1], [0, 5, 0]]), axis=1, return_index=True),
    ),
    doc="The values that occur, sorted; where each is first, which each element is, how many.",
)


def _set(name: str, rule: Callable, ref: Callable, doc: str) -> None:
    def full(F: Any, ar1: Array, ar2: Array) -> Array:
        on_values(name, ar1, ar2)
        return rule(F, *(F._npi_unique(x) for x in alike(F, ar1, ar2)))

    front(
        f"_npi_{name}",
        full,
        inputs=("ar1", "ar2"),
        ref=lambda xp, a, b: ref(a, b),
        samples=(
            sample(TWICE, values([5, 3, 0])),
            sample(values([1, 2]), values([[7], [8]])),
        ),
        doc=doc,
    )


def _only(F: Any, x: Array, y: Array, inside: bool) -> Array:
    found = F._npi_isin(x, y, invert=not inside)
    return F._contrib_boolean_mask(x, cast(F, found, "int64")) if x.shape[0] else x


def _joined(F: Any, x: Array, y: Array) -> Array:
    return F.Concat(x, y, dim=0)


_set(
    "union1d",
    lambda F, x, y: F._npi_unique(_joined(F, x, y)),
    np.union1d,
    "What is in either, sorted.",
)
_set(
    "intersect1d", lambda F, x, y: _only(F, x, y, True), np.intersect1d, "What is in both, sorted."
)
_set(
    "setdiff1d",
    lambda F, x, y: _only(F, x, y, False),
    np.setdiff1d,
    "What is in ar1 alone, sorted.",
)
_set(
    "setxor1d",
    lambda F, x, y: F._npi_sort(_joined(F, _only(F, x, y, False), _only(F, y, x, False))),
    np.setxor1d,
    "What is in one of both alone, sorted.",
)


def _bincount(F: Any, x: Array, *given: Array, minlength: int, has_weights: bool) -> Array:
    on_values("bincount", x)
    if dtype_of(x) in FLOATS:
        x = cast(F, x, "int64")  # lists of whole numbers are float32
    if len(x.shape) != 1:
        raise ShapeError("np.bincount", f"x must be a vector, got {tuple(x.shape)}")
    n = x.shape[0]
    x = x if dtype_of(x) in NATIVE_INTS else cast(F, x, "int64")
    low, high = F._extremes(x).asnumpy().tolist() if n else (0, -1)
    if low < 0:
        raise InvalidValue(f"np.bincount: x must not be negative, got {low}")
    size = max(minlength, high + 1)
    if not has_weights:
        return F._counts(x, size=size)
    weights = as_float(F, given[0])
    if not n:
        return F._full(shape=(size,), dtype=dtype_of(weights), value=0.0)
    return F._put_along_axis(weights, cast(F, x, "int64"), axis=0, size=size)


def _bincount_ref(xp: Any, x: Array, w: Any = None, *, minlength: int, has_weights: bool) -> Any:
    made = np.bincount(x.astype(np.int64), w, minlength)
    return made if w is None else made.astype(np.float64)


front(
    "_npi_bincount",
    _bincount,
    inputs=("x", "weights"),
    input_names=lambda has_weights, **_: ("x", "weights") if has_weights else ("x",),
    params=(Param("minlength", "int", 0), Param("has_weights", "bool", False)),
    ref=_bincount_ref,
    samples=(
        sample(values([1, 3, 1, 0], "int64")),
        sample(values([1, 3, 1], "int64"), (3,), has_weights=True, minlength=6),
    ),
    doc="How often 0, 1, 2 ... occur, or the sums of their weights; at least minlength numbers.",
)
