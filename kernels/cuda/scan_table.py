"""The entry of cumulative sums."""

from __future__ import annotations

from math import prod

from ..record import FLOATS
from ..shapes import one_axis
from .launch import Argument, Buffer, Int64, Launch, launches
from .layout import THREADS, TYPES, blocks_for
from .table import native


@native("_np_cumsum")
def cumsum_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if not x.shape or 0 in x.shape:
        return None
    axis, shape = attrs["axis"], x.shape
    if axis is None:
        axis, shape = 0, (prod(shape),)
    axis = one_axis(op.name, axis, len(shape))
    outer, n, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    wide = "double" if x.dtype in FLOATS else "int64_t"
    types, arrays = f"{TYPES[x.dtype]}, {TYPES[y.dtype]}, {wide}", [Buffer(0), Buffer(1)]
    if inner == 1:
        name, arguments = f"scan_rows<{types}>", [Int64(n), *arrays]
        return launches(Launch("scan.cu", name, (outer,), (THREADS,), arguments))
    lines = outer * inner
    arguments: list[Argument] = [Int64(lines), Int64(n), Int64(inner), *arrays]
    name = f"scan_columns<{types}>"
    return launches(Launch("scan.cu", name, blocks_for(lines, THREADS), (THREADS,), arguments))
