"""The entries of cumulative sums."""

from __future__ import annotations

from math import prod

from ..cpu.layout import code, cost
from ..native import Native
from ..record import FLOATS
from ..shapes import lines
from . import entry


@entry("cpu", "_np_cumsum")
def on_cpu(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype != y.dtype or x.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    fields = {**lines(op.name, x.shape, attrs["axis"])._asdict(), "dtype": code(x.dtype)}
    return Native("plk_scan_run", ("plk_scan", fields), cost(x, y, steps=prod(x.shape)))


@entry("cuda", "_np_cumsum")
def on_gpu(op, ins, outs, attrs):
    from ..cuda.launch import Buffer, Int64, Launch, launches  # here: few processes have one
    from ..cuda.layout import THREADS, TYPES, blocks_for

    x, y = ins[0], outs[0]
    if not x.shape or 0 in x.shape:
        return None
    outer, n, inner = lines(op.name, x.shape, attrs["axis"])
    wide = "double" if x.dtype in FLOATS else "int64_t"
    types, arrays = f"{TYPES[x.dtype]}, {TYPES[y.dtype]}, {wide}", [Buffer(0), Buffer(1)]
    if inner == 1:
        rows = [Int64(n), *arrays]
        return launches(Launch("scan.cu", f"scan_rows<{types}>", (outer,), (THREADS,), rows))
    columns = [Int64(outer * inner), Int64(n), Int64(inner), *arrays]
    grid = blocks_for(outer * inner, THREADS)
    return launches(Launch("scan.cu", f"scan_columns<{types}>", grid, (THREADS,), columns))
