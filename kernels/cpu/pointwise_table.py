"""Entries of every operator that is an expression, of casts and of fills."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..loops import LOOPS, form
from ..native import Native
from ..record import REGISTRY
from .layout import MAX_DIMS, broadcast_strides, code, collapse, cost
from .table import native


def broadcast_fields(shape, in_shapes, kept=None) -> tuple[dict, list[int]] | None:
    """(the fields of plk_pointwise that describe arrays, the strides of an array of shape `kept`);
    None where they need more than MAX_DIMS dimensions."""
    seen = [*in_shapes, shape if kept is None else kept]
    dims, strides = collapse(shape, *(broadcast_strides(s, shape) for s in seen))
    if len(dims) > MAX_DIMS:
        return None
    *strides, kept_strides = strides
    fields = {
        "n_in": len(in_shapes),
        "ndim": len(dims),
        "n": prod(shape),
        "shape": dims,
        "strides": strides,
        "in_n": [prod(s) for s in in_shapes],
    }
    return fields, kept_strides


def pointwise_entry(op, ins, outs, attrs):
    """The generated loop of a call that is an expression."""
    y, found = outs[0], form(op, ins, outs, attrs)
    if found is None:
        return None
    number = lib.plk_pointwise_find(found.name.encode())
    described = broadcast_fields(y.shape, found.shapes or [t.shape for t in ins])
    if number < 0 or described is None:
        return None
    fields, _ = described
    weight, constants = found.expression.weight, found.constants or ()
    fields |= {
        "op": number,
        "dtype": code(y.dtype),
        "n_out": 1,
        "in_dtype": [code(t.dtype) for t in ins],
        "out_dtype": [code(y.dtype)],
        "work": fields["n"] * weight // 2,
        "n_constants": len(constants),
        "constants": list(constants),
    }
    return Native(
        "plk_pointwise_run",
        ("plk_pointwise", fields),
        cost(*ins, y, steps=fields["n"] * weight / 8),
    )


for _op in set(REGISTRY.values()):
    if _op.pointwise or any(name.startswith(_op.name + ":") for name in LOOPS):
        native(_op.name)(pointwise_entry)
native("where", "_contrib_div_sqrt_dim")(pointwise_entry)


@native("Cast", "amp_cast")
def cast_entry(op, ins, outs, attrs):
    n = prod(ins[0].shape)
    return Native(
        "plk_cast_run",
        ("plk_cast", {"n": n, "from": code(ins[0].dtype), "to": code(outs[0].dtype)}),
        cost(*ins, *outs, steps=n / 2),
    )
