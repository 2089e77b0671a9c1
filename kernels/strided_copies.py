"""Operators that only move elements, as one strided copy, for every device. Their references return
NumPy views, whose strides define the copy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..engine.error import OutOfMemory
from .layouts import parse, physical_shape
from .ops.slicing import slices
from .ops.strided import distinct, reach
from .record import Operator, Type
from .shapes import contiguous, one_axis
from .spec import ITEM_BYTES
from .traits import Broadcast, Join, Permutation

# the second input only gives a shape
LIKE = ("reshape_like", "broadcast_like", "slice_like", "_identity_with_attr_like_rhs")
VIEWS = (
    "Reshape",
    "reshape_to",
    "Flatten",
    "expand_dims",
    "squeeze",
    "transpose",
    "SwapAxis",
    "reverse",
    "broadcast_to",
    "broadcast_axis",
    "slice",
    "slice_axis",
    "diag",
    "_linalg_extractdiag",
    "_to_device",
    *LIKE,
)
NEW, ZEROS, FIRST = "new", "zeros", "first"
IN, OUT = "in", "out"


class StridedCopy(NamedTuple):
    """From input `source` to output 0, with strides and offsets in elements over `shape`: a stride
    of 0 repeats, a negative one flips. base: what the output holds where nothing is copied: NEW,
    the copy fills it; ZEROS; FIRST, input 0. placed: the side, IN or OUT, whose offset the first
    scalar of the call is added to; the scalar is in `span`."""

    shape: Sequence[int]
    in_strides: Sequence[int]
    out_strides: Sequence[int]
    in_offset: int = 0
    out_offset: int = 0
    base: str = NEW
    source: int = 0
    placed: str = ""
    span: tuple[int, int] = (0, 0)


def strided_copy(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict
) -> StridedCopy | None:
    """The copy of a call of an operator in STRIDED_COPIES; None if the call is no such copy."""
    return STRIDED_COPIES[op.name](op, ins, outs, attrs)


def join_offsets(op: Operator, ins: Sequence[Type], y: Type, attrs: dict) -> list[int] | None:
    """Where the arrays that an operator joins lie in its result, in bytes, one after the other;
    None where it joins none, or cuts them into pieces."""
    join = op.trait(Join)
    if join is None or len({t.layout for t in (*ins, y)}) > 1:
        return None
    at = axis = one_axis(op.name, attrs[join.axis], len(y.shape))
    if y.layout:
        stored = parse(y.layout)
        at = stored.order.index(axis)
        if join.stacks or any(t.shape[axis] % stored.block_of(axis) for t in ins):
            return None
    if prod(physical_shape(y.shape, y.layout)[:at]) != 1:
        return None
    sizes = [prod(physical_shape(t.shape, t.layout)) * ITEM_BYTES[t.dtype] for t in ins]
    return [0, *itertools.accumulate(sizes)][:-1]


def _strides(view, like, item_bytes):
    """(offset, strides) in elements of a view into `like`; None where it is not a view."""
    if view.size and not np.may_share_memory(view, like):
        return None
    offset = (
        view.__array_interface__["data"][0] - like.__array_interface__["data"][0]
    ) // item_bytes
    return (offset if view.size else 0), [s // item_bytes for s in view.strides]


def _probe(t: Type):
    """An array of the type's shape and item size whose memory is never touched. Raises OutOfMemory
    where the system promises none."""
    try:
        return np.empty(t.shape, f"V{ITEM_BYTES[t.dtype]}")
    except MemoryError as error:
        raise OutOfMemory(f"array: {error}") from None


def _view(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype != y.dtype or len(outs) != 1:
        return None
    if op.has(Permutation):
        return _transposed(x.shape, op.kinds[Permutation].axes(len(x.shape), **attrs))
    if op.has(Broadcast):
        spread = [0 if n == 1 else step for n, step in zip(x.shape, contiguous(x.shape))]
        new = [0] * (len(y.shape) - len(x.shape))
        return StridedCopy(y.shape, new + spread, contiguous(y.shape))
    probe = _probe(x)
    view = op.ref(np, probe, *(_probe(t) for t in ins[1:]), **attrs)
    found = _strides(view, probe, ITEM_BYTES[x.dtype])
    if found is None or view.shape != y.shape:
        return None
    return StridedCopy(y.shape, found[1], contiguous(y.shape), found[0])


def _slice_grad(op, ins, outs, attrs):
    dy, dx = ins[0], outs[0]
    probe = _probe(dx)
    found = _strides(probe[slices(op.name, **attrs)], probe, ITEM_BYTES[dx.dtype])
    return found and StridedCopy(dy.shape, contiguous(dy.shape), found[1], 0, found[0], ZEROS)


def _diag_grad(op, ins, outs, attrs):
    dy, dx = ins[0], outs[0]
    n = len(dx.shape)
    if n < 2:
        return None
    axes = [one_axis(op.name, attrs[a], n) for a in ("axis1", "axis2")]
    if axes[0] == axes[1]:
        return None
    probe = _probe(dx)
    diagonal = np.diagonal(probe, attrs["k"], *axes)
    found = _strides(diagonal, probe, ITEM_BYTES[dx.dtype])
    if found is None or diagonal.shape != dy.shape:
        return None
    return StridedCopy(dy.shape, contiguous(dy.shape), found[1], 0, found[0], ZEROS)


def _makediag(op, ins, outs, attrs):
    a, y = ins[0], outs[0]
    probe = _probe(y)
    diagonal = np.diagonal(probe, attrs["offset"], -2, -1)
    offset, strides = _strides(diagonal, probe, ITEM_BYTES[y.dtype])
    return StridedCopy(a.shape, contiguous(a.shape), strides, 0, offset, ZEROS)


def strided_slice(name: str, x: Type, span: dict) -> tuple[tuple[int, ...], list[int], int]:
    """(shape, strides, offset), in elements, of x[begin:end:step]."""
    probe = _probe(x)
    view = probe[slices(name, x.shape, **span)]
    offset, strides = _strides(view, probe, ITEM_BYTES[x.dtype])
    return view.shape, strides, offset


def _slice_assign(op, ins, outs, attrs):
    lhs, rhs = ins
    shape, strides, offset = strided_slice(op.name, lhs, attrs)
    source = _probe(rhs)
    spread = _strides(np.broadcast_to(source, shape), source, ITEM_BYTES[rhs.dtype])
    if spread is None or lhs.dtype != rhs.dtype:
        return None
    return StridedCopy(shape, spread[1], strides, spread[0], offset, FIRST, 1)


def _tile(op, ins, outs, attrs):
    """Repeated axes of stride 0 stand before each axis."""
    x = ins[0]
    n = max(len(x.shape), len(attrs["reps"]))
    sizes = (1,) * (n - len(x.shape)) + x.shape
    reps = (1,) * (n - len(attrs["reps"])) + tuple(attrs["reps"])
    return _repeated(
        [
            pair
            for size, rep, step in zip(sizes, reps, contiguous(sizes))
            for pair in ((rep, 0), (size, step))
        ]
    )


def _repeat(op, ins, outs, attrs):
    """A repeated axis of stride 0 stands after one."""
    axis, shape = attrs["axis"], ins[0].shape
    if axis is None:
        axis, shape = 0, (prod(shape),)
    pairs = list(zip(shape, contiguous(shape)))
    pairs.insert(one_axis(op.name, axis, len(shape)) + 1, (attrs["repeats"], 0))
    return _repeated(pairs)


def _repeated(pairs):
    shape = [n for n, _ in pairs]
    return StridedCopy(shape, [step for _, step in pairs], contiguous(shape))


def _to_space(op, ins, outs, attrs):
    b, (n, c, h, w) = attrs["block_size"], ins[0].shape
    return _transposed((n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2))


def _to_depth(op, ins, outs, attrs):
    b, (n, c, h, w) = attrs["block_size"], ins[0].shape
    return _transposed((n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4))


def _transposed(shape, axes):
    strides, to = contiguous(shape), [shape[a] for a in axes]
    return StridedCopy(to, [strides[a] for a in axes], contiguous(to))


def _span(t: Type, attrs: dict) -> tuple[int, int]:
    """Where a part may begin that must lie in an array."""
    below, above = reach(attrs["sizes"], attrs["steps"])
    return -below, prod(t.shape) - 1 - above


def _strided(op, ins, outs, attrs):
    to = contiguous(outs[0].shape)
    return StridedCopy(outs[0].shape, attrs["steps"], to, placed=IN, span=_span(ins[0], attrs))


def _strided_grad(op, ins, outs, attrs):
    if not distinct(attrs["sizes"], attrs["steps"]):
        return None
    steps, span = attrs["steps"], _span(outs[0], attrs)
    return StridedCopy(
        attrs["sizes"], contiguous(ins[0].shape), steps, base=ZEROS, placed=OUT, span=span
    )


def _strided_set(op, ins, outs, attrs):
    sizes, rhs = attrs["sizes"], ins[1].shape
    steps = contiguous(rhs) if rhs == tuple(sizes) else [0] * len(sizes)
    span = _span(outs[0], attrs)
    return StridedCopy(sizes, steps, attrs["steps"], base=FIRST, source=1, placed=OUT, span=span)


STRIDED_COPIES: dict[str, Callable] = {
    **dict.fromkeys(VIEWS, _view),
    "_slice_grad": _slice_grad,
    "_diag_grad": _diag_grad,
    "_linalg_makediag": _makediag,
    "_slice_assign": _slice_assign,
    "tile": _tile,
    "repeat": _repeat,
    "depth_to_space": _to_space,
    "space_to_depth": _to_depth,
    "_strided": _strided,
    "_strided_grad": _strided_grad,
    "_strided_set": _strided_set,
}
