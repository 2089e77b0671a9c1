"""Entries of random numbers and dropout."""

from __future__ import annotations

from math import prod

from ..record import FLOATS
from .launch import Argument, Buffer, Copy, Float64, Int64, Launch, Scalar, launches
from .layout import (
    THREADS,
    TYPES,
    blocks_for,
    broadcast_strides,
    collapse,
    index,
    index_of,
    nbytes,
    places,
)
from .table import native

# seed and call counter follow the dynamic parameters, of which these operators have none
STREAM = (Scalar(0, "uint64"), Scalar(1, "uint64"))


def _random(op, y, a, b, kind: str):
    if y.dtype not in FLOATS or any(p.dynamic for p in op.params):
        return None
    n, each = prod(y.shape), 2 if y.dtype == "float64" else 4
    arguments: list[Argument] = [Int64(n), Buffer(len(op.inputs)), Float64(a), Float64(b), *STREAM]
    name = f"fill_random<{TYPES[y.dtype]}, {kind}>"
    return launches(Launch("random.cu", name, blocks_for(n, THREADS * each), (THREADS,), arguments))


@native("_random_uniform", "_random_uniform_like")
def uniform_entry(op, ins, outs, attrs):
    return _random(op, outs[0], attrs["low"], attrs["high"], "UNIFORM")


@native("_random_normal", "_random_normal_like")
def normal_entry(op, ins, outs, attrs):
    return _random(op, outs[0], attrs["loc"], attrs["scale"], "NORMAL")


@native("_random_exponential", "_random_exponential_like")
def exponential_entry(op, ins, outs, attrs):
    return _random(op, outs[0], attrs["lam"], 0.0, "EXPONENTIAL")


@native("_random_randint")
def randint_entry(op, ins, outs, attrs):
    y, width = outs[0], attrs["high"] - attrs["low"]
    n, narrow = prod(y.shape), y.dtype == "int32" and width <= 1 << 16
    name = f"fill_whole<{TYPES[y.dtype]}, {'true' if narrow else 'false'}>"
    arguments = [Int64(n), Buffer(0), Int64(attrs["low"]), Int64(width), *STREAM]
    grid = blocks_for(n, THREADS * (4 if narrow else 2))
    return launches(Launch("random.cu", name, grid, (THREADS,), arguments))


@native("Dropout")
def dropout_entry(op, ins, outs, attrs):
    x, mask = ins[0], outs[1]
    if x.dtype not in FLOATS or outs[0].dtype != x.dtype or mask.dtype != x.dtype:
        return None
    if not op.is_random(attrs):
        return launches(Copy(Buffer(1), Buffer(0), nbytes(x)))
    n, n_mask, t = prod(x.shape), prod(mask.shape), TYPES[x.dtype]
    same = n == n_mask
    arguments: list[Argument] = [
        Int64(n_mask),
        *map(Buffer, range(3)),
        Float64(attrs["p"]),
        *STREAM,
    ]
    name = f"dropout<{t}, {'true' if same else 'false'}>"
    grid = blocks_for(n_mask, 4 * THREADS)
    steps = [Launch("random.cu", name, grid, (THREADS,), arguments)]
    if not same:
        dims, (strides,) = collapse(x.shape, broadcast_strides(mask.shape, x.shape))
        kind = index_of(n)
        arguments = [
            index(n, kind),
            places(dims, [strides], kind),
            Buffer(0),
            Buffer(2),
            Buffer(1),
        ]
        name = f"apply_mask<{t}, {kind}, {max(len(dims), 1)}>"
        steps.append(Launch("random.cu", name, blocks_for(n, THREADS), (THREADS,), arguments))
    return launches(*steps)
