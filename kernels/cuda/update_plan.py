"""Launches of optimizer updates, and of operators over many arrays (update.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..native import Native
from ..record import FLOATS, Type
from ..spec import ITEM_BYTES
from ..update_loops import Update
from .launch import (
    Argument,
    Buffer,
    Float64,
    Int32,
    Int64,
    Launch,
    Scalar,
    Scratch,
    Struct,
    launches,
)
from .layout import THREADS, TYPES, bool_of, ceil_div, vector_of
from .update_source import RATES as RATE_NAMES
from .update_source import members, struct

RATES = 4  # update.cu: lr, wd, eta, the gradient's scale
UNROLL = 2
ARGUMENT_BYTES = 3600  # what the arrays of a launch may take of its arguments
NULL = Int64(0)


def _chunks(sizes: Sequence[int], capacity: int, per_chunk: int) -> tuple[Struct, int]:
    """(the Chunks of update.cu, how many)"""
    first = [0]
    for n in sizes:
        first.append(first[-1] + ceil_div(n, per_chunk))
    rest = capacity - len(sizes)
    made = Struct(
        [Int64(n) for n in (*sizes, *[0] * rest)],
        [Int32(n) for n in (*first, *[first[-1]] * rest)],
        Int32(len(sizes)),
    )
    return made, first[-1]


def update(call: Update, ins: Sequence[Type], outs: Sequence[Type]) -> Native:
    """The launches of `n` weights' steps."""
    n, states, wide, dtype, numbers = call.n, call.states, call.wide, ins[0].dtype, call.numbers
    preloaded, size, held = call.preloaded, call.size, members(call.rule)
    scaled = "rescale_grad" not in held
    bytes_each = 8 * (3 + max(states, 1) + 1 + RATES) + 12
    capacity = 1 if n == 1 else ARGUMENT_BYTES // bytes_each
    vector = vector_of(dtype)
    steps = []
    for start in range(0, n, capacity):
        own = range(start, min(start + capacity, n))
        fill = [NULL] * (capacity - len(own))
        column = lambda at, own=own, fill=fill: [Buffer(k * size + at) for k in own] + fill
        chunks, n_chunks = _chunks(
            [prod(outs[k].shape) for k in own], capacity, THREADS * vector * UNROLL
        )
        rates: list[Argument] = []
        for name in RATE_NAMES:
            found = numbers.get(name)
            for k in own:
                rates.append(
                    Float64(0.0)
                    if found is None or preloaded
                    else Scalar(found[k if len(found) > 1 else 0], "float64")
                )
            rates += [Float64(0.0)] * len(fill)
        rates += [Float64(0.0)] * capacity
        arrays: list[Any] = [
            column(0),
            column(1),
            [Buffer(len(ins) + k) for k in own] + fill,
            [item for s in range(states) for item in column(2 + s)] or [NULL] * capacity,
            column(2 + states) if wide else [NULL],
            rates,
            Buffer(n * size, start * 4) if preloaded else NULL,
            Buffer(n * size + 1, start * 4) if preloaded else NULL,
            Buffer(n * size) if scaled else NULL,
        ]
        given = [Scalar(numbers[m][0], "float64") for m in held]
        arguments: list[Argument] = [
            chunks,
            Struct(*arrays),
            Int32(preloaded + 2 * scaled),
            Struct(*given) if given else Struct(Int32(0)),
        ]
        name = f"update<{struct(call.rule)}, {TYPES[dtype]}, {bool_of(wide)}, {capacity}, {vector}>"
        steps.append(Launch("update.cu", name, (n_chunks,), (THREADS,), arguments))
    return launches(*steps)


# ---- over many arrays ----------------------------------------------------------------------------

CHUNK = 16 * THREADS  # elements


