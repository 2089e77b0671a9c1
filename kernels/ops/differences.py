"""Differences of neighbours along an axis, and slopes from them."""

from __future__ import annotations

from typing import Any

from ...engine.error import ShapeError
from ..record import NATIVE_INTS, Array, Param, Shape, dtype_name, operator, sample, values
from ..shapes import one_axis

# for each dtype a sample of each loop: one result or several, which lie beside each other or not
LOOPS = ([1, 0], [1, 0, 0, 1], [[0, 1], [1, 0]], [[0, 1, 1], [1, 1, 0]])
OF_WHOLE = tuple(sample(values(x, dtype)) for dtype in (*NATIVE_INTS, "bool") for x in LOOPS)


def _part(n_axes: int, axis: int, begin: int | None, end: int | None) -> tuple[slice, ...]:
    """The key of a range of one axis."""
    return tuple([slice(begin, end) if i == axis else slice(None) for i in range(n_axes)])


def _shorter(shape: Shape, axis: int) -> tuple[int, ...]:
    return tuple([max(n - 1, 0) if i == axis else n for i, n in enumerate(shape)])


def _end(F: Any, x: Array, axis: int, begin: int, end: int) -> Array:
    """A range of one axis; negative numbers count from its end."""
    n = x.shape[axis]
    return F.slice_axis(x, axis=axis, begin=begin + n * (begin < 0), end=end + n * (end <= 0))


# ---- differences ---------------------------------------------------------------------------------
def _diff_infer(ins, axis):
    axis = one_axis("_diff", axis, len(ins[0].shape))
    return [ins[0]._replace(shape=_shorter(ins[0].shape, axis))]


def _diff_ref(xp, x, axis):
    axis = one_axis("_diff", axis, x.ndim)
    after, before = x[_part(x.ndim, axis, 1, None)], x[_part(x.ndim, axis, None, -1)]
    return after != before if x.dtype == bool else after - before


def _diff_grad(F, dys, xs, ys, axis):
    """An element is added to one difference and subtracted from the next one."""
    axis, dy = one_axis("_diff", axis, len(xs[0].shape)), dys[0]
    if dtype_name(dy.dtype) == "bool" or not xs[0].shape[axis]:
        return [None]
    edge = F._zeros(shape=[1 if i == axis else n for i, n in enumerate(dy.shape)], dtype=dy.dtype)
    return [F.negative(F._diff(F.Concat(edge, dy, edge, dim=axis), axis=axis))]


operator(
    "_diff",
    params=(Param("axis", "int", -1),),
    infer=_diff_infer,
    ref=_diff_ref,
    grad=_diff_grad,
    samples=(*map(sample, ((2,), (6,), (2, 2), (2, 5))), sample((3, 4), axis=0), *OF_WHOLE),
    doc="Each element but the first less the one before it along an axis. Bools: do they differ.",
)


# ---- slopes --------------------------------------------------------------------------------------
def _slopes_infer(ins, axis, edge_order, step):
    n = ins[0].shape[one_axis("_slopes", axis, len(ins[0].shape))]
    if n <= edge_order:
        raise ShapeError("_slopes", f"axis {axis} must have {edge_order + 1} elements, got {n}")
    return [ins[0]]


def _slopes_ref(xp, x, axis, edge_order, step):
    """In NumPy's order of operations."""
    axis = one_axis("_slopes", axis, x.ndim)
    at = lambda begin, end: x[_part(x.ndim, axis, begin, end)]
    inside = (at(2, None) - at(None, -2)) / (2.0 * step)
    if edge_order == 1:
        first, last = (at(1, 2) - at(0, 1)) / step, (at(-1, None) - at(-2, -1)) / step
    else:
        of = lambda a, b, c, k: (
            a / step * at(k, k + 1)
            + b / step * at(k + 1, k + 2)
            + c / step * (at(k + 2, k + 3 or None))
        )
        first, last = of(-1.5, 2.0, -0.5, 0), of(0.5, -2.0, 1.5, -3)
    return xp.concatenate([first, inside, last], axis=axis)


def _slopes_grad(F, dys, xs, ys, axis, edge_order, step):
    """Inside, an element is added to half the slope before it and subtracted from half that after
    it; the ends have whole differences, and with edge_order 2 half a second difference."""
    axis, dy = one_axis("_slopes", axis, len(xs[0].shape)), dys[0]
    dy, n = dy / step, dy.shape[axis]
    first, last = _end(F, dy, axis, 0, 1), _end(F, dy, axis, -1, 0)
    parts = [first, *([_end(F, dy, axis, 1, -1) * 0.5] if n > 2 else []), last]
    d = F.Concat(*parts, dim=axis)
    ends = [_end(F, d, axis, k, k + 2) for k in (0, n - 2)]
    low, high = (F.sum(x, axis=axis, keepdims=True) for x in ends)
    inside = [F.broadcast_sub(_end(F, d, axis, 0, n - 2), _end(F, d, axis, 2, n))] if n > 2 else []
    dx = F.Concat(F.negative(low), *inside, high, dim=axis)
    if edge_order == 1:
        return [dx]
    zeros = [F.zeros_like(_end(F, dy, axis, 0, n - 3))] if n > 3 else []
    bend = lambda x: F.Concat(x * -0.5, x, x * -0.5, dim=axis)
    before, after = [bend(first), *zeros], [*zeros, F.negative(bend(last))]
    for parts in (before, after):
        dx = F.broadcast_add(dx, F.Concat(*parts, dim=axis) if len(parts) > 1 else parts[0])
    return [dx]


operator(
    "_slopes",
    params=(
        Param("axis", "int", -1),
        Param("edge_order", "int", 1, limits=(1, 2)),
        Param("step", "float", 1.0, dynamic=True),
    ),
    infer=_slopes_infer,
    ref=_slopes_ref,
    grad=_slopes_grad,
    samples=(
        *(
            sample(shape, edge_order=edge, step=0.5)
            for edge in (1, 2)
            for shape in ((3,), (6,), (2, 3), (2, 5))
        ),
        sample((2, 2), step=2.0),
        sample((4, 3), axis=0),
        sample((3, 2), edge_order=2, axis=0),
    ),
    doc="The slopes along an axis of values that are `step` apart: central inside, of one side at"
    " the ends, of that order.",
)
