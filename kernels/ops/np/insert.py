"""np.delete and np.insert: slices left out of an array, or put in front of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....engine.error import IndexOutOfRange, ShapeError
from ...front import broadcast, cast, dtype_of, front, reshaped
from ...record import Array, Param, sample, values
from ...shapes import one_axis
from .order import on_values

# where: int_ind, or start to stop by step, or an input `obj` of indices
INDEX = tuple(Param(name, "int?", None) for name in ("start", "stop", "step", "int_ind", "axis"))


def _given(start: Any, stop: Any, step: Any, int_ind: Any) -> bool:
    """Do attributes say where?"""
    return not start is stop is step is int_ind is None


def _along(F: Any, op: str, arr: Array, axis: int | None) -> tuple[Array, int, int]:
    """(the array, flat without an axis; the axis that changes; its size)."""
    if axis is None:
        arr, axis = reshaped(F, arr, (int(np.prod(arr.shape)),)), 0
    axis = one_axis(op, axis, len(arr.shape))
    return arr, axis, arr.shape[axis]


def _inside(op: str, index: int, n: int, last: int) -> int:
    """An index counted from the front. Raises IndexOutOfRange."""
    if not -n <= index <= last:
        raise IndexOutOfRange(f"{op}: index must be in [{-n}, {last}], got {index}")
    return index + n if index < 0 else index


def _cut(F: Any, x: Array, axis: int, begin: int, end: int) -> Array:
    return F.slice_axis(x, axis=axis, begin=begin, end=end)


def _span(n: int, start: int | None, stop: int | None, step: int | None) -> range:
    """The elements that a slice selects of n."""
    return range(n)[slice(start, stop, step)]


# ---- delete --------------------------------------------------------------------------------------


def _kept(F: Any, n: int, gone: range) -> Array:
    """The indices that a slice with step leaves, int64: each is moved by how many go before it."""
    i = F._arange(start=0, stop=n - len(gone), dtype="int64")
    before = F._floor_divide_scalar(i - float(gone[0]), scalar=float(gone.step - 1)) + 1.0
    before = F._minimum_scalar(F._maximum_scalar(before, scalar=0.0), scalar=float(len(gone)))
    return F.broadcast_add(i, before)


def _left_of(F: Any, n: int, obj: Array) -> Array:
    """The indices that are not among obj, or where a mask does not hold. Reads values."""
    on_values("delete", obj)
    obj = reshaped(F, obj, (int(np.prod(obj.shape)),))
    if dtype_of(obj) == "bool":
        if obj.shape[0] != n:
            raise ShapeError("np.delete", f"a mask must have {n} elements, got {obj.shape[0]}")
        gone = cast(F, obj, "int64")
    elif obj.shape[0]:
        ones = F._full(shape=tuple(obj.shape), dtype="float32", value=1.0)
        gone = F._put_along_axis(ones, cast(F, obj, "int64"), axis=0, size=n)
    else:
        gone = F._full(shape=(n,), dtype="int64", value=0.0)
    every = F._arange(start=0, stop=n, dtype="int64")
    return F._contrib_boolean_mask(every, F._equal_scalar(gone, scalar=0.0)) if n else every


def _delete(F: Any, arr: Array, *obj: Array, int_ind: Any, axis: Any, **piece: Any) -> Array:
    arr, axis, n = _along(F, "np.delete", arr, axis)
    if obj:
        left = _left_of(F, n, obj[0])
        return F.take(arr, left, axis=axis) if left.shape[0] else _cut(F, arr, axis, 0, 0)
    if int_ind is not None:
        i = _inside("np.delete", int_ind, n, n - 1)
        gone = range(i, i + 1)
    else:
        gone = _span(n, **piece)
        gone = gone if gone.step > 0 else gone[::-1]
    if not gone:
        return F.identity(arr)
    if gone.step > 1 and len(gone) > 1:
        left = _kept(F, n, gone)
        return F.take(arr, left, axis=axis) if left.shape[0] else _cut(F, arr, axis, 0, 0)
    ends = _cut(F, arr, axis, 0, gone[0]), _cut(F, arr, axis, gone[-1] + 1, n)
    some = [x for x in ends if x.shape[axis]]
    return F.Concat(*some, dim=axis) if some else _cut(F, arr, axis, 0, 0)


def _delete_ref(
    xp: Any, arr: Any, obj: Any = None, *, int_ind: Any, axis: Any, **piece: Any
) -> Any:
    if obj is not None:
        obj = obj if obj.dtype == bool else obj.astype(np.int64)
    elif int_ind is not None:
        obj = int_ind
    else:
        obj = slice(piece["start"], piece["stop"], piece["step"])
    return np.delete(arr, obj, axis)


front(
    "_npi_delete",
    _delete,
    inputs=("arr", "obj"),
    input_names=lambda start, stop, step, int_ind, axis: (
        ("arr",) if _given(start, stop, step, int_ind) else ("arr", "obj")
    ),
    params=INDEX,
    ref=_delete_ref,
    samples=(
        sample((3, 4), int_ind=-1, axis=1),
        sample((3, 4), int_ind=5),
        sample((5, 2), start=1, stop=3, step=1, axis=0),
        sample((7,), start=1, step=3),
        sample((6,), start=4, stop=0, step=-2, axis=0),
        sample((3, 4), values([0, -1, 0], "int64"), axis=1),
        sample((3,), values([True, False, True], "bool"), axis=0),
    ),
    doc="arr without the slices along an axis (flat: None) at an index, a slice, indices or where"
    " a mask holds.",
)

# ---- insert --------------------------------------------------------------------------------------


def _put_in(F: Any, arr: Array, axis: int, new: Array, places: Array) -> Array:
    """new's slices in front of arr's at places, int64: both are sorted by twice their place."""
    n, count = arr.shape[axis], new.shape[axis]
    own = F._arange(start=1, stop=2 * n + 1, step=2, dtype="int64")
    keys = F.Concat(
        F.broadcast_mul(places, F._full(shape=(1,), dtype="int64", value=2.0)), own, dim=0
    )
    order = F.argsort(keys, axis=0, is_ascend=True, dtype="int64")
    both = F.Concat(new, arr, dim=axis) if n and count else new if count else arr
    return F.take(both, order, axis=axis)


def _values(F: Any, arr: Array, given: tuple, val: float | None) -> Array:
    """What is inserted, in arr's dtype, with its axes."""
    if val is None:
        new = cast(F, given[0], dtype_of(arr))
    else:
        new = F._full(shape=(), dtype=dtype_of(arr), value=val)
    return reshaped(F, new, (1,) * (len(arr.shape) - len(new.shape)) + tuple(new.shape))


