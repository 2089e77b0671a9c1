"""Random numbers and dropout."""

from __future__ import annotations

from math import prod

from .. import cuda
from ..cpu.layout import MAX_DIMS, broadcast_strides, code, collapse, cost, nbytes
from ..native import Native
from ..record import FLOATS, NATIVE_FLOATS, Attrs, Operator, Types
from ..spec import ITEM_BYTES
from . import on_cpu, on_cuda

# operator -> (distribution, names of its parameters)
DISTRIBUTIONS = {
    "_random_uniform": ("uniform", "low", "high"),
    "_random_normal": ("normal", "loc", "scale"),
    "_random_exponential": ("exponential", "lam"),
}
DISTRIBUTIONS |= {f"{name}_like": of for name, of in DISTRIBUTIONS.items()}


def _numbers(op, attrs) -> tuple[str, float, float]:
    """(distribution, its two parameters)"""
    kind, *names = DISTRIBUTIONS[op.name]
    a, b = (*(attrs[name] for name in names), 0.0)[:2]
    return kind, a, b


# ---- CPU -----------------------------------------------------------------------------------------


def _on_cpu(function: str, y, **fields) -> Native:
    n = prod(y.shape)
    fields = {"n": n, "dtype": code(y.dtype), **fields}
    return Native(function, ("plk_random", fields), cost(y, steps=4 * n))


@on_cpu(*DISTRIBUTIONS)
def draw_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if outs[0].dtype not in NATIVE_FLOATS:
        return None
    kind, a, b = _numbers(op, attrs)
    return _on_cpu(f"plk_random_{kind}", outs[0], a=a, b=b, out_at=len(op.inputs))


@on_cpu("_random_randint")
def randint_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu("plk_random_whole", outs[0], low=attrs["low"], high=attrs["high"])


@on_cpu("_shuffle")
def shuffle_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n, *rest = ins[0].shape
    fields = {"n": n, "row_bytes": prod(rest) * ITEM_BYTES[ins[0].dtype]}
    return Native("plk_shuffle_run", ("plk_shuffle", fields), cost(*ins, *outs, steps=20 * n))


@on_cpu("_sample_unique_zipfian")
def zipfian_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    batch, n = outs[0].shape
    fields = {"batch": batch, "n": n, "range": attrs["range_max"]}
    return Native("plk_zipfian_run", ("plk_zipfian", fields), 0.2 * batch * n)


@on_cpu("Dropout")
def dropout_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, mask = ins[0], outs[1]
    if x.dtype != "float32":
        return None
    active, n = op.is_random(attrs), prod(x.shape)
    dims: list[int] = []
    strides: list[int] = []
    if active:
        dims, (strides,) = collapse(x.shape, broadcast_strides(mask.shape, x.shape))
    if len(dims) > MAX_DIMS:
        return None
    fields = {
        "n": n,
        "n_mask": prod(mask.shape),
        "shape": dims,
        "strides": strides,
        "ndim": len(dims),
        "active": active,
        "p": attrs["p"],
    }
    us = cost(x, x, x, steps=2 * n if active else 0)
    return Native("plk_dropout_run", ("plk_dropout", fields), us)


# ---- CUDA ----------------------------------------------------------------------------------------


@on_cuda(*DISTRIBUTIONS)
def draw_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y = outs[0]
    if y.dtype not in FLOATS or any(p.dynamic for p in op.params):
        return None
    kind, a, b = _numbers(op, attrs)
    n, each = prod(y.shape), 2 if y.dtype == "float64" else 4
    numbers = map(cuda.Float64, (a, b))
    arguments = [cuda.Int64(n), cuda.Buffer(len(op.inputs)), *numbers, *cuda.STREAM]
    name = f"fill_random<{cuda.TYPES[y.dtype]}, {kind.upper()}>"
    return cuda.launches(cuda.spread("random.cu", name, n, arguments, each))


@on_cuda("_random_randint")
def randint_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    y, width = outs[0], attrs["high"] - attrs["low"]
    n, narrow = prod(y.shape), y.dtype == "int32" and width <= 1 << 16
    name = f"fill_whole<{cuda.TYPES[y.dtype]}, {cuda.bool_of(narrow)}>"
    numbers = map(cuda.Int64, (attrs["low"], width))
    arguments = [cuda.Int64(n), cuda.Buffer(0), *numbers, *cuda.STREAM]
    return cuda.launches(cuda.spread("random.cu", name, n, arguments, 4 if narrow else 2))


@on_cuda("Dropout")
def dropout_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, mask = ins[0], outs[1]
    if x.dtype not in FLOATS or outs[0].dtype != x.dtype or mask.dtype != x.dtype:
        return None
    if not op.is_random(attrs):
        return cuda.launches(cuda.Copy(cuda.Buffer(1), cuda.Buffer(0), nbytes(x)))
    n, n_mask, t = prod(x.shape), prod(mask.shape), cuda.TYPES[x.dtype]
    arrays = map(cuda.Buffer, range(3))
    arguments = [cuda.Int64(n_mask), *arrays, cuda.Float64(attrs["p"]), *cuda.STREAM]
    name = f"dropout<{t}, {cuda.bool_of(n == n_mask)}>"
    steps = [cuda.spread("random.cu", name, n_mask, arguments, 4)]
    if n != n_mask:
        dims, (strides,) = collapse(x.shape, broadcast_strides(mask.shape, x.shape))
        kind = cuda.index_of(n)
        places = cuda.places(dims, [strides], kind)
        given = [cuda.index(n, kind), places, *map(cuda.Buffer, (0, 2, 1))]
        name = f"apply_mask<{t}, {kind}, {max(len(dims), 1)}>"
        steps.append(cuda.spread("random.cu", name, n, given))
    return cuda.launches(*steps)
