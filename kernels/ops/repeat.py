"""tile, repeat and the broadcasts: operators that repeat elements."""

from __future__ import annotations

from math import prod

from ...engine.error import ShapeError
from ..loops import same_form
from ..pointwise import sum_to
from ..record import LARGE, Param, Type, operator, sample
from ..shapes import one_axis
from ..traits import Broadcast, LoopForm
from .shape import mover


def _tiled(shape, reps):
    n = max(len(shape), len(reps))
    if any(r < 0 for r in reps):
        raise ShapeError("tile", f"reps must not be negative, got {reps}")
    return (1,) * (n - len(shape)) + tuple(shape), (1,) * (n - len(reps)) + tuple(reps)


def _tile_grad(F, dy, x, reps):
    shape, reps = _tiled(x.shape, reps)
    parts = F.reshape_to(dy, shape=tuple(v for pair in zip(reps, shape) for v in pair))
    return (
        F.reshape_to(F.sum(parts, axis=tuple(range(0, 2 * len(shape), 2))), shape=x.shape)
        if shape
        else dy
    )


mover(
    "tile",
    lambda x, reps: [n * r for n, r in zip(*_tiled(x, reps))],
    lambda xp, x, reps: xp.tile(x, reps),
    _tile_grad,
    params=(Param("reps", "shape"),),
    samples=(sample((2, 3), reps=(2,)), sample((3,), reps=(2, 1, 3)), sample((2, 3), reps=(2, 2))),
    doc="data repeated as a whole, reps[i] times along axis i, aligned at the last axes.",
)


def _repeat_axis(shape, repeats, axis):
    if repeats < 0:
        raise ShapeError("repeat", f"repeats must not be negative, got {repeats}")
    return axis if axis is None else one_axis("repeat", axis, len(shape))


