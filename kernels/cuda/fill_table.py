"""Entries of operators that write numbers: padding, assignment of a number to a slice, ranges."""

from __future__ import annotations

from math import prod

from ..ops.create import arange_count
from ..record import FLOATS, Type
from ..shapes import contiguous
from ..spec import ITEM_BYTES
from ..strided_copies import StridedCopy, strided_slice
from .copy_table import copy_launch
from .launch import Argument, Buffer, Copy, Fill, Float64, Int64, Launch, Scalar, launches
from .layout import THREADS, TYPES, blocks_for, collapse, index, index_of, nbytes, places
from .table import native


def _fill(shape, strides, offset: int, y: Type, to: Buffer, value: Argument) -> Launch:
    """A number in a strided part of y."""
    dims, (s,) = collapse(shape, strides)
    n, kind = prod(shape), index_of(prod(y.shape))
    arguments: list[Argument] = [index(n, kind), places(dims, [s], kind), to, Int64(offset), value]
    name = f"fill_strided<{TYPES[y.dtype]}, {kind}, {max(len(dims), 1)}>"
    return Launch("fill.cu", name, blocks_for(n, THREADS), (THREADS,), arguments)


@native("_slice_assign_scalar")
def slice_assign_scalar_entry(op, ins, outs, attrs):
    x, to = ins[0], Buffer(1)
    span = {k: attrs[k] for k in ("begin", "end", "step")}
    shape, strides, offset = strided_slice(op.name, x, span)
    fill = _fill(shape, strides, offset, x, to, Scalar(0, "float64"))
    return launches(Copy(to, Buffer(0), nbytes(x)), fill)


@native("Pad")
def pad_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if attrs["mode"] != "constant" or 0 in x.shape or not x.shape:
        return None
    value = attrs["constant_value"]
    value = value if x.dtype in FLOATS else int(value)
    strides = contiguous(y.shape)
    offset = sum(p * s for p, s in zip(attrs["pad_width"][::2], strides))
    to = Buffer(1)
    first: Launch | Fill = Fill(to, nbytes(y))
    if value:
        first = _fill(y.shape, strides, 0, y, to, Float64(value))
    copy = StridedCopy(x.shape, contiguous(x.shape), strides, 0, offset)
    return launches(first, copy_launch(copy, ITEM_BYTES[y.dtype], Buffer(0), to))


@native("_arange")
def arange_entry(op, ins, outs, attrs):
    y = outs[0]
    n = prod(y.shape)
    first, _ = arange_count(attrs["start"], attrs["stop"], attrs["step"], attrs["repeat"])
    if y.dtype in FLOATS:
        wide, ends = "double", [Float64(first), Float64(attrs["step"])]
    else:
        wide, ends = "int64_t", [Int64(int(first)), Int64(int(attrs["step"]))]
    arguments: list[Argument] = [Int64(n), Int64(attrs["repeat"]), Buffer(0), *ends]
    name = f"arange<{TYPES[y.dtype]}, {wide}>"
    return launches(Launch("fill.cu", name, blocks_for(n, THREADS), (THREADS,), arguments))
