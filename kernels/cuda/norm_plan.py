"""Launches of the normalisations and of their gradients (norm.cu, batch_norm.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..native import Native
from ..record import FLOATS, Type
from ..shapes import lines
from .launch import Argument, Buffer, Float64, Int32, Int64, Launch, Scratch, Struct, launches
from .layout import (
    THREADS,
    TYPES,
    blocks_for,
    bool_of,
    ceil_div,
    divisor,
    index,
    index_of,
    row_launch,
    row_shape,
    vector_of,
)
from .reduce_plan import Plan

BACKWARD_BLOCKS = 528  # of norm_rows_backward: each sums the columns of its rows
MAX_HELD = 8  # elements of a row in a thread: of two arrays, of gamma and of two sums
COLUMNS, COLUMN_ROWS = 32, 32
UNROLL = 2  # of by_channel
WIDE_BYTES = {"float64": 8}  # of what sums are kept in; else 4


def floats(*types: Type) -> bool:
    """Do kernels serve: floats, the first ones of one type, and of the others one type?"""
    return all(t.dtype in FLOATS and 0 not in t.shape for t in types)


def rows_forward(
    ins: Sequence[Type],
    outs: Sequence[Type],
    n_rows: int,
    n: int,
    n_params: int,
    by_column: bool,
    eps: float,
) -> Native | None:
    x, gamma, beta = ins
    if not floats(*ins) or gamma.dtype != beta.dtype or any(t.dtype != x.dtype for t in outs):
        return None
    threads, items, vector = row_shape(n, vector_of(x.dtype, gamma.dtype), 2)
    grid, block = row_launch(n_rows, threads)
    types = f"{TYPES[x.dtype]}, {TYPES[gamma.dtype]}, {bool_of(by_column)}"
    arguments: list[Argument] = [
        Int64(n_rows),
        Int32(n),
        Int64(n_params),
        *map(Buffer, range(6)),
        Float64(eps),
    ]
    name = f"norm_rows<{types}, {threads}, {items}, {vector}>"
    return launches(Launch("norm.cu", name, grid, block, arguments))


def l2_rows(x: Type, n_lead: int, eps: float) -> Native | None:
    """Rows are the axes after the first n_lead ones."""
    if not floats(x):
        return None
    n_rows, n = prod(x.shape[:n_lead]), prod(x.shape[n_lead:])
    threads, items, vector = row_shape(n, vector_of(x.dtype))
    grid, block = row_launch(n_rows, threads)
    name = f"l2_rows<{TYPES[x.dtype]}, {threads}, {items}, {vector}>"
    arguments: list[Argument] = [Int64(n_rows), Int32(n), Buffer(0), Buffer(1), Float64(eps)]
    return launches(Launch("norm.cu", name, grid, block, arguments))


def rows_backward(
    ins: Sequence[Type], outs: Sequence[Type], n_rows: int, n: int, n_params: int, by_column: bool
) -> Native | None:
    dy, x, gamma, mean, rstd = ins
    same = dy.dtype == x.dtype == outs[0].dtype and mean.dtype == rstd.dtype
    params = all(t.dtype == gamma.dtype for t in outs[1:])
    if not floats(*ins) or not same or not params:
        return None
    vector = vector_of(x.dtype, gamma.dtype)
    threads, items = _block(n, vector)
    if not items and by_column:
        return None
    vector = vector if items else 1
    blocks = min(n_rows, BACKWARD_BLOCKS) if by_column else min(n_rows, 1 << 20)
    sums, columns = (blocks, n) if by_column else (n_rows // n_params, n_params)
    types = ", ".join(TYPES[t.dtype] for t in (x, gamma, mean)) + f", {bool_of(by_column)}"
    wide = WIDE_BYTES.get(x.dtype, 4)
    arguments: list[Argument] = [
        Int64(n_rows),
        Int32(n),
        Int64(n_params),
        *map(Buffer, range(6)),
        Scratch(0),
    ]
    name = f"norm_rows_backward<{types}, {threads}, {items}, {vector}>"
    computed = "double" if x.dtype == "float64" else "float"
    return launches(
        Launch("norm.cu", name, (blocks,), (threads,), arguments),
        Launch(
            "norm.cu",
            f"sum_columns<{computed}, {TYPES[gamma.dtype]}>",
            (ceil_div(columns, COLUMNS), 2),
            (COLUMNS, COLUMN_ROWS),
            [Int64(sums), Int64(columns), Scratch(0), Buffer(6), Buffer(7)],
        ),
        scratch_bytes=2 * sums * columns * wide,
    )


def _block(n: int, vector: int) -> tuple[int, int]:
    """(threads of a block that takes a row, vectors in each; 0: too many to be held)"""
    for threads in (128, 256, 512, 1024):
        items = ceil_div(n, threads * vector)
        if items * vector <= max(MAX_HELD, vector):
            return threads, items
    return 1024, 0


# ---- by channel ----------------------------------------------------------------------------------


class _Channels:
    """x as (n, channels, space), and launches over it."""

    def __init__(self, x: Type, params: Type, axis: int):
        self.shape = lines("BatchNorm", x.shape, axis)
        self.dtype, self.size = x.dtype, prod(self.shape)
        self.kind = index_of(self.size)
        self.last = self.shape[2] == 1
        self._vector = vector_of(x.dtype)
        self.types = f"{TYPES[x.dtype]}, {TYPES[params.dtype]}, {self.kind}"
        self.vector = self._vector if self.shape[1 + (not self.last)] % self._vector == 0 else 1

    def stats(self) -> Plan:
        wide = 8 if self.dtype == "float64" else 4
        return Plan(self.shape, (0, 2), self._vector, 4 * wide)

    def apply(self, map_type: str, given: Struct) -> Launch:
        _, channels, space = self.shape
        both = Struct(divisor(space, self.kind), divisor(channels, self.kind))
        return Launch(
            "batch_norm.cu",
            f"by_channel<{map_type}, {self.kind}, {self.vector}>",
            blocks_for(self.size, THREADS * self.vector * UNROLL),
            (THREADS,),
            [index(self.size, self.kind), both, given],
        )


def batch(
    ins: Sequence[Type],
    outs: Sequence[Type],
    axis: int,
    attrs: dict[str, Any],
    batch_stats: bool,
    add: bool = False,
    relu: bool = False,
) -> Native | None:
    x, params = ins[0], ins[1]
    wide = all(t.dtype == params.dtype for t in (*ins[1:5], *outs[1:]))
    if not floats(*ins) or not wide or outs[0].dtype != x.dtype:
        return None
    if add and ins[5].dtype != x.dtype:
        return None
    c, first = _Channels(x, params, axis), 5 + add
    y, mean, rstd = (Buffer(first + i) for i in range(3))
    eps, scratch = Float64(attrs["eps"]), 0
    if batch_stats:
        plan = c.stats()
        scratch = plan.scratch_bytes
        given = Struct(Buffer(0), Buffer(3), Buffer(4), mean, rstd, eps, Float64(attrs["momentum"]))
        types = f"{TYPES[x.dtype]}, {TYPES[params.dtype]}"
        steps = plan.launches("batch_norm.cu", f"Moments<{types}, {{I}}>", given)
    else:
        n = c.shape[1]
        arguments: list[Argument] = [Int64(n), Buffer(3), Buffer(4), mean, rstd, eps]
        name = f"moving_stats<{TYPES[params.dtype]}>"
        steps = [Launch("batch_norm.cu", name, blocks_for(n, THREADS), (THREADS,), arguments)]
    flags = ", ".join(bool_of(f) for f in (c.last, add, relu))
    given = Struct(
        Buffer(0),
        Buffer(5 if add else 0),
        Buffer(1),
        Buffer(2),
        mean,
        rstd,
        y,
        Int32(attrs["fix_gamma"]),
    )
    steps.append(c.apply(f"Apply<{c.types}, {c.vector}, {flags}>", given))
    return launches(*steps, scratch_bytes=scratch)


def batch_backward(
    ins: Sequence[Type],
    outs: Sequence[Type],
    axis: int,
    dy: int,
    y: int | None,
    x: int,
    gamma: int,
    mean: int,
    rstd: int,
    more: int | None,
    give: int | None,
) -> Native | None:
    """The arguments from dy on are numbers of buffers; y, more: None where there is none."""
    data, params = ins[x], ins[gamma]
    given_types = [ins[i] for i in (dy, y, x, more) if i is not None]
    wide = all(t.dtype == params.dtype for t in (ins[mean], ins[rstd], outs[1], outs[2]))
    if not floats(*ins) or not wide or any(t.dtype != data.dtype for t in (*given_types, outs[0])):
        return None
    if give is not None and outs[give].dtype != data.dtype:
        return None
    c, first = _Channels(data, params, axis), len(ins)
    n, channels, space = c.shape
    plan, wide_bytes = c.stats(), 8 if data.dtype == "float64" else 4
    sums = Scratch(-(-plan.scratch_bytes // 256) * 256)
    either = lambda i, other: Buffer(other if i is None else i)
    arrays: list[Argument] = [Buffer(dy), either(more, dy), either(y, dy), Buffer(x)]
    flags = f"{bool_of(more is not None)}, {bool_of(y is not None)}"
    types = f"{TYPES[data.dtype]}, {TYPES[params.dtype]}"
    given = Struct(
        *arrays,
        Buffer(mean),
        Buffer(rstd),
        Buffer(first + 1),
        Buffer(first + 2),
        sums,
        Int64(channels),
    )
    steps = plan.launches("batch_norm.cu", f"Products<{types}, {{I}}, {flags}>", given)
    given = Struct(
        *arrays,
        *map(Buffer, (gamma, mean, rstd, first, first + (give or 0))),
        sums,
        Int64(channels),
        Float64(1 / (n * space)),
    )
    flags = f"{bool_of(c.last)}, {flags}, {bool_of(give is not None)}"
    steps.append(c.apply(f"ApplyBackward<{c.types}, {flags}>", given))
    return launches(*steps, scratch_bytes=sums.offset_bytes + 2 * channels * wide_bytes)