def _repeated(shape, repeats, axis):
    axis = _repeat_axis(shape, repeats, axis)
    return (
        (prod(shape) * repeats,)
        if axis is None
        else (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
    )


def _repeat_grad(F, dy, x, repeats, axis):
    shape, axis = tuple(x.shape), _repeat_axis(x.shape, repeats, axis)
    split = (
        (prod(shape), repeats)
        if axis is None
        else (*shape[: axis + 1], repeats, *shape[axis + 1 :])
    )
    return F.reshape_to(
        F.sum(F.reshape_to(dy, shape=split), axis=(1 if axis is None else axis + 1,)), shape=shape
    )


def _repeat_ref(xp, x, repeats, axis):
    if 0 not in x.shape:
        return xp.repeat(x, repeats, axis=axis)
    n_axes = len(x.shape)  # NumPy would count to `repeats` and copy nothing
    times = [repeats if axis is not None and i == axis % n_axes else 1 for i in range(n_axes)]
    return xp.tile(x.reshape(-1) if axis is None else x, (1,) if axis is None else times)


mover(
    "repeat",
    _repeated,
    _repeat_ref,
    _repeat_grad,
    params=(Param("repeats", "int", limits=LARGE), Param("axis", "int?", None)),
    samples=(
        sample((2, 3), repeats=2),
        sample((2, 3), repeats=3, axis=-1),
        sample((2, 3), repeats=1, axis=0),
    ),
    doc="Each element repeated along an axis, or in the flattened array where axis is None.",
)


def _spread_shape(op, shape, target):
    if len(shape) > len(target):
        raise ShapeError(op, f"shape must have at least data's {len(shape)} axes, got {target}")
    source = (1,) * (len(target) - len(shape)) + tuple(shape)
    out = tuple(s if t == 0 else t for s, t in zip(source, target))
    if any(s not in (1, t) or t < 0 for s, t in zip(source, out)):
        raise ShapeError(
            op,
            f"each axis must be equal or 1 in data, got data {shape} and shape {target}",
            fix="broadcasting aligns the last axes: reshape data first",
        )
    return out


mover(
    "broadcast_to",
    lambda x, shape: _spread_shape("broadcast_to", x, shape),
    lambda xp, x, shape: xp.broadcast_to(x, _spread_shape("broadcast_to", x.shape, shape)),
    lambda F, dy, x, shape: sum_to(F, dy, x.shape),
    params=(Param("shape", "shape", ()),),
    samples=(
        sample((1, 3, 1), shape=(2, 3, 4)),
        sample((1, 3), shape=(2, 0)),
        sample((3,), shape=(2, 3)),
    ),
    traits=(Broadcast(), LoopForm(same_form)),
    doc="data repeated along its axes of size 1 to a shape; a 0 keeps data's size.",
)


def _broadcast_like(op, lhs, rhs, lhs_axes, rhs_axes):
    if lhs_axes is None or rhs_axes is None:
        target = list(rhs)
        if len(target) < len(lhs):
            raise ShapeError(op, f"rhs must have at least lhs's axes, got lhs {lhs} and rhs {rhs}")
    else:
        if not lhs_axes or not rhs_axes or len(lhs_axes) != len(rhs_axes):
            raise ShapeError(
                op, f"lhs_axes and rhs_axes must have one length, got {lhs_axes} and {rhs_axes}"
            )
        target = list(lhs)
        for a, b in zip(lhs_axes, rhs_axes):
            target[one_axis(op, a, len(lhs))] = rhs[one_axis(op, b, len(rhs))]
    source = (1,) * (len(target) - len(lhs)) + tuple(lhs)
    if any(s not in (1, t) for s, t in zip(source, target)):
        raise ShapeError(
            op, f"each axis of lhs must be equal to rhs's or 1, got lhs {lhs} and rhs {rhs}"
        )
    return tuple(target)


operator(
    "broadcast_like",
    aliases=("_npx_broadcast_like",),
    traits=(Broadcast(),),
    inputs=("lhs", "rhs"),
    params=(Param("lhs_axes", "shape?", None), Param("rhs_axes", "shape?", None)),
    infer=lambda ins, **attrs: [
        Type(_broadcast_like("broadcast_like", ins[0].shape, ins[1].shape, **attrs), ins[0].dtype)
    ],
    ref=lambda xp, lhs, rhs, **attrs: xp.broadcast_to(
        lhs, _broadcast_like("broadcast_like", lhs.shape, rhs.shape, **attrs)
    ),
    grad=lambda F, dys, xs, ys, **attrs: [sum_to(F, dys[0], xs[0].shape), None],
    samples=(
        sample((1, 3, 1), (2, 3, 4)),
        sample((1, 3, 1), (5, 6), lhs_axes=(0, -1), rhs_axes=(0, 1)),
    ),
    doc=(
        "lhs repeated along its axes of size 1 to the shape of rhs, or to some of rhs's axes (both"
        " lhs_axes and rhs_axes given)."
    ),
)


def _broadcast_axis(shape, axis, size):
    if len(axis) != len(size):
        raise ShapeError(
            "broadcast_axis", f"axis and size must have one length, got {axis} and {size}"
        )
    out = list(shape)
    for a, n in zip(axis, size):
        i = one_axis("broadcast_axis", a, len(shape))
        if shape[i] != 1 or n < 0:
            raise ShapeError(
                "broadcast_axis", f"axis {i} must have size 1, got data {shape} and size {n}"
            )
        out[i] = n
    return tuple(out)


mover(
    "broadcast_axis",
    _broadcast_axis,
    lambda xp, x, **attrs: xp.broadcast_to(x, _broadcast_axis(x.shape, **attrs)),
    lambda F, dy, x, axis, size: sum_to(F, dy, x.shape),
    aliases=("broadcast_axes",),
    params=(Param("axis", "shape", ()), Param("size", "shape", ())),
    samples=(sample((1, 3, 1), axis=(0, 2), size=(2, 4)), sample((1, 3, 1), axis=-1, size=5)),
    traits=(Broadcast(), LoopForm(same_form)),
    doc="data repeated along given axes of size 1.",
)
