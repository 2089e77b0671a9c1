"""Reductions over axes, argmax and argmin."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import MAX_DIMS, code, cost, reduced_dims
from ..native import Native
from ..record import (
    FLOATS,
    NATIVE,
    NATIVE_FLOATS,
    NATIVE_INTS,
    NUMERIC,
    Attrs,
    Operator,
    Type,
    Types,
)
from ..shapes import lines, many_axes
from . import on_cpu, on_cuda

KINDS = {
    "sum": lib.PLK_SUM,
    "mean": lib.PLK_SUM,
    "nansum": lib.PLK_NANSUM,
    "_square_sum": lib.PLK_SUM_SQUARE,
    "prod": lib.PLK_PROD,
    "nanprod": lib.PLK_NANPROD,
    "max": lib.PLK_MAX,
    "min": lib.PLK_MIN,
}
# of every dtype, to bools
TRUTH = {"_any": lib.PLK_ANY, "_all": lib.PLK_ALL}
# of whole numbers and bools, in int64
WHOLE_KINDS = tuple(KINDS[k] for k in ("sum", "nansum", "prod", "nanprod", "max", "min"))


def _axes(op, x, attrs) -> tuple[tuple[int, ...], int]:
    """(the reduced axes, how many elements are reduced to one)"""
    axes = many_axes(op.name, attrs["axis"], len(x.shape), attrs.get("exclude", False))
    return axes, prod(x.shape[a] for a in axes)


# ---- CPU -----------------------------------------------------------------------------------------


def method(name: str, count: int) -> tuple[int, float]:
    """(kind in C, factor of the result) of a reduction over `count` elements."""
    return KINDS[name], 1 / count if name == "mean" else 1.0


def _on_cpu(x, y, axes, kind, scale=1.0, root=False) -> Native | None:
    whole = kind in WHOLE_KINDS and {x.dtype, y.dtype} <= {*NATIVE_INTS, "bool"}
    given = kind in TRUTH.values() or whole
    if not given and (x.dtype not in NATIVE_FLOATS or y.dtype != x.dtype):
        return None
    dims = reduced_dims(x.shape, axes)
    inner, _, inner_reduced = dims.pop() if dims else (1, 1, True)
    kept = [d for d in dims if not d[2]]
    reduced = [d for d in dims if d[2]]
    if max(len(kept), len(reduced)) > MAX_DIMS:
        return None
    fields = {
        "kind": kind,
        "dtype": code(x.dtype),
        "out_dtype": code(y.dtype),
        "inner_reduced": inner_reduced,
        "root": root,
        "n_kept": len(kept),
        "n_reduced": len(reduced),
        "inner": inner,
        "n_out": prod(y.shape),
        "n_in": prod(x.shape),
        "kept_shape": [d[0] for d in kept],
        "kept_strides": [d[1] for d in kept],
        "reduced_shape": [d[0] for d in reduced],
        "reduced_strides": [d[1] for d in reduced],
        "scale": scale,
    }
    return Native("plk_reduce_run", ("plk_reduce", fields), cost(x, y, steps=prod(x.shape) / 8))


@on_cpu(*KINDS)
def reduce_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    axes, count = _axes(op, ins[0], attrs)
    if op.name == "mean" and (count == 0 or ins[0].dtype not in NATIVE_FLOATS):
        return None
    return _on_cpu(ins[0], outs[0], axes, *method(op.name, count))


@on_cpu(*TRUTH)
def truth_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(ins[0], outs[0], _axes(op, ins[0], attrs)[0], TRUTH[op.name])


@on_cpu("norm")
def norm_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    axes, _ = _axes(op, ins[0], attrs)
    first = attrs["ord"] == 1
    kind = lib.PLK_SUM_ABS if first else lib.PLK_SUM_SQUARE
    return _on_cpu(ins[0], outs[0], axes, kind, root=not first)


@on_cpu("argmax", "argmin", "argmax_channel")
def argmax_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, dtypes = ins[0], [ins[0].dtype, outs[0].dtype]
    if "bool" in dtypes[1:] or any(d not in (*NATIVE, "bool") for d in dtypes):
        return None
    along = lines(op.name, x.shape, attrs.get("axis", 1))
    if along.n >= 1 << 31:
        return None
    fields = {
        **along._asdict(),
        "dtype": code(dtypes[0]),
        "out_dtype": code(dtypes[1]),
        "smallest": op.name == "argmin",
    }
    return Native("plk_argmax_run", ("plk_argmax", fields), cost(x, *outs, steps=prod(x.shape)))


# ---- CUDA ----------------------------------------------------------------------------------------


def _on_cuda(x, y, axes, method: str, scale: float | None = None, root=False) -> Native | None:
    if y.dtype != x.dtype or x.dtype not in (FLOATS if scale or root else NUMERIC):
        return None
    plan = cuda.reduce_plan.Plan(x.shape, axes, cuda.vector_of(x.dtype), 8)
    scaled = cuda.Float64(1.0 if scale is None else scale), cuda.Int32(scale is not None)
    given = cuda.Struct(cuda.Buffer(0), cuda.Buffer(1), *scaled, cuda.Int32(root))
    name = f"Reduce<{cuda.TYPES[x.dtype]}, {{I}}, {method}>"
    steps = plan.launches("reduce.cu", name, given)
    return cuda.launches(*steps, scratch_bytes=plan.scratch_bytes)


@on_cuda(*KINDS)
def reduce_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    (x,), (y,), mean, (axes, count) = ins, outs, op.name == "mean", _axes(op, ins[0], attrs)
    if x.dtype == "bool" and op.name in ("max", "min"):  # of bytes 0 and 1
        x, y = Type(x.shape, "uint8"), Type(y.shape, "uint8")
    if mean and (count == 0 or x.dtype in NATIVE_INTS):
        return None
    method = cuda.pointwise_source.METHODS[op.name]
    return _on_cuda(x, y, axes, method, 1 / count if mean else None)


@on_cuda("norm")
def norm_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, (axes, _) = ins[0], _axes(op, ins[0], attrs)
    first = attrs["ord"] == 1
    method = "SumAbs" if first else "SumSquare"
    return _on_cuda(x, outs[0], axes, method, root=not first) if x.dtype in FLOATS else None


@on_cuda("argmax", "argmin", "argmax_channel")
def argmax_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    if x.dtype not in NUMERIC or outs[0].dtype != x.dtype or not x.shape or 0 in x.shape:
        return None
    along = lines(op.name, x.shape, attrs.get("axis", 1))
    plan = cuda.reduce_plan.Plan(along, [1], cuda.vector_of(x.dtype), 16)
    name = f"Extreme<{cuda.TYPES[x.dtype]}, {{I}}, {cuda.bool_of(op.name == 'argmin')}>"
    steps = plan.launches("reduce.cu", name, cuda.Struct(cuda.Buffer(0), cuda.Buffer(1)))
    return cuda.launches(*steps, scratch_bytes=plan.scratch_bytes)
