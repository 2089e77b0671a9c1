"""Shapes, and the order of axes and elements, as in NumPy: () stays (), -1 is the only code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import front, reshaped
from ...record import REQUIRED, Array, Param, Sample, sample
from ...shapes import many_axes, one_axis


def mover(
    name: str,
    rule: Callable[..., Any],
    ref: Callable[..., Any],
    params: Sequence[Param],
    samples: Sequence[Sample],
    doc: str,
    array: str = "a",
) -> None:
    """Registers a front of one array. ref: NumPy's function, called with the parameters by name."""
    front(
        name,
        rule,
        ref=lambda xp, x, **attrs: ref(x, **attrs),
        inputs=(array,),
        params=tuple(params),
        samples=tuple(samples),
        doc=doc,
    )


# ---- other shapes --------------------------------------------------------------------------------

ORDER = Param("order", ("C", "F", "A", "K"), "C")


def whole_shape(op: str, shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """A target shape with its one -1 replaced. Raises ShapeError."""
    size, known = prod(shape), prod([n for n in target if n != -1])
    unknown = list(target).count(-1)
    rule = f"cannot reshape an array of shape {tuple(shape)} into {tuple(target)}"
    if unknown > 1 or any(n < -1 for n in target):
        raise ShapeError(op, f"{rule}: sizes must not be negative, but for one -1")
    if unknown and not known:
        raise ShapeError(op, f"{rule}: -1 could be anything")
    found = tuple([size // known if n == -1 else n for n in target])
    if prod(found) != size:
        raise ShapeError(op, f"{rule}: they have {size} and {prod(found)} elements")
    return found


def _reshape(F: Any, a: Array, newshape: Sequence[int], order: str) -> Array:
    target = whole_shape("np.reshape", a.shape, newshape)
    if order != "F" or max(len(target), len(a.shape)) < 2:
        return F.reshape_to(a, shape=target)
    return F.transpose(F.reshape_to(F.transpose(a), shape=target[::-1]))


mover(
    "_np_reshape",
    _reshape,
    lambda a, newshape, order: np.reshape(a, newshape, order="F" if order == "F" else "C"),
    (Param("newshape", "shape"), ORDER),
    (
        sample((2, 6), newshape=(3, -1)),
        sample((2, 6), newshape=(4, 3), order="F"),
        sample((1,), newshape=()),
    ),
    "a in another shape of as many elements; one size may be -1.",
)


def _squeeze(F: Any, a: Array, axis: Any) -> Array:
    n = len(a.shape)
    ones = tuple([i for i in range(n) if a.shape[i] == 1])
    axes = ones if axis is None else axis and many_axes("np.squeeze", axis, n)
    if any(a.shape[i] != 1 for i in axes):
        raise ShapeError("np.squeeze", f"axis {axis} must have size 1, got a {tuple(a.shape)}")
    return F.reshape_to(a, shape=tuple([s for i, s in enumerate(a.shape) if i not in axes]))


mover(
    "_np_squeeze",
    _squeeze,
    np.squeeze,
    (Param("axis", "shape?", None),),
    (sample((1, 3, 1)), sample((1, 3, 1), axis=-1), sample((1, 1))),
    "a without its axes of size 1, or without these ones.",
)


def _expand_dims(F: Any, a: Array, axis: Sequence[int]) -> Array:
    n = len(a.shape) + len(axis)
    axes = axis and many_axes("np.expand_dims", axis, n)
    sizes = iter(a.shape)
    return F.reshape_to(a, shape=tuple([1 if i in axes else next(sizes) for i in range(n)]))


mover(
    "_npi_expand_dims",
    _expand_dims,
    np.expand_dims,
    (Param("axis", "shape"),),
    (sample((2, 3), axis=0), sample((2, 3), axis=(0, -1)), sample((), axis=0)),
    "a with new axes of size 1 at `axis`, an int or several.",
)


def _at_least(n: int, place: Callable[[Any], tuple[int, ...]], ref: Callable) -> None:
    front(
        f"_np_atleast_{n}d",
        lambda F, *arys, num_args: [
            x if len(x.shape) >= n else F.reshape_to(x, shape=place(x.shape)) for x in arys
        ],
        ref=lambda xp, *arys, num_args: tuple([ref(x) for x in arys]),
        inputs=("*arys",),
        variadic_key="num_args",
        n_outputs=lambda num_args: num_args,
        params=(Param("num_args", "int"),),
        samples=(sample((), num_args=1), sample((3,), (2, 3), num_args=2)),
        doc=f"Arrays with {n} axes at least: new ones have size 1.",
    )


_at_least(1, lambda shape: (1,), np.atleast_1d)
_at_least(2, lambda shape: (1,) * (2 - len(shape)) + tuple(shape), np.atleast_2d)
_at_least(
    3,
    lambda shape: (
        ((1, *shape) if len(shape) == 1 else tuple(shape) or (1,)) + (1,) * (1 if shape else 2)
    ),
    np.atleast_3d,
)


def broadcast(F: Any, x: Array, shape: Sequence[int]) -> Array:
    """x repeated along axes of size 1, and along new ones in front, until it has a shape."""
    shape, given = tuple(shape), tuple(x.shape)
    if given == shape:
        return x
    aligned = (1,) * (len(shape) - len(given)) + given
    if len(given) > len(shape) or any(a not in (1, n) for a, n in zip(aligned, shape)):
        raise ShapeError("np.broadcast_to", f"cannot broadcast array {given} to shape {shape}")
    if 0 in shape:
        return (
            F.reshape_to(F.slice(x, begin=(0,) * len(given), end=(0,) * len(given)), shape=shape)
            if given
            else F._zeros(shape=shape, dtype=str(np.dtype(x.dtype)))
        )
    return F.broadcast_to(reshaped(F, x, aligned), shape=shape)


mover(
    "_npi_broadcast_to",
    lambda F, array, shape: broadcast(F, array, shape),
    np.broadcast_to,
    (Param("shape", "shape", ()),),
    (sample((3,), shape=(2, 3)), sample((2, 1), shape=(2, 2, 3)), sample((), shape=(2,))),
    "array repeated to a shape that it broadcasts to.",
    array="array",
)


# ---- order of axes -------------------------------------------------------------------------------


def _transpose(F: Any, a: Array, axes: Sequence[int] | None) -> Array:
    n = len(a.shape)
    if axes is not None and sorted([one_axis("np.transpose", i, n) for i in axes]) != list(
        range(n)
    ):
        raise ShapeError("np.transpose", f"axes must name each of the {n} axes once, got {axes}")
    return F.transpose(a, axes=axes or ())


mover(
    "_np_transpose",
    _transpose,
    np.transpose,
    (Param("axes", "shape?", None),),
    (sample((2, 3, 4)), sample((2, 3, 4), axes=(1, 2, 0)), sample(())),
    "Axes in another order; reversed without axes.",
)


def _swapaxes(F: Any, a: Array, dim1: int, dim2: int) -> Array:
    one_axis("np.swapaxes", dim1, len(a.shape)), one_axis("np.swapaxes", dim2, len(a.shape))
    return F.SwapAxis(a, dim1=dim1, dim2=dim2)


mover(
    "_npi_swapaxes",
    _swapaxes,
    lambda a, dim1, dim2: np.swapaxes(a, dim1, dim2),
    (Param("dim1", "int", 0), Param("dim2", "int", 0)),
    (sample((2, 3, 4), dim1=0, dim2=-1),),
    "Two axes exchanged.",
)


def move_axes(F: Any, a: Array, source: Sequence[int], destination: Sequence[int]) -> Array:
    """np.moveaxis of tuples."""
    n, op = len(a.shape), "np.moveaxis"
    if len(source) != len(destination) or len(set(source)) != len(source):
        raise ShapeError(
            op, f"source and destination must be as many axes, got {source}, {destination}"
        )
    froms, tos = [one_axis(op, i, n) for i in source], [one_axis(op, i, n) for i in destination]
    if len(set(froms)) != len(froms) or len(set(tos)) != len(tos):
        raise ShapeError(op, f"axes must differ, got source {source} and destination {destination}")
    order = [i for i in range(n) if i not in froms]
    for to, i in sorted(zip(tos, froms)):
        order.insert(to, i)
    return a if order == list(range(n)) else F.transpose(a, axes=tuple(order))


mover(
    "_np_moveaxis",
    move_axes,
    np.moveaxis,
    (Param("source", "shape"), Param("destination", "shape")),
    (
        sample((2, 3, 4), source=0, destination=-1),
        sample((2, 3, 4), source=(0, 1), destination=(-1, 0)),
    ),
    "Axes moved to other places; the others keep their order.",
)


def _rollaxis(F: Any, a: Array, axis: int, start: int) -> Array:
    n = len(a.shape)
    axis, start = one_axis("np.rollaxis", axis, n), start + n if start < 0 else start
    if not 0 <= start <= n:
        raise ShapeError("np.rollaxis", f"start must be in [{-n}, {n}], got {start}")
    return move_axes(F, a, (axis,), (start - (axis < start),))


mover(
    "_npi_rollaxis",
    _rollaxis,
    np.rollaxis,
    (Param("axis", "int"), Param("start", "int", 0)),
    (sample((2, 3, 4), axis=2), sample((2, 3, 4), axis=0, start=3)),
    "An axis moved until it lies at `start`.",
)


# ---- order of elements ---------------------------------------------------------------------------


def flipped(F: Any, m: Array, axis: Sequence[int] | None) -> Array:
    """np.flip."""
    n = len(m.shape)
    axes = tuple(range(n)) if axis is None else axis and many_axes("np.flip", axis, n)
    return F.reverse(m, axis=axes) if axes and 0 not in m.shape else m


mover(
    "_npi_flip",
    flipped,
    np.flip,
    (Param("axis", "shape?", None),),
    (sample((2, 3)), sample((2, 3, 4), axis=1), sample((2, 3, 4), axis=(0, -1))),
    "Elements in reverse order along axes, or all.",
    array="m",
)


def _rot90(F: Any, m: Array, k: int, axes: Sequence[int] | None) -> Array:
    axes, n = axes or (0, 1), len(m.shape)
    if len(axes) != 2 or one_axis("np.rot90", axes[0], n) == one_axis("np.rot90", axes[1], n):
        raise ShapeError("np.rot90", f"axes must be two, got {axes} of m {tuple(m.shape)}")
    a, b = axes
    x = flipped(F, m, ((), (b,), (a, b), (a,))[k % 4])
    return F.SwapAxis(x, dim1=a, dim2=b) if k % 2 else x


mover(
    "_npi_rot90",
    _rot90,
    lambda m, k, axes: np.rot90(m, k, axes or (0, 1)),
    (Param("k", "int", 1), Param("axes", "shape?", (0, 1))),
    tuple(sample((2, 3), k=k) for k in (0, 1, 2, 3)) + (sample((2, 3, 4), k=-1, axes=(2, 0)),),
    "m turned by 90 degrees k times in the plane of two axes, from the first to the second.",
    array="m",
)


def _rolled(F: Any, x: Array, shift: int, axis: int) -> Array:
    n = x.shape[axis]
    shift = shift % n if n else 0
    if not shift:
        return x
    return F._rolled(x, axis=axis, shift=shift)


def _roll(F: Any, a: Array, shift: tuple[int, ...], axis: tuple[int, ...] | None) -> Array:
    if axis is None:
        flat = reshaped(F, a, (prod(a.shape),))
        return reshaped(F, _rolled(F, flat, sum(shift), 0), a.shape)
    shifts = shift * len(axis) if len(shift) == 1 else shift
    axes = axis * len(shift) if len(axis) == 1 else axis
    if len(shifts) != len(axes):
        raise ShapeError("np.roll", f"shift and axis must be as many, got {shift} and {axis}")
    for s, i in zip(shifts, axes):
        a = _rolled(F, a, s, one_axis("np.roll", i, len(a.shape)))
    return a


mover(
    "_np_roll",
    _roll,
    np.roll,
    (Param("shift", "shape"), Param("axis", "shape?", None)),
    (
        sample((2, 3), shift=2),
        sample((2, 3), shift=1, axis=1),
        sample((2, 3, 4), shift=(1, -2), axis=(0, 2)),
    ),
    "Elements moved along axes, the last ones to the front; without axis those of the flat array.",
)

# ---- repetition ----------------------------------------------------------------------------------

mover(
    "_npi_tile",
    lambda F, A, reps: F.tile(A, reps=reps),
    lambda A, reps: np.tile(A, reps),
    (Param("reps", "shape"),),
    (sample((2, 3), reps=2), sample((3,), reps=(2, 1, 3))),
    "A repeated as a whole, reps[i] times along axis i, aligned at the last axes.",
    array="A",
)


def _repeat(F: Any, a: Array, repeats: int, axis: int | None) -> Array:
    if axis is None:
        a, axis = reshaped(F, a, (prod(a.shape),)), 0
    return F.repeat(a, repeats=repeats, axis=axis)


mover(
    "_np_repeat",
    _repeat,
    np.repeat,
    (Param("repeats", "int", REQUIRED), Param("axis", "int?", None)),
    (sample((2, 3), repeats=2), sample((2, 3), repeats=3, axis=1), sample((), repeats=2)),
    "Each element repeated, along an axis or of the flat array.",
)
