"""Rules on shapes, axes and dtypes that operators share; each raises an error that names the rule
and the operands."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ..engine.error import DTypeError, ShapeError
from .extent import any_size, is_unknown
from .record import MAX_KEPT, Type


def contiguous(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return strides[::-1]


@functools.lru_cache(MAX_KEPT)
def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As contiguous, found once for a shape."""
    return tuple(contiguous(shape))


def aligned(shape: tuple[int, ...], n_axes: int, at: int) -> tuple[int, ...]:
    """A shape whose first axis stands at axis `at` of n_axes, ones around it, for broadcasting."""
    return (1,) * at + shape + (1,) * (n_axes - at - len(shape))


def prelu_shape(x: tuple[int, ...], gamma: tuple[int, ...]) -> tuple[int, ...]:
    """How prelu's gamma broadcasts to x: one slope, one for each index of axis 1 (of axis 0 for a
    vector), or one for each index of axes 0 and 1."""
    if len(x) == 1 or len(gamma) not in (1, 2):
        return gamma
    return aligned(gamma, len(x), 2 - len(gamma))


def condition_shape(condition: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...]:
    """How the condition of `where` broadcasts to x: a vector chooses rows."""
    return aligned(condition, len(x), 0) if len(condition) == 1 < len(x) else condition


def describe(ins: Sequence, names: Sequence[str]) -> str:
    return " and ".join(f"{n} {t.shape}" for n, t in zip(names, ins))


def broadcast_shapes(op: str, ins: Sequence, names: Sequence[str]) -> tuple[int, ...]:
    """The common shape under NumPy's broadcasting. Raises ShapeError."""
    first = ins[0].shape
    partial = any([is_unknown(n) for t in ins for n in t.shape])
    if not partial and all(t.shape == first for t in ins):
        return first
    out: list = []
    for axis in range(1, max(len(t.shape) for t in ins) + 1):
        along = [t.shape[-axis] for t in ins if len(t.shape) >= axis]
        unknown = [n for n in along if is_unknown(n)] if partial else ()
        sizes = [n for n in along if not is_unknown(n) and n != 1]
        if any([n != sizes[0] for n in sizes]):
            raise ShapeError(
                op,
                "shapes must be equal or broadcast (each axis equal, or 1), got"
                f" {describe(ins, names)}",
            )
        if sizes:
            out.append(sizes[0])
        elif unknown:
            alone = all(n is unknown[0] for n in unknown)
            out.append(unknown[0] if alone else any_size(unknown[0]))
        else:
            out.append(1)
    return tuple(reversed(out))


def same_dtype(op: str, ins: Sequence, names: Sequence[str]) -> str:
    """The common dtype; MXNet promotes nothing. Raises DTypeError."""
    first = ins[0].dtype
    for t, n in zip(ins, names):
        if t.dtype != first:
            keep = t.dtype if n == "weight" or "float" not in first else first
            raise DTypeError(
                op,
                f"dtypes must be equal, got {names[0]} {first} and {n} {t.dtype}",
                fix=f"convert one: x.astype('{keep}')",
            )
    return first


def whole_dtype(op: str, ins: Sequence, names: Sequence[str]) -> str:
    """The common dtype, which must be of whole numbers or bools. Raises DTypeError."""
    dtype = same_dtype(op, ins, names)
    if "float" in dtype:
        raise DTypeError(
            op,
            f"{names[0]} must be of whole numbers or bools, got {dtype}",
            fix="x.astype('int64')",
        )
    return dtype


def float_dtype(op: str, ins: Sequence, names: Sequence[str]) -> str:
    """The common dtype, which must be a float. Raises DTypeError."""
    dtype = same_dtype(op, ins, names)
    if "float" not in dtype:
        raise DTypeError(
            op, f"{names[0]} must be of a float dtype, got {dtype}", fix="x.astype('float32')"
        )
    return dtype


def must_be(op: str, name: str, t: Type, shape: tuple[int, ...]) -> None:
    """Raises ShapeError unless an input has this shape."""
    if t.shape != tuple(shape):
        raise ShapeError(op, f"{name} must have shape {tuple(shape)}, got {t.shape}")


def one_axis(op: str, axis: int, ndim: int, extra: int = 0) -> int:
    """A possibly negative axis as 0 <= axis < ndim + extra. Raises ShapeError."""
    n = ndim + extra
    if not -n <= axis < n:
        raise ShapeError(
            op, f"axis must be in [{-n}, {n}) for an array of {ndim} dimensions, got {axis}"
        )
    return axis % n if n else 0


class Lines(NamedTuple):
    """An array seen along one axis, as (outer, n, inner): outer * inner lines of n elements each,
    which lie `inner` elements apart."""

    outer: int
    n: int
    inner: int


def lines(op: str, shape: Sequence[int], axis: int | None) -> Lines:
    """The lines of a row-major array along an axis; of no axis, and of an array that has none: all
    elements are one line. Raises ShapeError."""
    if axis is None or not shape:
        return Lines(1, prod(shape), 1)
    axis = one_axis(op, axis, len(shape))
    return Lines(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))


def many_axes(
    op: str, axis: int | Sequence[int] | None, ndim: int, exclude: bool = False
) -> tuple[int, ...]:
    """None (all), an axis or axes -> sorted axes; `exclude` takes the others instead. Raises
    ShapeError."""
    if axis is None or axis == ():
        axes = tuple(range(ndim))
        return () if exclude and axis is not None and axis != () else axes
    given = [one_axis(op, a, ndim) for a in ((axis,) if isinstance(axis, int) else axis)]
    if len(set(given)) != len(given):
        raise ShapeError(op, f"axis must not repeat, got {axis}")
    return tuple(a for a in range(ndim) if (a in given) != exclude)
