"""Cumulative sums and products."""

from __future__ import annotations

from math import prod

from .. import cuda
from ..cpu.layout import code, cost
from ..native import Native
from ..record import FLOATS, Attrs, Operator, Types
from ..shapes import lines
from . import on_cpu, on_cuda


@on_cpu("_np_cumsum", "_cumprod")
def scan_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if x.dtype != y.dtype or x.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    fields = {**lines(op.name, x.shape, attrs["axis"])._asdict(), "dtype": code(x.dtype)}
    fields["multiplies"] = op.name == "_cumprod"
    return Native("plk_scan_run", ("plk_scan", fields), cost(x, y, steps=prod(x.shape)))


@on_cuda("_np_cumsum")
def cumsum_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if not x.shape or 0 in x.shape:
        return None
    outer, n, inner = lines(op.name, x.shape, attrs["axis"])
    wide = "double" if x.dtype in FLOATS else "int64_t"
    types = f"{cuda.TYPES[x.dtype]}, {cuda.TYPES[y.dtype]}, {wide}"
    arrays, block = [cuda.Buffer(0), cuda.Buffer(1)], (cuda.THREADS,)
    if inner == 1:
        name, arguments = f"scan_rows<{types}>", [cuda.Int64(n), *arrays]
        return cuda.launches(cuda.Launch("scan.cu", name, (outer,), block, arguments))
    sizes, grid = map(cuda.Int64, (outer * inner, n, inner)), cuda.blocks_for(outer * inner)
    name = f"scan_columns<{types}>"
    return cuda.launches(cuda.Launch("scan.cu", name, grid, block, [*sizes, *arrays]))
