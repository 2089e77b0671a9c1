"""Geometry of launches: C++ types, grids, and the structs of array.cuh and map_reduce.cuh."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..loops.nodes import TYPES as COMPUTED
from ..record import Type
from ..spec import ITEM_BYTES
from .launch import Int32, Int64, Launch, Struct

TYPES = {**COMPUTED, "float16": "float16", "bfloat16": "bfloat16"}
WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}  # elements that only move
THREADS = 256
VECTOR_BYTES = 16
BLOCKS = 1024  # about what fills a large device: more blocks than this need not share a result
BYTES_PER_US = 3_000_000.0  # of a large device's memory


def ceil_div(n: int, by: int) -> int:
    return -(-n // by)


def index_type(*types: Type) -> str:
    """int32_t where it can count the elements of all arrays."""
    return index_of(*(prod(t.shape) for t in types))


def index_of(*sizes: int) -> str:
    return "int32_t" if max(sizes, default=0) < 1 << 30 else "int64_t"


def index(value: int, kind: str) -> Int32 | Int64:
    return Int32(value) if kind == "int32_t" else Int64(value)


def divisor(by: int, kind: str) -> Struct:
    """A Divisor of array.cuh."""
    if kind == "int64_t":
        return Struct(Int64(by))
    shift = max(by - 1, 0).bit_length()
    magic = ((1 << 32) * ((1 << shift) - by)) // max(by, 1) + 1
    return Struct(Int32(by), Int32(_signed(magic)), Int32(shift))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def places(shape: Sequence[int], strides: Sequence[Sequence[int]], kind: str) -> Struct:
    """Places of array.cuh: strides of each array over the dimensions of `shape`, both outermost
    first."""
    dims = list(reversed(list(zip(shape, *strides)))) or [(1, *(0 for _ in strides))]
    return Struct(
        [divisor(d[0], kind) for d in dims],
        [index(s, kind) for d in dims for s in d[1:]],
    )


def vector_of(*dtypes: str) -> int:
    """Elements of a 16-byte vector of the smallest of these types, at most 8."""
    return min(8, VECTOR_BYTES // min(ITEM_BYTES[d] for d in dtypes))


def blocks_for(n: int, per_block: int = THREADS) -> tuple[int]:
    """A grid of one dimension that covers n; 0 elements: no block."""
    return (ceil_div(n, per_block),)


def spread(
    source: str,
    function: str,
    n: int,
    arguments: Sequence[Any],  # Argument
    per_thread: int = 1,
    options: tuple[str, ...] | None = None,
) -> Launch:
    """The launch of a function whose threads share n items."""
    grid = blocks_for(n, THREADS * per_thread)
    return Launch(source, function, grid, (THREADS,), arguments, options=options)


def bool_of(value: object) -> str:
    """A truth value in C++."""
    return "true" if value else "false"


# ---- rows (rows.cuh): how many threads take one, and what each of them holds of it ---------------

# threads for a row -> elements in a thread's registers, shared by the arrays that are held at once;
# more threads take a longer row
HELD = {8: 4, 32: 32, 128: 16, 256: 16, 512: 16, 1024: 32}


def row_shape(n: int, vector: int, n_arrays: int = 1) -> tuple[int, int, int]:
    """(threads, items, vector) for rows of n elements, of which n_arrays are held at once: each
    thread holds items * vector elements; items is 0 where a row is too long to be held."""
    for threads, held in HELD.items():
        items = ceil_div(n, threads * vector)
        if items * vector <= max(held // n_arrays, vector):
            return threads, items, vector
    return 1024, 0, 1


def row_launch(n_rows: int, threads: int) -> tuple[tuple[int], tuple[int]]:
    """(grid, block)"""
    block = max(threads, THREADS)
    return (ceil_div(n_rows, block // threads),), (block,)