def _sums(ins, finite: bool):
    """(launches of the chunks' sums by array, (chunks, capacity) of each, scratch bytes)"""
    dtype = ins[0].dtype
    if dtype not in FLOATS or any(t.dtype != dtype for t in ins):
        return None
    capacity = 1 if len(ins) == 1 else ARGUMENT_BYTES // 20
    steps, found, at = [], [], 0
    wide = ITEM_BYTES["float64" if dtype == "float64" else "float32"]
    for start in range(0, len(ins), capacity):
        own = range(start, min(start + capacity, len(ins)))
        chunks, n_chunks = _chunks([prod(ins[k].shape) for k in own], capacity, CHUNK)
        arrays = Struct([Buffer(k) for k in own] + [NULL] * (capacity - len(own)))
        partial = Scratch(at)
        arguments: list[Argument] = [chunks, arrays, Int64(CHUNK), partial]
        name = f"chunk_sums<{TYPES[dtype]}, {bool_of(finite)}, {capacity}>"
        steps.append(Launch("update.cu", name, (n_chunks,), (THREADS,), arguments))
        found.append((chunks, own, partial))
        at += n_chunks * wide
    return steps, found, capacity, at


def sums_of_squares(ins: Sequence[Type]) -> Native | None:
    """Of each array."""
    made = _sums(ins, False)
    if made is None:
        return None
    steps, found, capacity, scratch_bytes = made
    computed = "double" if ins[0].dtype == "float64" else "float"
    for chunks, own, partial in found:
        arguments: list[Argument] = [chunks, partial, Buffer(len(ins), own[0] * 4)]
        name = f"finish_squares<{computed}, {capacity}>"
        steps.append(Launch("update.cu", name, (len(own),), (THREADS,), arguments))
    return launches(*steps, scratch_bytes=scratch_bytes)


