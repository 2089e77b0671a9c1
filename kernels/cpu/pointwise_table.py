"""Entries of every operator that is an expression, of casts and of fills."""
from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import TABLE, Native, native
from ..record import REGISTRY
from .layout import MAX_DIMS, broadcast_strides, code, collapse, cost

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("uint8", "int8", "int32", "int64", "bool")
CALL_STEPS = 4                # a math function costs about as much as this many additions


def broadcast_fields(shape, in_shapes) -> dict | None:
    """The fields of plk_pointwise that describe arrays; None where they need more than MAX_DIMS dimensions."""
    dims, strides = collapse(shape, *(broadcast_strides(s, shape) for s in in_shapes))
    if len(dims) > MAX_DIMS:
        return None
    return dict(n_in=len(in_shapes), ndim=len(dims), n=prod(shape), shape=dims, strides=strides,
                in_n=[prod(s) for s in in_shapes])


def pointwise_entry(op, ins, outs, attrs):
    e, dtype = op.pointwise, outs[0].dtype
    if dtype not in FLOATS and (e.dtypes != "all" or dtype not in INTEGERS) or any(t.dtype != dtype for t in ins):
        return None
    number = lib.plk_pointwise_find(op.name.encode())
    fields = broadcast_fields(outs[0].shape, [t.shape for t in ins])
    if number < 0 or fields is None:
        return None
    weight = 1 + CALL_STEPS * e.text.count("(")
    fields |= dict(op=number, dtype=code(dtype), work=fields["n"] * weight // 2)
    return Native("plk_pointwise_run", ("plk_pointwise", fields), cost(*ins, *outs, steps=fields["n"] * weight / 8))


for _op in set(REGISTRY.values()):
    if _op.pointwise:
        TABLE.setdefault(_op.name, []).append(pointwise_entry)


@native("Cast", "amp_cast")
def cast_entry(op, ins, outs, attrs):
    n = prod(ins[0].shape)
    return Native("plk_cast_run", ("plk_cast", {"n": n, "from": code(ins[0].dtype), "to": code(outs[0].dtype)}),
                  cost(*ins, *outs, steps=n / 2))
