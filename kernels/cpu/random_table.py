"""Entries of random numbers and dropout."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..record import NATIVE_FLOATS
from .layout import MAX_DIMS, broadcast_strides, code, collapse, cost
from .table import native


def _random(function, op, y, a, b):
    if y.dtype not in NATIVE_FLOATS:
        return None
    n = prod(y.shape)
    return Native(
        function,
        (
            "plk_random",
            {"n": n, "dtype": code(y.dtype), "a": a, "b": b, "out_at": len(op.inputs)},
        ),
        cost(y, steps=4 * n),
    )


@native("_random_uniform", "_random_uniform_like")
def uniform_entry(op, ins, outs, attrs):
    return _random("plk_random_uniform", op, outs[0], attrs["low"], attrs["high"])


@native("_random_normal", "_random_normal_like")
def normal_entry(op, ins, outs, attrs):
    return _random("plk_random_normal", op, outs[0], attrs["loc"], attrs["scale"])


@native("_random_exponential", "_random_exponential_like")
def exponential_entry(op, ins, outs, attrs):
    return _random("plk_random_exponential", op, outs[0], attrs["lam"], 0.0)


@native("_random_randint")
def randint_entry(op, ins, outs, attrs):
    y = outs[0]
    n = prod(y.shape)
    fields = {"n": n, "dtype": code(y.dtype), "low": attrs["low"], "high": attrs["high"]}
    return Native("plk_random_whole", ("plk_random", fields), cost(y, steps=4 * n))


@native("Dropout")
def dropout_entry(op, ins, outs, attrs):
    x, mask = ins[0], outs[1]
    active = attrs["p"] > 0 and (attrs["train"] or attrs["mode"] == "always")
    if x.dtype != "float32":
        return None
    dims, (strides,) = (
        collapse(x.shape, broadcast_strides(mask.shape, x.shape)) if active else ([], [[]])
    )
    if len(dims) > MAX_DIMS:
        return None
    n = prod(x.shape)
    fields = {
        "n": n,
        "n_mask": prod(mask.shape),
        "shape": dims,
        "strides": strides,
        "ndim": len(dims),
        "active": active,
        "p": attrs["p"],
    }
    return Native(
        "plk_dropout_run", ("plk_dropout", fields), cost(x, x, x, steps=2 * n if active else 0)
    )
