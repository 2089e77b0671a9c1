"""Entries of operators that only move elements, of joins and splits, of casts and fills."""

from __future__ import annotations

from math import gcd, prod

from ..loops import form
from ..record import Type
from ..shapes import one_axis
from ..spec import ITEM_BYTES
from ..strided_copies import FIRST, IN, OUT, STRIDED_COPIES, ZEROS, StridedCopy, strided_copy
from ..traits import LoopForm
from .launch import Argument, Buffer, Copy, Fill, Int32, Int64, Launch, Scalar, Struct, launches
from .layout import (
    THREADS,
    TYPES,
    WORDS,
    blocks_for,
    ceil_div,
    collapse,
    divisor,
    index,
    index_of,
    nbytes,
    places,
    vector_of,
)
from .table import native

TILE, TILE_ROWS, UNROLL = 32, 8, 4  # copy.cu
LEAST_TILE = 8  # elements of a side from which on tiles pay
VECTORS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Vector<uint32_t, 4>"}
PARTS = (4, 16, 64)


def copy_launch(found: StridedCopy, size: int, x: Buffer, y: Buffer) -> Launch | None:
    """The launch of a strided copy of elements of `size` bytes."""
    dims, (a, b) = collapse(found.shape, found.in_strides, found.out_strides)
    n, word = prod(found.shape), WORDS[size]
    reach = sum(abs(s) * (d - 1) for s, d in zip(a, dims)) + found.in_offset + 1
    out_reach = sum(abs(s) * (d - 1) for s, d in zip(b, dims)) + found.out_offset + 1
    kind = index_of(n, reach, out_reach)
    at = Scalar(0, "int64")  # the call's
    in_at: Argument = at if found.placed == IN else Int64(found.in_offset)
    out_at: Argument = at if found.placed == OUT else Int64(found.out_offset)
    ends: list[Argument] = [x, in_at, y, out_at]
    across = _across(dims, a, b)
    if across is not None:
        return _transposed(dims, a, b, across, word, kind, ends)
    vector = 16 // size
    steps = [s for strides in (a, b) for s in strides[:-1]]
    together = dims and a[-1] == b[-1] == 1 and dims[-1] % vector == 0
    if not together or any(s % vector for s in steps):
        vector = 1
    ndim = max(len(dims), 1)
    return Launch(
        "copy.cu",
        f"copy_strided<{word}, {kind}, {ndim}, {vector}>",
        blocks_for(n, THREADS * vector * UNROLL),
        (THREADS,),
        [index(n, kind), places(dims, [a, b], kind), *ends],
    )


def _across(dims, a, b) -> int | None:
    """The dimension along which the input lies where the output lies along the last one."""
    if len(dims) < 2 or b[-1] != 1 or a[-1] == 1 or dims[-1] < LEAST_TILE:
        return None
    for d in range(len(dims) - 1):
        if a[d] == 1 and dims[d] >= LEAST_TILE:
            return d
    return None


def _transposed(dims, a, b, across: int, word: str, kind: str, ends) -> Launch:
    rows, columns = dims[across], dims[-1]
    others = [d for d in range(len(dims) - 1) if d != across]
    row_tiles, column_tiles = ceil_div(rows, TILE), ceil_div(columns, TILE)
    arguments: list[Argument] = [
        index(rows, kind),
        index(columns, kind),
        divisor(row_tiles, kind),
        divisor(column_tiles, kind),
        index(a[-1], kind),
        index(b[across], kind),
        places([dims[d] for d in others], [[s[d] for d in others] for s in (a, b)], kind),
        *ends,
    ]
    n_blocks = row_tiles * column_tiles * prod(dims[d] for d in others)
    name = f"copy_transposed<{word}, {kind}, {max(len(others), 1)}>"
    return Launch("copy.cu", name, (n_blocks,), (TILE, TILE_ROWS), arguments)


@native(*STRIDED_COPIES)
def move_entry(op, ins, outs, attrs):
    if op.has(LoopForm) and form(op, ins, outs, attrs) is not None:
        return None  # a repeated array is a pointwise kernel: it stores whole vectors
    found = strided_copy(op, ins, outs, attrs)
    if found is None:
        return None
    y, to = outs[0], Buffer(len(ins))
    steps = []
    if found.base == ZEROS:
        steps.append(Fill(to, nbytes(y)))
    elif found.base == FIRST:
        steps.append(Copy(to, Buffer(0), nbytes(y)))
    if prod(found.shape):
        steps.append(copy_launch(found, ITEM_BYTES[y.dtype], Buffer(found.source), to))
    return launches(*steps)


def _join(parts: list[Type], whole: Type, axis: int, first: int, at: int, split: bool):
    """first: number of the first part's buffer; at: of the whole."""
    item, outer = ITEM_BYTES[whole.dtype], prod(whole.shape[:axis])
    if prod(whole.shape) == 0:
        return launches()
    given = [(k, prod(t.shape) // outer * item) for k, t in enumerate(parts) if prod(t.shape)]
    capacity = next((n for n in PARTS if n >= len(given)), None)
    if capacity is None:
        return None
    word = gcd(16, *(size for _, size in given))
    starts = [0]
    for _, size in given:
        starts.append(starts[-1] + size // word)
    n = outer * starts[-1]
    kind, t = index_of(n), VECTORS[word]
    element = WORDS[min(item, word)]
    fill = capacity - len(given)
    arguments: list[Argument] = [
        index(n, kind),
        divisor(starts[-1], kind),
        Buffer(at),
        Struct(
            [Buffer(first + k) for k, _ in given] + [Int64(0)] * fill,
            [index(s, kind) for s in starts] + [index(starts[-1], kind)] * fill,
            Int32(len(given)),
        ),
    ]
    name = f"join<{t}, {element}, {kind}, {capacity}, {'true' if split else 'false'}>"
    return launches(Launch("copy.cu", name, blocks_for(n, THREADS * UNROLL), (THREADS,), arguments))


@native("Concat", "stack")
def concat_entry(op, ins, outs, attrs):
    y = outs[0]
    if any(t.dtype != y.dtype for t in ins):
        return None
    axis = one_axis(op.name, attrs["axis" if op.name == "stack" else "dim"], len(y.shape))
    return _join(list(ins), y, axis, 0, len(ins), False)


@native("SliceChannel", "_split_v2")
def split_entry(op, ins, outs, attrs):
    x = ins[0]
    return _join(list(outs), x, one_axis(op.name, attrs["axis"], len(x.shape)), 1, 0, True)


def _cast(x: Type, y: Type, source: Buffer, to: Buffer) -> Launch:
    n = prod(x.shape)
    kind, vector = index_of(n), vector_of(x.dtype, y.dtype)
    name = f"cast<{TYPES[x.dtype]}, {TYPES[y.dtype]}, {kind}, {vector}>"
    grid = blocks_for(n, THREADS * vector * 2)
    return Launch("copy.cu", name, grid, (THREADS,), [index(n, kind), source, to])


@native("Cast", "amp_cast", "amp_multicast")
def cast_entry(op, ins, outs, attrs):
    n = len(ins)
    return launches(
        *(_cast(x, y, Buffer(i), Buffer(n + i)) for i, (x, y) in enumerate(zip(ins, outs)))
    )


@native("_zeros", "_zeros_without_dtype", "zeros_like", "reset_arrays")
def zeros_entry(op, ins, outs, attrs):
    at, written = (0, ins) if op.name == "reset_arrays" else (len(ins), outs)
    return launches(*(Fill(Buffer(at + i), nbytes(t)) for i, t in enumerate(written)))
