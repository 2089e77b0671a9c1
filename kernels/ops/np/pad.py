"""np.pad: a border of constants, of the array's own elements, or of what it sums up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....engine.error import OperatorError, ShapeError
from ...front import cast, dtype_of, floating
from ...record import FLOATS, Array, Param, sample
from .shape import broadcast, mover

COPIES = ("edge", "reflect", "symmetric", "wrap")  # the border holds the array's elements
SUMMARIES = {"maximum": "max", "minimum": "min", "mean": "mean"}
MODES = ("constant", *COPIES, *SUMMARIES, "empty")


def pairs(n: int, pad_width: Sequence) -> list[tuple[int, int]]:
    """(before, after) of each of n axes, from one number, one pair, one for each axis, or 2 n
    numbers in a row."""
    given = np.asarray(pad_width)
    if not n:
        return []
    if given.dtype.kind not in "iu" or (given.size and given.min() < 0):
        raise OperatorError(
            "np.pad", f"pad_width must hold whole sizes, not negative, got {pad_width}"
        )
    if given.size == 2 * n and given.ndim == 1:
        given = given.reshape(n, 2)
    try:
        return [(int(a), int(b)) for a, b in np.broadcast_to(given, (n, 2))]
    except ValueError:
        raise ShapeError(
            "np.pad", f"pad_width must be a pair for each of {n} axes, got {pad_width}"
        ) from None


def _runs(index: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places as runs (first, count, step) with a step of 1, -1 or 0."""
    found: list[tuple[int, int, int]] = []
    for i in index:
        if found:
            first, count, step = found[-1]
            last = first + (count - 1) * step
            if count == 1 and i - last in (-1, 0, 1):
                found[-1] = (first, 2, i - last)
                continue
            if count > 1 and i - last == step:
                found[-1] = (first, count + 1, step)
                continue
        found.append((i, 1, 1))
    return found


def _taken(F: Any, x: Array, axis: int, index: Sequence[int]) -> list[Array]:
    """x at places along an axis, in pieces."""
    n, shape, pieces = len(x.shape), tuple(x.shape), []
    for first, count, step in _runs(index):
        if step == 0:
            one = F.slice_axis(x, axis=axis, begin=first, end=first + 1)
            pieces.append(broadcast(F, one, (*shape[:axis], count, *shape[axis + 1 :])))
        elif step == 1:
            pieces.append(F.slice_axis(x, axis=axis, begin=first, end=first + count))
        else:
            none = (None,) * axis
            stop = first - count
            span = {
                "begin": (*none, first),
                "end": (*none, stop if stop >= 0 else None),
                "step": (*none, -1),
            }
            pieces.append(F.slice(x, **span))
    assert all(len(p.shape) == n for p in pieces)
    return pieces


def _rounded(F: Any, x: Array) -> Array:
    """To the nearest whole number, of two the even one."""
    low = F.floor(x)
    rest = F.broadcast_sub(x, low)
    even = F.broadcast_mul(F._equal_scalar(rest, scalar=0.5), F._mod_scalar(low, scalar=2.0))
    return F.add_n(low, F._greater_scalar(rest, scalar=0.5), even)


def _padded(F: Any, x: Array, axis: int, before: int, after: int, mode: str, value: Any) -> Array:
    shape = tuple(x.shape)
    n = shape[axis]

    def border(size: int) -> tuple[int, ...]:
        return (*shape[:axis], size, *shape[axis + 1 :])

    if mode in ("constant", "empty"):
        sides = [
            F._full(shape=border(size), value=value, dtype=dtype_of(x)) if size else None
            for size in (before, after)
        ]
        pieces = [sides[0], x, sides[1]]
    elif not n:
        raise ShapeError("np.pad", f"mode {mode} cannot pad the empty axis {axis}, got x {shape}")
    elif mode in SUMMARIES:
        exact = x if mode != "mean" else cast(F, x, floating(dtype_of(x)))
        one = getattr(F, SUMMARIES[mode])(exact, axis=axis, keepdims=True)
        if mode == "mean" and dtype_of(x) not in (*FLOATS, "bool"):
            one = _rounded(F, one)
        one = cast(F, one, dtype_of(x))
        pieces = [
            broadcast(F, one, border(before)) if before else None,
            x,
            broadcast(F, one, border(after)) if after else None,
        ]
    else:
        copied: Any = mode
        index = np.pad(np.arange(n), (before, after), mode=copied).tolist()
        pieces = [*_taken(F, x, axis, index[:before]), x, *_taken(F, x, axis, index[before + n :])]
    kept = [p for p in pieces if p is not None]
    return F.Concat(*kept, dim=axis) if len(kept) > 1 else x


def _is_pad(shape: tuple[int, ...], width: Sequence, mode: str) -> bool:
    """Is it what the operator Pad does, all axes at once?"""
    least = {"constant": -1, "empty": -1, "edge": 0}  # elements of axes that are padded
    if mode == "reflect":
        return all(max(pair) < max(n, 1) for n, pair in zip(shape, width))
    return mode in least and all(n > least[mode] or not max(pair) for n, pair in zip(shape, width))


def _pad(
    F: Any, x: Array, pad_width: Sequence, mode: str, constant_value: Any, reflect_type: str
) -> Array:
    if reflect_type != "even":
        raise OperatorError("np.pad", f"reflect_type must be 'even', got {reflect_type!r}")
    width = pairs(len(x.shape), pad_width)
    if any(map(any, width)) and _is_pad(tuple(x.shape), width, mode):
        kept = "constant" if mode == "empty" else mode
        flat = tuple(n for pair in width for n in pair)
        return F.Pad(x, mode=kept, pad_width=flat, constant_value=constant_value)
    for axis, (before, after) in enumerate(width):
        if before or after:
            x = _padded(F, x, axis, before, after, mode, constant_value)
    return x


def _pad_ref(x: Any, pad_width: Any, mode: Any, constant_value: float, reflect_type: str) -> Any:
    options: Any = (
        {"constant_values": np.asarray(constant_value).astype(x.dtype)}
        if mode == "constant"
        else {}
    )
    width = pairs(x.ndim, pad_width)
    if not width:
        return x
    return np.pad(x, width, mode="constant" if mode == "empty" else mode, **options)


WIDTHS = ((1, 2), (0, 3))
mover(
    "_npi_pad",
    _pad,
    _pad_ref,
    (
        Param("pad_width", "pairs"),
        Param("mode", MODES, "constant"),
        Param("constant_value", "float", 0.0, dynamic=True),
        Param("reflect_type", "str", "even"),
    ),
    tuple(sample((3, 4), pad_width=WIDTHS, mode=m) for m in MODES)
    + (
        sample((2,), pad_width=(5, 4), mode="reflect"),
        sample((2, 3), pad_width=1, constant_value=2.5),
    ),
    "x with a border of a width (before, after) for each axis: a constant, copies of x's edge, its"
    " mirror image (without or with the edge), its other end, or a summary of each line.",
    array="x",
)