def _spread(F: Any, arr: Array, axis: int, new: Array, count: int) -> Array:
    """New slices for `count` places."""
    return broadcast(F, new, (*arr.shape[:axis], count, *arr.shape[axis + 1 :]))


def _first_to(F: Any, x: Array, axis: int) -> Array:
    """x with its first axis at another place."""
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))]
    return F.transpose(x, axes=tuple(order)) if axis else x


def _insert(kind: str) -> Any:
    def rule(
        F: Any, arr: Array, *given: Array, val: Any, int_ind: Any, axis: Any, **piece: Any
    ) -> Array:
        arr, axis, n = _along(F, "np.insert", arr, axis)
        new = _values(F, arr, given, val)
        if kind == "scalar":
            i = _inside("np.insert", int_ind, n, n)
            new = _first_to(F, new, axis)
            new = _spread(F, arr, axis, new, new.shape[axis])
            parts = _cut(F, arr, axis, 0, i), new, _cut(F, arr, axis, i, n)
            return F.Concat(*[x for x in parts if x.shape[axis]] or [arr], dim=axis)
        if kind == "slice":
            at = _span(n, **piece)
            places = F._arange(start=0, stop=len(at), dtype="int64")
            places = places * float(at.step) + float(at.start)
            count = new.shape[axis] if len(at) == 1 else len(at)
        else:
            obj = cast(F, given[-1], "int64")
            places = reshaped(F, obj, (int(np.prod(obj.shape)),))
            below = cast(F, F._lesser_scalar(places, scalar=0.0), "int64")
            places = F.broadcast_add(places, below * float(n))
            single = places.shape[0] == 1
            new = _first_to(F, new, axis) if single and not obj.shape else new
            count = new.shape[axis] if single else places.shape[0]
        if not count:
            return F.identity(arr)
        places = broadcast(F, places, (count,)) if places.shape[0] == 1 else places
        return _put_in(F, arr, axis, _spread(F, arr, axis, new, count), places)

    return rule


def _insert_ref(
    xp: Any, arr: Any, *given: Any, val: Any, int_ind: Any, axis: Any, **piece: Any
) -> Any:
    new = val if val is not None else given[0]
    if int_ind is not None:
        return np.insert(arr, int_ind, new, axis)
    if piece["step"] is not None:
        return np.insert(arr, slice(*piece.values()), new, axis)
    return np.insert(arr, given[-1].astype(np.int64), new, axis)


INDICES = values([0, 2, -1], "int64")
for _kind, _more, _samples in (
    (
        "scalar",
        (),
        (
            sample((3, 4), int_ind=1, val=2.5, axis=1),
            sample((3, 4), (3,), int_ind=-1, axis=1),
            sample((3,), (2,), int_ind=3),
        ),
    ),
    (
        "slice",
        (),
        (
            sample((4, 2), val=2.5, start=0, stop=4, step=2, axis=0),
            sample((4,), (2,), start=3, step=-2),
            sample((2, 3), (2, 1), start=1, stop=2, step=1, axis=1),
        ),
    ),
    (
        "tensor",
        ("obj",),
        (
            sample((3, 2), INDICES, val=2.5, axis=0),
            sample((3, 2), (3, 2), INDICES, axis=0),
            sample((3, 2), (3, 1), values([1], "int64"), axis=1),
            sample((4,), (2,), values([1], "int64")),
        ),
    ),
):
    front(
        f"_npi_insert_{_kind}",
        _insert(_kind),
        inputs=("arr", "values", *_more),
        input_names=lambda val, _more=_more, **_: (
            ("arr", *_more) if val is not None else ("arr", "values", *_more)
        ),
        params=(Param("val", "float?", None), *INDEX),
        ref=_insert_ref,
        samples=_samples,
        doc="arr with values, or a number, in front of "
        + {"scalar": "an index", "slice": "the elements of a slice", "tensor": "indices"}[_kind]
        + " along an axis (flat: None). values broadcast and take arr's dtype.",
    )
