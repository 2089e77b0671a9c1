"""Launches of fused groups: one generated kernel for each, with the reductions of map_reduce.cuh at
its end or over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ...engine import Context, cuda
from ..cpu.layout import broadcast_strides, collapse
from ..fused import (
    MAX_INPUTS,
    MAX_OUTPUTS,
    Group,
    Lowered,
    lowered,
    step_forms,
    value_dtypes,
)
from ..record import FLOATS, HALVES, Type
from .compile import Kernel, compile_all, ready
from .launch import Argument, Buffer, Float32, Float64, Int32, Int64, Launch, Struct
from .layout import (
    index_of,
    places,
    row_launch,
    row_shape,
)
from .pointwise_plan import elementwise_launch, pattern_of, scalar_arguments
from .pointwise_source import FULL, ONE, OUTER, Pattern, reduced
from .reduce_plan import Plan
from .row_source import FUNCTION as ROWS_FUNCTION
from .row_source import Rows

ROW_DTYPES = ("float32", *HALVES)  # of fused row reductions, which compute in float32
MAX_MAP_VECTORS = 4  # arrays of which a map of a reduction loads whole vectors


class Made(NamedTuple):
    """The launches of a group, and their scratch memory."""

    steps: Sequence[Launch]
    scratch_bytes: int = 0


def make(group: Group, ins: Sequence[Type], outs: Sequence[Type]) -> Made | None:
    """What computes a group; None where no kernel does."""
    if len(ins) > MAX_INPUTS or len(outs) > MAX_OUTPUTS or 0 in group.shape or not ins:
        return None
    dtypes = value_dtypes(group, ins)
    if step_forms(group, dtypes) is None:
        return None
    if any(r.reduce and dtypes[r.value] not in FLOATS for r in group.results):
        return None
    try:
        found = lowered(group, [t.dtype for t in ins])
    except ValueError:
        return None
    if group.rows:
        return _rows(group, found, ins, outs)
    loop = found.loop("", group)
    given = scalar_arguments(found.scalars, None)
    out_dtypes = [t.dtype for t in outs]
    pattern, at = pattern_of(ins, out_dtypes, group.in_shapes, group.shape)
    if not any(r.reduce for r in group.results):
        return Made([elementwise_launch(loop, pattern, prod(group.shape), given, at)])
    reductions = [r.reduce for r in group.results]
    n_vectors = len(ins) + reductions.count("")
    vector = pattern.vector if n_vectors <= MAX_MAP_VECTORS else min(pattern.vector, 4)
    n_sums = len(reductions) - reductions.count("")
    plan = Plan(group.shape, group.axes, vector, 8 * n_sums)
    pattern = pattern._replace(index_type=plan.index, vector=plan.vector, unroll=1)
    count = prod(group.shape[a] for a in group.axes)
    factors = [
        (Float64 if t.dtype == "float64" else Float32)(1 / count if m == "mean" else 1.0)
        for t, m in zip(outs, reductions)
        if m
    ]
    arrays: list[Argument] = [Buffer(i) for i in range(len(ins) + len(outs))]
    steps = plan.launches(
        reduced(loop, pattern, reductions), "Map", Struct(*arrays, *given, *factors, *at)
    )
    return Made(steps, plan.scratch_bytes)


def _rows(group: Group, found: Lowered, ins, outs) -> Made | None:
    if any(t.dtype not in ROW_DTYPES for t in (*ins, *outs)):
        return None
    *lead, n = group.shape
    n_rows = prod(lead)
    # by row: a number for each row, or, along whole rows, where each begins
    dims, strides = collapse(lead, *_row_strides(group))
    full: list[int] = []
    for step in reversed(dims):
        full.insert(0, full[0] * dims[len(dims) - len(full)] if full else 1)
    kinds, spread = [], []
    for shape, s in zip(group.in_shapes, strides):
        width = n if _is_full(shape) else 1
        if not any(s):
            kinds.append(ONE)
        elif s == [width * step for step in full]:
            kinds.append(FULL)
        else:
            kinds.append(OUTER)
            spread.append(s)
    kind = index_of(prod(group.shape))
    held = sum(_is_full(s) for s in group.in_shapes)
    whole = sum(prod(t.shape) == prod(group.shape) for t in outs)
    threads, items, vector = row_shape(
        n, 4 if "float32" in [t.dtype for t in (*ins, *outs)] else 8, 2 * max(1, held + whole)
    )
    pattern = Pattern(
        tuple(t.dtype for t in ins),
        tuple(t.dtype for t in outs),
        tuple(kinds),
        len(dims) if spread else 0,
        kind,
        vector,
        1,
    )
    source = Rows(group, found.loop("", group), found.statements, pattern).text()
    grid, block = row_launch(n_rows, threads)
    arguments: list[Argument] = [
        Int64(n_rows),
        Int32(n),
        *(Buffer(i) for i in range(len(ins) + len(outs))),
        *scalar_arguments(found.scalars, None),
        *([places(dims, spread, kind)] if spread else []),
    ]
    name = f"{ROWS_FUNCTION}<{threads}, {items}, {vector}>"
    return Made([Launch(source, name, grid, block, arguments)])


def _is_full(shape: Sequence[int]) -> bool:
    return bool(shape) and shape[-1] != 1


def _row_strides(group: Group) -> list[list[int]]:
    """Of each input over the dimensions before the last."""
    found = []
    for shape in group.in_shapes:
        full = (1,) * (len(group.shape) - len(shape)) + tuple(shape)
        found.append(broadcast_strides(full, group.shape)[:-1])
    return found


# ---- before a graph is fused ---------------------------------------------------------------------


def can_compile(device: Context) -> bool:
    """Is there a compiler for a GPU?"""
    return cuda.find("nvrtc") is not None


def prepare(groups: Sequence[tuple[Group, Sequence[str]]], device: Context) -> list[bool]:
    """Compiles the kernels of (group, dtypes of its inputs) for a GPU, side by side. Which of them
    there are now."""
    number = device.device_id
    wanted = []
    for group, dtypes in groups:
        ins = [Type(tuple(s), d) for s, d in zip(group.in_shapes, dtypes)]
        values = value_dtypes(group, ins)
        outs = [Type(tuple(r.shape), values[r.value]) for r in group.results]
        made = make(group, ins, outs)
        wanted.append([Kernel(s.source, s.function) for s in made.steps] if made else [])
    compile_all(number, [k for kernels in wanted for k in kernels])
    return [bool(ks) and all(ready(number, k.source, k.name) for k in ks) for ks in wanted]
