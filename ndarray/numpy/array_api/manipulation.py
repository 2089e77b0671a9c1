"""Shapes, orders, places, sets and sums: functions of the array API standard beside elementwise
ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod as product
from typing import Any, NamedTuple

from ....engine.error import InvalidValue, ShapeError
from ....kernels.record import Array
from ....kernels.spec import DType
from ...ndarray import NDArray
from .creation import asarray, full
from .dtypes import INTEGER, SCALARS, is_kind, joined, name_of
from .elementwise import check_kind, met
from .operators import of_np

Axis = int | tuple[int, ...] | None

# ---- shapes --------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Arrays in their common shape."""
    import numpy as onp

    shape = onp.broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to(x, shape) for x in arrays]


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """x repeated to a shape."""
    return of_np("broadcast_to")(x, shape)


def concat(arrays: Sequence[Array], /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other along an axis; None: flattened."""
    dtype = joined(*[name_of(x) for x in arrays])
    found = [x if name_of(x) == dtype else x.astype(dtype) for x in arrays]
    if axis is None:
        found, axis = [x.reshape((-1,)) if x.size else x.reshape((0,)) for x in found], 0
    return of_np("concatenate")(found, axis=axis)


def expand_dims(x: Array, /, axis: int) -> Array:
    """x with an axis of size 1 at a position."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise _AxisError("expand_dims", f"axis must be in [{-x.ndim - 1}, {x.ndim}], got {axis}")
    return of_np("expand_dims")(x, axis)


class _AxisError(ShapeError, IndexError):
    """An axis that there is not."""


def flip(x: Array, /, *, axis: Axis = None) -> Array:
    """x with the order of elements along axes reversed; None: along all."""
    return of_np("flip")(x, axis=axis)


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """x with axes at other positions."""
    return of_np("moveaxis")(x, source, destination)


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """x with its axes in another order."""
    return of_np("transpose")(x, axes)


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element, or slice along an axis, several times."""
    if isinstance(repeats, NDArray):
        if not repeats.size:  # for an axis of size 0
            return x.copy() if axis is not None else reshape(x, (0,))
        repeats = repeats.item() if repeats.size == 1 else tuple(repeats.tolist())
    return of_np("repeat")(x, repeats, axis=axis)


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """x under another shape. copy=False: on the same memory."""
    import numpy as onp

    wanted = onp.empty(x.shape, "bool").reshape(shape).shape  # -1 too, and what does not fit
    if copy is False:
        return x.reshape_view(wanted)
    return of_np("reshape")(x, wanted)


def roll(x: Array, /, shift: Any, *, axis: Axis = None) -> Array:
    """x with elements shifted along axes, those that leave entering on the other side."""
    return of_np("roll")(x, shift, axis=axis)


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """x without axes of size 1. Raises ValueError for others."""
    for a in (axis,) if isinstance(axis, int) else axis:
        if not -x.ndim <= a < x.ndim or x.shape[a] != 1:
            raise InvalidValue(f"squeeze: axis {a} must have size 1, x has shape {x.shape}")
    return of_np("squeeze")(x, axis)


def stack(arrays: Sequence[Array], /, *, axis: int = 0) -> Array:
    """Arrays along a new axis."""
    dtype = joined(*[name_of(x) for x in arrays])
    found = [x if name_of(x) == dtype else x.astype(dtype) for x in arrays]
    return of_np("stack")(found, axis=axis)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """x several times along each axis."""
    return of_np("tile")(x, repetitions)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    moved = moveaxis(x, axis, 0)
    return tuple([moved[i] for i in range(moved.shape[0])])


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Coordinates of a grid, from those of its axes."""
    n, shape = len(arrays), [x.size for x in arrays]
    places = list(range(n))
    if indexing == "xy" and n > 1:
        places[:2], shape[:2] = (1, 0), [shape[1], shape[0]]
    elif indexing not in ("xy", "ij"):
        raise InvalidValue(f"meshgrid: indexing must be xy or ij, got {indexing!r}")
    lines = [x.reshape([-1 if i == p else 1 for i in range(n)]) for x, p in zip(arrays, places)]
    return [broadcast_to(x, tuple(shape)) for x in lines]


def _triangle(name: str) -> Callable[..., Array]:
    def function(x: Array, /, *, k: int = 0) -> Array:
        return of_np(name)(x, k)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangles of matrices."
    return function


tril, triu = _triangle("tril"), _triangle("triu")

# ---- places --------------------------------------------------------------------------------------


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The slices of x at places along an axis, which a vector may leave out."""
    if axis is None and x.ndim != 1:
        raise InvalidValue(f"take: axis must be given for an array of {x.ndim} axes")
    return of_np("take")(x, indices, axis=axis or 0, mode="wrap")


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """An element of each line along an axis."""
    return of_np("take_along_axis")(x, indices, axis)


def _argument(name: str) -> Callable[..., Array]:
    def function(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
        if axis is None:
            found = of_np(name)(x.reshape((-1,)), axis=0)
            return found.reshape((1,) * x.ndim) if keepdims else found
        found = of_np(name)(x, axis=axis)
        return expand_dims(found, axis) if keepdims else found

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Where the {name[3:]}imum is along an axis: int64."
    return function


argmax, argmin = _argument("argmax"), _argument("argmin")


def count_nonzero(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements are not 0: int64."""
    return sum((x != 0).astype(INTEGER), axis=axis, keepdims=keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Where elements are not 0: an array of int64 for each axis."""
    if not x.ndim:
        raise InvalidValue("nonzero: x must have at least one axis")
    return tuple(of_np("nonzero")(x))


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Where elements of x2 would stand in the sorted vector x1."""
    x1 = x1 if sorter is None else take(x1, sorter, axis=0)
    return of_np("searchsorted")(x1, x2, side=side).astype(INTEGER)


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """x1 where a condition holds, else x2."""
    if type(x1) in SCALARS and type(x2) in SCALARS:
        one, other = asarray(x1), asarray(x2)
    else:
        one, other = met("where", "", x1, x2)
    return of_np("where")(condition, one, other)


# ---- orders and sets -----------------------------------------------------------------------------


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Elements along an axis in order."""
    found = of_np("sort")(x, axis=axis)
    return flip(found, axis=axis) if descending else found


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places of elements in order, of equal ones as they stand."""
    if not descending:
        return of_np("argsort")(x, axis=axis).astype(INTEGER)
    last = x.shape[axis] - 1 if x.ndim else 0
    found = of_np("argsort")(flip(x, axis=axis), axis=axis).astype(INTEGER)
    return flip(last - found, axis=axis)


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    """Different values, where each is first, which each element is, and how often. Every NaN is one
    of its own."""
    import numpy as onp

    made = onp.unique(x.asnumpy(), True, True, True, equal_nan=False)
    values, *places = [asarray(m, device=x.context) for m in made]
    first, inverse, counts = [p.astype(INTEGER) for p in places]
    return UniqueAll(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x: Array, /) -> UniqueCounts:
    """Different values and how often each is."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """Different values and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """Different values, in order."""
    return unique_all(x).values


# ---- sums ----------------------------------------------------------------------------------------


def _wide(dtype: str) -> str:
    """Of sums: the widest of whole numbers."""
    if is_kind(dtype, "unsigned integer"):
        return "uint64"
    return dtype if "float" in dtype else INTEGER


def _total(name: str) -> Callable[..., Array]:
    def function(
        x: Array, /, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False
    ) -> Array:
        check_kind(name, "numeric", "int64" if name_of(x) == "bool" else name_of(x))
        wide = _wide(name_of(x)) if dtype is None else name_of(dtype)
        x = x if name_of(x) == wide else x.astype(wide)
        return of_np(name)(x, axis=axis, keepdims=keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name} along axes (None: all); of whole numbers int64 or uint64."
    return function


sum, prod = _total("sum"), _total("prod")


def _running(name: str, of: str, start: int) -> Callable[..., Array]:
    def function(
        x: Array,
        /,
        *,
        axis: int | None = None,
        dtype: DType | None = None,
        include_initial: bool = False,
    ) -> Array:
        if axis is None:
            if x.ndim > 1:
                raise InvalidValue(f"{name}: axis must be given for an array of {x.ndim} axes")
            axis = 0
        wide = _wide(name_of(x)) if dtype is None else name_of(dtype)
        made = of_np(of)(x if name_of(x) == wide else x.astype(wide), axis=axis)
        if not include_initial:
            return made
        shape = list(x.shape)
        shape[axis] = 1
        return concat([full(tuple(shape), start, dtype=wide, device=x.context), made], axis=axis)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} along an axis. include_initial: with {start} in front."
    return function


cumulative_sum = _running("cumulative_sum", "cumsum", 0)
cumulative_prod = _running("cumulative_prod", "cumprod", 1)


def _reduced(name: str, kind: str) -> Callable[..., Array]:
    def function(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
        check_kind(name, kind, name_of(x))
        return of_np(name)(x, axis=axis, keepdims=keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name} along axes (None: all)."
    return function


max, min = _reduced("max", "numeric"), _reduced("min", "numeric")
mean = _reduced("mean", "real floating")
all, any = _reduced("all", ""), _reduced("any", "")


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The variance along axes: squares of differences from the mean, divided by their number -
    correction."""
    check_kind("var", "real floating", name_of(x))
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    away = x - of_np("mean")(x, axis=axis, keepdims=True)
    count = product([x.shape[a] for a in axes])
    total = sum(away * away, axis=axis, keepdims=keepdims)
    return total / full((), count - correction, dtype=name_of(x), device=x.context)


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """The square root of the variance."""
    return of_np("sqrt")(var(x, axis=axis, correction=correction, keepdims=keepdims))


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Differences of neighbours along an axis, n times."""
    parts = [p for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis=axis) if len(parts) > 1 else x
    axis = operator.index(axis) % x.ndim
    before: tuple[Any, ...] = (slice(None),) * axis
    for _ in range(n):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = later != earlier if name_of(x) == "bool" else later - earlier
    return x


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(all, any, argmax, argmin, argsort, broadcast_arrays, broadcast_to, concat, count_nonzero),
    *(cumulative_prod, cumulative_sum, diff, expand_dims, flip, max, mean, meshgrid, min, moveaxis),
    *(nonzero, permute_dims, prod, repeat, reshape, roll, searchsorted, sort, squeeze, stack, std),
    *(sum, take, take_along_axis, tile, tril, triu, unique_all, unique_counts, unique_inverse),
    *(unique_values, unstack, var, where),
)
