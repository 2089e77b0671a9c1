"""Entries of reductions and positions of extremes, for float32 and float64."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..record import NATIVE_FLOATS
from ..shapes import lines, many_axes
from .layout import MAX_DIMS, code, contiguous, cost
from .table import native

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


def method(name: str, count: int) -> tuple[int, float]:
    """(kind in C, what multiplies the result) of a reduction over `count` elements."""
    return KINDS[name], 1 / count if name == "mean" else 1.0


def reduce_native(x, y, axes, kind, scale=1.0, root=False):
    """A reduction of x over sorted axes. Returns None where there is no kernel for it."""
    if x.dtype not in NATIVE_FLOATS or y.dtype != x.dtype:
        return None
    # [size, stride, reduced], neighbours of one kind merged
    dims: list[list] = []
    for axis, (n, stride) in enumerate(zip(x.shape, contiguous(x.shape))):
        if n == 1:
            continue
        if dims and dims[-1][2] == (axis in axes):
            dims[-1] = [dims[-1][0] * n, stride, dims[-1][2]]
        else:
            dims.append([n, stride, axis in axes])
    inner, _, inner_reduced = dims.pop() if dims else (1, 1, True)
    kept = [d for d in dims if not d[2]]
    reduced = [d for d in dims if d[2]]
    if max(len(kept), len(reduced)) > MAX_DIMS:
        return None
    fields = {
        "kind": kind,
        "dtype": code(x.dtype),
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


@native(*KINDS)
def reduce_entry(op, ins, outs, attrs):
    x = ins[0]
    axes = many_axes(op.name, attrs["axis"], len(x.shape), attrs["exclude"])
    count = prod(x.shape[a] for a in axes)
    if op.name == "mean" and count == 0:
        return None
    return reduce_native(x, outs[0], axes, *method(op.name, count))


@native("norm")
def norm_entry(op, ins, outs, attrs):
    axes = many_axes(op.name, attrs["axis"], len(ins[0].shape))
    first = attrs["ord"] == 1
    return reduce_native(
        ins[0], outs[0], axes, lib.PLK_SUM_ABS if first else lib.PLK_SUM_SQUARE, root=not first
    )


@native("argmax", "argmin", "argmax_channel")
def argmax_entry(op, ins, outs, attrs):
    x = ins[0]
    axis = attrs.get("axis", 1)
    if x.dtype not in NATIVE_FLOATS or outs[0].dtype != x.dtype:
        return None
    fields = {
        **lines(op.name, x.shape, axis)._asdict(),
        "dtype": code(x.dtype),
        "smallest": op.name == "argmin",
    }
    return Native("plk_argmax_run", ("plk_argmax", fields), cost(x, *outs, steps=prod(x.shape)))
