"""_arange and eye."""

from __future__ import annotations

from math import prod

from .. import cuda
from ..cpu.layout import code, cost
from ..native import Native
from ..ops.create import arange_count
from ..record import FLOATS, Attrs, Operator, Types
from . import on_cpu, on_cuda

EXACT = 2**53  # integers up to here are exact in float64


def _first(attrs) -> float:
    """The first value of an _arange."""
    return arange_count(*(attrs[k] for k in ("start", "stop", "step", "repeat")))[0]


def _range(y, start, step, repeat=1, out_at=0, whole=None):
    n, whole = prod(y.shape), y.dtype not in FLOATS if whole is None else whole
    if repeat < 1 or whole and max(abs(start), abs(step)) >= EXACT:
        return None
    fields = {
        "n": n,
        "repeat": repeat,
        "dtype": code(y.dtype),
        "whole": whole,
        "out_at": out_at,
        "start": start,
        "step": step,
    }
    return Native("plk_range_run", ("plk_range", fields), cost(y, steps=n / 2))


@on_cpu("_arange")
def arange_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _range(outs[0], _first(attrs), attrs["step"], attrs["repeat"])


@on_cpu("_linspace")
def linspace_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    start, stop, num = attrs["start"], attrs["stop"], attrs["num"]
    step = (stop - start) / max(num - 1 if attrs["endpoint"] else num, 1)
    return _range(outs[0], start, step, whole=False)


@on_cpu("_contrib_arange_like")
def arange_like_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _range(outs[0], attrs["start"], attrs["step"], attrs["repeat"], out_at=1)


@on_cpu("_eye")
def eye_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    rows, columns = y.shape
    fields = {"rows": rows, "columns": columns, "diagonal": attrs["k"], "dtype": code(y.dtype)}
    return Native("plk_eye_run", ("plk_eye", fields), cost(y))


@on_cuda("_arange")
def arange_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y, ends = outs[0], (_first(attrs), attrs["step"])
    is_float = y.dtype in FLOATS
    wide = "double" if is_float else "int64_t"
    given = (cuda.Float64(n) if is_float else cuda.Int64(int(n)) for n in ends)
    sizes = map(cuda.Int64, (prod(y.shape), attrs["repeat"]))
    name = f"arange<{cuda.TYPES[y.dtype]}, {wide}>"
    arguments = [*sizes, cuda.Buffer(0), *given]
    return cuda.launches(cuda.spread("fill.cu", name, prod(y.shape), arguments))
