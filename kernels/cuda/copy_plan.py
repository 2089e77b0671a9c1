"""Launches of operators that only move elements, write numbers, or convert (copy.cu, fill.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from ..cpu.layout import collapse
from ..record import Type
from ..spec import ITEM_BYTES
from ..strided_copies import IN, OUT, StridedCopy
from .launch import Argument, Buffer, Int32, Int64, Launch, Scalar, Struct
from .layout import (
    THREADS,
    TYPES,
    WORDS,
    blocks_for,
    bool_of,
    ceil_div,
    divisor,
    index,
    index_of,
    places,
    spread,
    vector_of,
)

TILE, TILE_ROWS, UNROLL = 32, 8, 4  # copy.cu
LEAST_TILE = 8  # elements of a side from which on tiles pay
VECTORS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "Vector<uint32_t, 4>"}
PARTS = (4, 16, 64)


def copy_launch(found: StridedCopy, size: int, x: Argument, y: Argument) -> Launch:
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


def fill(
    shape: Sequence[int], strides: Sequence[int], offset: int, y: Type, to: Buffer, value: Argument
) -> Launch:
    """The launch that puts a number into a strided part of y."""
    dims, (s,) = collapse(shape, strides)
    n, kind = prod(shape), index_of(prod(y.shape))
    arguments: list[Argument] = [index(n, kind), places(dims, [s], kind), to, Int64(offset), value]
    name = f"fill_strided<{TYPES[y.dtype]}, {kind}, {max(len(dims), 1)}>"
    return spread("fill.cu", name, n, arguments)


def words(inner: int, dtype: str) -> tuple[str, str, int]:
    """(type of the words in which rows of `inner` elements move, of its elements, words of a
    row)"""
    size = ITEM_BYTES[dtype]
    word = gcd(16, inner * size) if inner else size
    return VECTORS[word], WORDS[min(size, word)], inner * size // word


def join(
    parts: Sequence[Type], whole: Type, axis: int, first: int, at: int, split: bool
) -> list[Launch] | None:
    """What makes arrays one along an axis, or one its parts. first: number of the first part's
    buffer; at: of the whole. None: more parts than a launch can have."""
    item, outer = ITEM_BYTES[whole.dtype], prod(whole.shape[:axis])
    if prod(whole.shape) == 0:
        return []
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
    name = f"join<{t}, {element}, {kind}, {capacity}, {bool_of(split)}>"
    return [spread("copy.cu", name, n, arguments, UNROLL)]


def cast(x: Type, y: Type, source: Buffer, to: Buffer) -> Launch:
    """The launch that converts x to y's dtype."""
    n = prod(x.shape)
    kind, vector = index_of(n), vector_of(x.dtype, y.dtype)
    name = f"cast<{TYPES[x.dtype]}, {TYPES[y.dtype]}, {kind}, {vector}>"
    return spread("copy.cu", name, n, [index(n, kind), source, to], 2 * vector)
