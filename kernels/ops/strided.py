"""Parts of an array that lie at regular steps in its memory: read, written, and the gradient. What
slices are, when they run: where a part begins is a number of the call, so that one plan serves
slices that move."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...engine.error import ShapeError
from ..record import Array, Param, Type, operator, sample
from ..scalar import OpenScalar
from ..shapes import same_dtype
from ..traits import Strided

# element at + sum(i * step) of an array's memory, for each i below sizes
VIEW = (
    Param("at", "float", dynamic=True),
    Param("sizes", "shape"),
    Param("steps", "shape"),
)


def reach(sizes: Sequence[int], steps: Sequence[int]) -> tuple[int, int]:
    """How far the elements of a part lie below and above its first one."""
    ends = [(n - 1) * step for n, step in zip(sizes, steps)] if prod(sizes) else []
    return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


def distinct(sizes: Sequence[int], steps: Sequence[int]) -> bool:
    """Is each element in the part once? Told where every step leaps over all that the smaller ones
    reach; other parts count as not distinct."""
    end = 0
    for step, n in sorted((abs(k), n) for k, n in zip(steps, sizes)):
        if n > 1 and step <= end:
            return False
        end += (n - 1) * step
    return True


def check_view(
    op: str, what: str, n: int, at: int | OpenScalar, sizes: Sequence[int], steps: Sequence[int]
) -> None:
    """Raises ShapeError for a part that is not in an array of n elements."""
    if len(sizes) != len(steps):
        raise ShapeError(op, f"sizes and steps must have one length, got {sizes} and {steps}")
    below, above = reach(sizes, steps)
    first, last = (at + below, at + above) if not isinstance(at, OpenScalar) else (0, above - below)
    if prod(sizes) and not 0 <= first <= last < n:
        raise ShapeError(
            op, f"{what} must lie in its {n} elements, got elements {int(first)} to {int(last)}"
        )


def places(xp: Any, n: int, at: Any, sizes: Sequence[int], steps: Sequence[int]) -> Array:
    """Numbers of the elements of a part of n. Raises ShapeError for one that is not in them: `at`
    may be another in every call."""
    if not isinstance(at, int | float):  # traced: the loops look at each element's place
        index = xp.zeros(sizes, "int64") + at.astype("int64")
    else:
        index = xp.full(sizes, int(at))
        check_view("_strided", "the part", n, int(at), sizes, steps)
    for axis, (size, step) in enumerate(zip(sizes, steps)):
        index = index + xp.reshape(
            xp.arange(size) * step, [size if a == axis else 1 for a in range(len(sizes))]
        )
    return index if isinstance(at, int | float) else xp.checked(index, n)


def _read_infer(ins, at, sizes, steps):
    check_view("_strided", "the part", prod(ins[0].shape), at, sizes, steps)
    return [Type(tuple(sizes), ins[0].dtype)]


operator(
    "_strided",
    traits=(Strided(),),
    params=VIEW,
    infer=_read_infer,
    ref=lambda xp, x, *, at, sizes, steps: x.reshape(-1)[
        places(xp, prod(x.shape), at, sizes, steps)
    ],
    grad=lambda F, dys, xs, ys, **view: [F._strided_grad(dys[0], shape=xs[0].shape, **view)],
    samples=(
        sample((4, 6), at=0, sizes=(2, 4, 3), steps=(3, 6, 1)),
        sample((12,), at=1, sizes=(3, 2), steps=(2, 0)),
        sample((4, 6), at=23, sizes=(2, 3), steps=(-12, -1)),
        sample((4, 6), at=24, sizes=(0, 3), steps=(6, 1)),
    ),
    doc="The elements at + sum(i * step) of data, as an array of `sizes`.",
)


def _grad_infer(ins, shape, at, sizes, steps):
    check_view("_strided_grad", "the part", prod(shape), at, sizes, steps)
    if ins[0].shape != tuple(sizes):
        raise ShapeError("_strided_grad", f"dy must have shape {sizes}, got {ins[0].shape}")
    return [Type(tuple(shape), ins[0].dtype)]


def _grad_ref(xp, dy, *, shape, at, sizes, steps):
    dx = xp.zeros(prod(shape), dy.dtype)
    xp.add.at(dx, places(xp, prod(shape), at, sizes, steps), dy)
    return dx.reshape(shape)


operator(
    "_strided_grad",
    inputs=("dy",),
    params=(Param("shape", "shape"), *VIEW),
    infer=_grad_infer,
    ref=_grad_ref,
    grad=lambda F, dys, xs, ys, shape, **view: [F._strided(dys[0], **view)],
    samples=(
        sample((2, 4, 3), shape=(4, 6), at=0, sizes=(2, 4, 3), steps=(3, 6, 1)),
        sample((3, 2), shape=(12,), at=1, sizes=(3, 2), steps=(2, 0)),
        sample((2, 3), shape=(4, 6), at=23, sizes=(2, 3), steps=(-12, -1)),
    ),
    doc="The gradient of _strided: zeros of `shape` to whose elements dy is added.",
)


def _write_infer(ins, at, sizes, steps):
    check_view("_strided_set", "the part", prod(ins[0].shape), at, sizes, steps)
    same_dtype("_strided_set", ins, ("lhs", "rhs"))
    rhs = ins[1].shape
    if rhs != tuple(sizes) and prod(rhs) != 1:
        raise ShapeError("_strided_set", f"rhs must have shape {sizes} or one element, got {rhs}")
    if not distinct(sizes, steps):
        raise ShapeError(
            "_strided_set", f"the slice must not repeat an element, got {sizes} in steps {steps}"
        )
    return [ins[0]]


def _write_ref(xp, lhs, rhs, *, at, sizes, steps):
    out = lhs.reshape(-1).copy()
    out[places(xp, prod(lhs.shape), at, sizes, steps)] = (
        rhs if rhs.shape == tuple(sizes) else rhs.reshape(())
    )
    return out.reshape(lhs.shape)


def _write_grad(F, dys, xs, ys, **view):
    dy, rhs = dys[0], xs[1]
    of_rhs = F._strided(dy, **view)
    if rhs.shape != tuple(view["sizes"]):
        of_rhs = F.reshape_to(F.sum(of_rhs), shape=rhs.shape)
    zero = F._zeros(shape=(1,), dtype=dy.dtype)
    return [F._strided_set(dy, zero, **view), of_rhs]


operator(
    "_strided_set",
    inputs=("lhs", "rhs"),
    params=VIEW,
    infer=_write_infer,
    ref=_write_ref,
    grad=_write_grad,
    inplace=((0, 0),),
    samples=(
        sample((4, 6), (2, 3), at=7, sizes=(2, 3), steps=(6, 1)),
        sample((4, 6), (1,), at=23, sizes=(2, 3), steps=(-12, -1)),
        sample((4, 6), (1, 1), at=2, sizes=(1, 1), steps=(0, 0)),
    ),
    doc="lhs with the elements at + sum(i * step) replaced by rhs, or by its one element.",
)
