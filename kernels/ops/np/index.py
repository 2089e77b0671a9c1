"""Elements by index, by position and by condition, as NumPy has them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....engine.error import DynamicShape, ShapeError
from ...front import alike, cast, dtype_of, front, reshaped
from ...record import NATIVE, Array, Param, Type, operator, sample, values
from ...shapes import broadcast_shapes, one_axis
from ...traits import Eager
from ..index import places_now
from .arithmetic import NUMBER, lifted
from .shape import broadcast, mover

# ---- where ---------------------------------------------------------------------------------------


def chosen(F: Any, condition: Array, x: Array, y: Array) -> Array:
    """np.where of arrays of one dtype."""
    shape = broadcast_shapes("np.where", (condition, x, y), ("condition", "x", "y"))
    n = len(shape)
    if len(condition.shape) < n:  # a vector would choose rows
        condition = reshaped(
            F, condition, (1,) * (n - len(condition.shape)) + tuple(condition.shape)
        )
    x = reshaped(F, x, (1,) * (n - len(x.shape)) + tuple(x.shape))
    return F.where(condition, x, y)


def _where(F: Any, condition: Array, x: Array, y: Array) -> Array:
    return chosen(F, condition, *alike(F, x, y))


CONDITION = values([[1, 0, 1], [0, 0, 2]])
front(
    "_npi_where",
    _where,
    inputs=("condition", "x", "y"),
    ref=lambda xp, condition, x, y: np.where(condition, x, y),
    samples=(
        sample(CONDITION, (2, 3), (2, 3)),
        sample(CONDITION, (3,), ()),
        sample(values([1, 0, 1]), (3, 1), (1, 3)),
    ),
    doc="x where condition is not 0, else y; all broadcast.",
)


def _with_number(name: str, array: str, first: bool) -> None:
    """A choice between an array and a number. first: the number stands where condition holds."""

    def rule(F: Any, condition: Array, x: Array, scalar: Any, is_int: bool) -> Array:
        x = cast(F, x, lifted(dtype_of(x), is_int))
        number = F._full(shape=(), value=scalar, dtype=dtype_of(x))
        return chosen(F, condition, number, x) if first else chosen(F, condition, x, number)

    def ref(xp: Any, condition: Any, x: Any, scalar: float, is_int: bool) -> Any:
        number = int(scalar) if is_int else scalar
        return np.where(condition, number, x) if first else np.where(condition, x, number)

    front(
        name,
        rule,
        inputs=("condition", array),
        params=(Param("scalar", "float", 0.0, dynamic=True), NUMBER[1]),
        ref=ref,
        samples=(
            sample(CONDITION, (2, 3), scalar=2.5, is_int=False),
            sample(CONDITION, (3,), scalar=2.0),
        ),
        doc=f"A number where condition is {'not ' if first else ''}0, else {array}.",
    )


_with_number("_npi_where_lscalar", "x", first=True)
_with_number("_npi_where_rscalar", "y", first=False)

# ---- take ----------------------------------------------------------------------------------------


def _take(F: Any, a: Array, indices: Array, axis: int | None, mode: str) -> Array:
    if axis is None:
        a, axis = reshaped(F, a, (prod(a.shape),)), 0
    axis = one_axis("np.take", axis, len(a.shape))
    if not a.shape[axis] and prod(indices.shape):
        raise ShapeError("np.take", f"cannot take of an empty axis, got a {tuple(a.shape)}")
    if not prod(indices.shape):
        none = tuple(a.shape[:axis]) + (0,) + tuple(a.shape[axis + 1 :])
        empty = F.slice_axis(a, axis=axis, begin=0, end=0)
        shape = tuple(a.shape[:axis]) + tuple(indices.shape) + tuple(a.shape[axis + 1 :])
        return reshaped(F, empty, shape) if none != shape else empty
    if dtype_of(indices) not in NATIVE:
        indices = cast(F, indices, "int64")
    return F.take(a, indices, axis=axis, mode="index" if mode == "raise" else mode)


front(
    "_npi_take",
    _take,
    inputs=("a", "indices"),
    params=(Param("axis", "int?", None), Param("mode", ("raise", "wrap", "clip"), "raise")),
    ref=lambda xp, a, indices, axis, mode: np.take(
        a, np.asarray(indices).astype(np.int64), axis=axis, mode=mode
    ),
    samples=(
        sample((3, 4), values([[0, 2], [-1, 1]])),
        sample((3, 4), values([[0, 2], [-1, 1]]), axis=1),
        sample((3, 4), values([0, 7, -1]), axis=0, mode="clip"),
        sample((2, 3, 4), values([0, 7, -1]), axis=-1, mode="wrap"),
    ),
    doc="Elements of a (flat without axis), or slices along an axis, at indices. Negative ones"
    " count from the end; others outside raise, wrap around or are clipped to the nearest.",
)


def _take_along(F: Any, arr: Array, indices: Array, axis: int | None) -> Array:
    if axis is None:
        arr, axis = reshaped(F, arr, (prod(arr.shape),)), 0
    n, op = len(arr.shape), "np.take_along_axis"
    axis = one_axis(op, axis, n)
    if len(indices.shape) != n:
        raise ShapeError(op, f"indices must have arr's {n} axes, got {tuple(indices.shape)}")

    def without(x: Array) -> tuple[int, ...]:
        return tuple([1 if i == axis else s for i, s in enumerate(x.shape)])

    both = broadcast_shapes(op, [Type(without(x)) for x in (arr, indices)], ("arr", "indices"))
    arr = broadcast(F, arr, tuple([arr.shape[i] if i == axis else s for i, s in enumerate(both)]))
    indices = broadcast(
        F, indices, tuple([indices.shape[i] if i == axis else s for i, s in enumerate(both)])
    )
    return F._take_along_axis(arr, indices, axis=axis)


front(
    "_npi_take_along_axis",
    _take_along,
    inputs=("arr", "indices"),
    params=(Param("axis", "int?", -1),),
    ref=lambda xp, arr, indices, axis: np.take_along_axis(
        arr, np.asarray(indices).astype(np.int64), axis=axis
    ),
    samples=(
        sample((2, 3), values([[0, -1], [1, 1]]), axis=1),
        sample((2, 3), values([[0, 1, 1]]), axis=0),
        sample((2, 3), values([5, 0, 0]), axis=None),
    ),
    doc="arr at indices along an axis; the other axes run with the indices'.",
)

# ---- places of what is not 0 ---------------------------------------------------------------------


def _nonzero_infer(ins: Any) -> list[Type]:
    raise DynamicShape("np.nonzero", "its shape depends on values", fix="call it eagerly")


def _nonzero_now(call: Any, inputs: Any, out: Any) -> Any:
    (x,) = inputs
    places = places_now(call, x)
    if not places.size or not x.shape:
        none = call("slice_axis", places, axis=1, begin=0, end=0)
        return call("reshape_to", none, shape=(places.shape[1], len(x.shape)), out=out)
    return call("transpose", places, out=out)


operator(
    "_npx_nonzero",
    aliases=("_npi_nonzero",),
    inputs=("a",),
    infer=_nonzero_infer,
    ref=lambda xp, a: np.argwhere(a),
    traits=(Eager(_nonzero_now),),
    samples=(sample(values([[0, 1, 0], [2, 0, 3]])), sample(values([0.0, 0.0]))),
    doc="Where a is not 0: one row of indices for each such element, int64.",
)

# ---- diagonals and triangles ---------------------------------------------------------------------


def _diag(F: Any, x: Array, k: int) -> Array:
    if len(x.shape) not in (1, 2):
        raise ShapeError("np.diag", f"the array must have one or two axes, got {tuple(x.shape)}")
    return F.diag(x, k=k) if len(x.shape) == 1 else _diagonal(F, x, k, 0, 1)


def _diagonal(F: Any, a: Array, offset: int, axis1: int, axis2: int) -> Array:
    n = len(a.shape)
    if n < 2:
        raise ShapeError("np.diagonal", f"a must have two axes at least, got {tuple(a.shape)}")
    one, two = one_axis("np.diagonal", axis1, n), one_axis("np.diagonal", axis2, n)
    rows, columns = a.shape[one] + min(offset, 0), a.shape[two] - max(offset, 0)
    if one != two and min(rows, columns) <= 0:
        rest = tuple([s for i, s in enumerate(a.shape) if i not in (one, two)])
        return F.reshape_to(F.slice_axis(a, axis=one, begin=0, end=0), shape=(*rest, 0))
    return F.diag(a, k=offset, axis1=axis1, axis2=axis2)


K = Param("k", "int", 0)
mover(
    "_np_diag",
    _diag,
    np.diag,
    (K,),
    (sample((3,), k=1), sample((3, 4)), sample((3, 4), k=-1), sample((2, 2), k=5)),
    "The k-th diagonal of a matrix; of a vector the matrix with that diagonal.",
    array="array",
)
mover(
    "_np_diagflat",
    lambda F, x, k: F.diag(reshaped(F, x, (prod(x.shape),)), k=k),
    np.diagflat,
    (K,),
    (sample((2, 2)), sample((3,), k=-1), sample(())),
    "The matrix whose k-th diagonal is the flat array.",
    array="array",
)
mover(
    "_np_diagonal",
    _diagonal,
    np.diagonal,
    (Param("offset", "int", 0), Param("axis1", "int", 0), Param("axis2", "int", 1)),
    (sample((3, 4), offset=1), sample((2, 3, 4), axis1=-1, axis2=0), sample((2, 2), offset=3)),
    "A diagonal over two axes, as the last axis.",
)


def below(F: Any, rows: int, columns: int, k: int) -> Array:
    """1.0 on and below the k-th diagonal of a matrix, else 0.0."""
    i = F.reshape_to(F._arange(start=k, stop=k + rows, dtype="float32"), shape=(rows, 1))
    j = F.reshape_to(F._arange(start=0, stop=columns, dtype="float32"), shape=(1, columns))
    return F.broadcast_greater_equal(i, j)


def _triangle(name: str, ref: Any, upper: bool) -> None:
    def rule(F: Any, m: Array, k: int) -> Array:
        shape = tuple(m.shape)
        if not shape:
            raise ShapeError(name, "m must have at least one axis, got ()")
        if len(shape) == 1:  # of the square matrix of such rows
            m = broadcast(F, m, (shape[0], shape[0]))
            shape = tuple(m.shape)
        if 0 in shape:
            return m
        inside = below(F, shape[-2], shape[-1], k - upper)
        inside = reshaped(F, inside, (1,) * (len(shape) - 2) + shape[-2:])
        zero = F.zeros_like(m)
        return F.where(inside, zero, m) if upper else F.where(inside, m, zero)

    mover(
        name,
        rule,
        ref,
        (K,),
        (sample((3, 4)), sample((3, 4), k=-1), sample((2, 3, 3), k=1), sample((3,))),
        f"m with zeros {'below' if upper else 'above'} the k-th diagonal of its last two axes.",
        array="m",
    )


_triangle("_npi_tril", np.tril, upper=False)
_triangle("_npi_triu", np.triu, upper=True)

# ---- numbers of places ---------------------------------------------------------------------------


def _choose(F: Any, a: Array, *choices: Array, num_args: int, mode: str) -> Array:
    n = num_args - 1
    if n < 1:
        raise ShapeError("np.choose", "needs at least one choice")
    at = cast(F, a, "int64")
    if mode == "wrap":
        at = F._mod_scalar(at, scalar=float(n))
    arrays = alike(F, *choices)
    y = arrays[-1]
    for i in reversed(range(n - 1)):
        is_this = F._lesser_equal_scalar if i == 0 and mode == "clip" else F._equal_scalar
        y = chosen(F, is_this(at, scalar=float(i)), arrays[i], y)
    names = ["a", *[f"choices[{i}]" for i in range(n)]]
    shape = broadcast_shapes("np.choose", (a, *choices), names)
    return broadcast(F, y, shape)


def _choose_ref(xp: Any, a: Any, *choices: Any, num_args: int, mode: Any) -> Any:
    at: Any = np.asarray(a).astype(np.int64)
    return np.choose(at, choices, mode=mode)


front(
    "_npi_choose",
    _choose,
    inputs=("*data",),
    variadic_key="num_args",
    params=(Param("num_args", "int"), Param("mode", ("raise", "wrap", "clip"), "raise")),
    ref=_choose_ref,
    samples=(
        sample(values([[0, 1, 2], [2, 1, 0]]), (2, 3), (3,), (), num_args=4),
        sample(values([-1, 1, 7]), (3,), (3,), num_args=3, mode="wrap"),
        sample(values([-1, 1, 7]), (3,), (3,), num_args=3, mode="clip"),
    ),
    doc="Of the arrays after the first, which all broadcast, the elements of the one whose"
    " number the first says.",
)