def all_finite(ins: Sequence[Type]) -> Native | None:
    """Is all of all arrays finite?"""
    made = _sums(ins, True)
    if made is None:
        return None
    steps, _, _, scratch_bytes = made
    computed, wide = ("double", 8) if ins[0].dtype == "float64" else ("float", 4)
    arguments: list[Argument] = [Int64(scratch_bytes // wide), Scratch(0), Buffer(len(ins))]
    steps.append(Launch("update.cu", f"finish_finite<{computed}>", (1,), (THREADS,), arguments))
    return launches(*steps, scratch_bytes=scratch_bytes)


# ---- LAMB ----------------------------------------------------------------------------------------


def _lamb_step(dtype, wide, own, capacity, n_chunks, chunks, arrays, rates, sums, bounds, roots):
    """The launch of lamb_step. arrays: weights, outputs, directions, wide weights; sums: of weights
    and of directions, for the first of `own`."""
    fill = [NULL] * (capacity - len(own))
    weights, outs, directions, wides = arrays
    given = Struct(
        [*weights, *fill],
        [*outs, *fill],
        [*directions, *fill],
        [*wides, *fill] if wide else [NULL],
        [*rates, *[Float64(0.0)] * len(fill)],
        *sums,
        *bounds,
        Int32(roots),
    )
    name = f"lamb_step<{TYPES[dtype]}, {bool_of(wide)}, {capacity}>"
    return Launch("update.cu", name, (n_chunks,), (THREADS,), [chunks, given, Int64(CHUNK)])


def lamb_directions(
    rule: str,
    numbers: dict[str, Any],
    is_corrected: bool,
    dtype: str,
    groups: Sequence[Sequence[int]],
    outs: Sequence[Argument],
    ins: Sequence[Type],
) -> list[Launch]:
    """Launches of the rule, whose step is a direction: groups are numbers of weight, gradient,
    mean, variance."""
    steps, vector, wd = [], vector_of(dtype), numbers["wd"]
    for k, (group, out) in enumerate(zip(groups, outs)):
        chunks, n_chunks = _chunks([prod(ins[group[0]].shape)], 1, THREADS * vector * UNROLL)
        rates: list[Argument] = [Float64(0.0), Scalar(wd[k], "float64"), Float64(0.0), Float64(0.0)]
        arrays: list[Argument] = [
            Buffer(group[0]),
            Buffer(group[1]),
            out,
            Buffer(group[2]),
            Buffer(group[3]),
            NULL,
        ]
        step = Scalar(numbers["t"][k], "float64")
        own = {"t": step, "bias_correction": Float64(is_corrected)}
        held = [own[m] if m in own else Scalar(numbers[m][0], "float64") for m in members(rule)]
        arguments: list[Argument] = [
            chunks,
            Struct(*arrays, rates, NULL, NULL, NULL),
            Int32(0),
            Struct(*held),
        ]
        name = f"update<{struct(rule)}, {TYPES[dtype]}, false, 1, {vector}>"
        steps.append(Launch("update.cu", name, (n_chunks,), (THREADS,), arguments))
    return steps


def lamb_step(
    numbers: dict[str, Any], wide: bool, ins: Sequence[Type], outs: Sequence[Type]
) -> Native:
    """The step of one weight."""
    n, dtype = prod(outs[0].shape), ins[0].dtype
    chunks, n_chunks = _chunks([n], 1, CHUNK)
    arrays = [Buffer(0)], [Buffer(len(ins))], [Buffer(1)], [Buffer(4)] * wide
    bounds = [Scalar(numbers[b][0], "float64") for b in ("lower_bound", "upper_bound")]
    rates: list[Argument] = [Scalar(numbers["lr"][0], "float64")]
    sums = [Buffer(2), Buffer(3)]
    step = _lamb_step(dtype, wide, [0], 1, n_chunks, chunks, arrays, rates, sums, bounds, True)
    return launches(step)


def lamb(
    rule: str,
    numbers: dict[str, Any],
    is_corrected: bool,
    ins: Sequence[Type],
    outs: Sequence[Type],
) -> Native:
    """Directions into scratch memory, sums of squares of weights and of these, then the steps."""
    n = len(outs)
    sizes, at, directions = [prod(t.shape) for t in outs], 0, []
    for size in sizes:
        directions.append(Scratch(at))
        at += ceil_div(4 * size, 256) * 256
    groups = [tuple(range(4 * k, 4 * k + 4)) for k in range(n)]
    steps = lamb_directions(rule, numbers, is_corrected, "float32", groups, directions, ins)
    capacity = 1 if n == 1 else 64
    sums = {"weights": at, "directions": at + ceil_div(4 * n, 256) * 256}
    partial = sums["directions"] + ceil_div(4 * n, 256) * 256
    most = 0
    bounds = [Scalar(numbers[b][0], "float64") for b in ("lower_bound", "upper_bound")]
    for start in range(0, n, capacity):
        own = range(start, min(start + capacity, n))
        fill = [NULL] * (capacity - len(own))
        chunks, n_chunks = _chunks([sizes[k] for k in own], capacity, CHUNK)
        most = max(most, n_chunks)
        weights = [Buffer(4 * k) for k in own]
        moved = [directions[k] for k in own]
        for what, arrays in (("weights", weights), ("directions", moved)):
            given: list[Argument] = [
                chunks,
                Struct([*arrays, *fill]),
                Int64(CHUNK),
                Scratch(partial),
            ]
            name = f"chunk_sums<float, false, {capacity}>"
            steps.append(Launch("update.cu", name, (n_chunks,), (THREADS,), given))
            given = [chunks, Scratch(partial), Scratch(sums[what] + 4 * start)]
            name = f"finish_squares<float, {capacity}>"
            steps.append(Launch("update.cu", name, (len(own),), (THREADS,), given))
        rates: list[Argument] = [Scalar(numbers["lr"][k], "float64") for k in own]
        results = [Buffer(len(ins) + k) for k in own]
        given = [Scratch(sums[what] + 4 * start) for what in ("weights", "directions")]
        own_arrays: tuple = (weights, results, moved, [])
        steps.append(
            _lamb_step(
                "float32",
                False,
                own,
                capacity,
                n_chunks,
                chunks,
                own_arrays,
                rates,
                given,
                bounds,
                False,
            )
        )
    return launches(*steps, scratch_bytes=partial + 4 * most)
