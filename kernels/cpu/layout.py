"""Shapes and costs as kernels want them: collapsed dimensions, strides in elements, dtype numbers,
microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...engine import lib
from ..record import DTYPES, Type
from ..shapes import contiguous
from ..spec import ITEM_BYTES

MAX_DIMS = lib.PLK_MAX_DIMS
BYTES_PER_US = 10_000.0  # one core: 10 GB/s from memory, four times that from a cache
CACHED_BYTES = 1 << 19
FLOPS_PER_US = 50_000.0  # one core: 50 GFLOP/s in matrix products


def code(dtype: str) -> int:
    """The dtype's number in C."""
    return DTYPES.index(dtype)


def nbytes(*types: Type) -> int:
    return sum(prod(t.shape) * ITEM_BYTES[t.dtype] for t in types)


def cost(*types: Type, steps: float = 0.0) -> float:
    """Microseconds on one core to stream these arrays and take `steps` elementary steps (1 ns
    each)."""
    n = nbytes(*types)
    return 0.1 + (n - 0.75 * min(n, CACHED_BYTES)) / BYTES_PER_US + steps / 1000


def broadcast_strides(shape: Sequence[int], out: Sequence[int]) -> list[int]:
    """Strides of a contiguous array of `shape` seen with the shape `out`: 0 along repeated axes."""
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    return [0 if n == 1 else s for n, s in zip(full, contiguous(full))]


def collapse(shape: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Drops axes of size 1 and merges neighbours that every array walks as one. Returns (shape,
    strides of each)."""
    out_shape: list[int] = []
    outs: list[list[int]] = [[] for _ in strides]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        if out_shape and all(o[-1] == s[axis] * n for o, s in zip(outs, strides)):
            out_shape[-1] *= n
            for o, s in zip(outs, strides):
                o[-1] = s[axis]
        else:
            out_shape.append(n)
            for o, s in zip(outs, strides):
                o.append(s[axis])
    return out_shape, outs


def reduced_dims(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, int, bool]]:
    """(size, stride, is it reduced?) of a row-major array over sorted axes: axes of size 1 left
    out, neighbours of one kind merged."""
    dims: list[tuple[int, int, bool]] = []
    for axis, (n, stride) in enumerate(zip(shape, contiguous(shape))):
        if n == 1:
            continue
        if dims and dims[-1][2] == (axis in axes):
            dims[-1] = (dims[-1][0] * n, stride, dims[-1][2])
        else:
            dims.append((n, stride, axis in axes))
    return dims


def broadcast_fields(
    shape: Sequence[int], in_shapes: Sequence[Sequence[int]], kept: Sequence[int] | None = None
) -> tuple[dict, list[int]] | None:
    """(the fields of plk_pointwise that describe arrays, the strides of an array of shape `kept`);
    None where they need more than MAX_DIMS dimensions."""
    seen = [*in_shapes, shape if kept is None else kept]
    dims, strides = collapse(shape, *(broadcast_strides(s, shape) for s in seen))
    if len(dims) > MAX_DIMS:
        return None
    *strides, kept_strides = strides
    fields = {
        "n_in": len(in_shapes),
        "ndim": len(dims),
        "n": prod(shape),
        "shape": dims,
        "strides": strides,
        "in_n": [prod(s) for s in in_shapes],
    }
    return fields, kept_strides
