"""Operators that index several axes at once: gather_nd, scatter_nd."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ...engine import lib
from .. import cuda
from ..cpu.layout import code, cost, nbytes
from ..native import Native
from ..record import NATIVE, NUMERIC, Attrs, Operator, Types
from ..spec import ITEM_BYTES
from . import on_cpu, on_cuda

MAX_DEPTH = 8  # index.cu
WHAT = {  # how a scatter writes; PLK_SET_IN: into input 0
    "scatter_nd": lib.PLK_SET,
    "_backward_gather_nd": lib.PLK_ADD,
    "_scatter_set_nd": lib.PLK_SET_IN,
}


class Points(NamedTuple):
    """n indices of `depth` numbers each, into n_rows rows of `inner` elements."""

    n: int
    depth: int
    n_rows: int
    inner: int


def _points(shape, indices) -> Points:
    depth = indices.shape[0]
    return Points(prod(indices.shape[1:]), depth, prod(shape[:depth]), prod(shape[depth:]))


# ---- CPU -----------------------------------------------------------------------------------------


def _on_cpu(function, what, shape, indices, dtype, types) -> Native | None:
    """A kernel on a table of `shape` whose first axes are indexed."""
    if indices.dtype not in NATIVE or what == lib.PLK_ADD and dtype not in NATIVE:
        return None
    points = _points(shape, indices)
    fields = {
        "n_places": points.n,
        "depth": points.depth,
        "shape": shape[: points.depth],
        "n_rows": points.n_rows,
        "inner": points.inner,
        "what": what,
        "size": ITEM_BYTES[dtype],
        "dtype": code(dtype),
        "index_dtype": code(indices.dtype),
    }
    us = cost(*types, steps=5 * points.n * points.depth)
    return Native(function, ("plk_points", fields), us, can_fail=True)


@on_cpu("gather_nd")
def gather_nd_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    (data, indices), types = ins, (*outs, *outs)
    return _on_cpu("plk_gather_nd_run", lib.PLK_GATHER, data.shape, indices, data.dtype, types)


@on_cpu(*WHAT)
def scatter_nd_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y, types = outs[0], (ins[-2], *outs)
    return _on_cpu("plk_scatter_nd_run", WHAT[op.name], y.shape, ins[-1], y.dtype, types)


# ---- CUDA ----------------------------------------------------------------------------------------


def _struct(shape, indices) -> cuda.Struct | None:
    """The struct Points of index.cu."""
    depth = indices.shape[0]
    if depth > MAX_DEPTH or indices.dtype not in NUMERIC or 0 in shape[:depth]:
        return None
    sizes = [*shape[:depth], *[1] * (MAX_DEPTH - depth)]
    numbers = map(cuda.Int64, (prod(indices.shape[1:]), depth))
    return cuda.Struct(*numbers, [*map(cuda.Int64, sizes)])


@on_cuda("gather_nd")
def gather_nd_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    data, indices = ins
    struct = _struct(data.shape, indices)
    if struct is None:
        return None
    points = _points(data.shape, indices)
    word, element, words = cuda.copy_plan.words(points.inner, data.dtype)
    size = points.n * words
    kind = cuda.index_of(size, prod(data.shape))
    sizes = cuda.index(size, kind), cuda.divisor(max(words, 1), kind)
    name = f"gather_nd<{word}, {element}, {cuda.TYPES[indices.dtype]}, {kind}>"
    arguments = [*sizes, struct, *map(cuda.Buffer, (1, 0, 2))]
    return cuda.launches(cuda.spread("index.cu", name, size, arguments))


@on_cuda(*WHAT)
def scatter_nd_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    add, given = WHAT[op.name] == lib.PLK_ADD, WHAT[op.name] == lib.PLK_SET_IN
    y, (rows, indices) = outs[0], ins[-2:]
    struct = _struct(y.shape, indices)
    if struct is None or rows.dtype != y.dtype or add and y.dtype not in NUMERIC:
        return None
    points, to = _points(y.shape, indices), cuda.Buffer(len(ins))
    first = cuda.Copy(to, cuda.Buffer(0), nbytes(y)) if given else cuda.Fill(to, nbytes(y))
    if not points.n * points.inner:
        return cuda.launches(first)
    # values that are only stored are copied as words
    dtype = y.dtype if add else f"uint{8 * ITEM_BYTES[y.dtype]}"
    places = f"PointRows<{cuda.TYPES[indices.dtype]}>"
    at = cuda.Struct(cuda.Buffer(1 + given), struct)
    call = (places, at, points.n, 1, points.n_rows, points.inner, dtype, add)
    steps, scratch = cuda.scatter_plan.scatter(*call, cuda.Buffer(int(given)), to)
    return cuda.launches(first, *steps, scratch_bytes=scratch)
