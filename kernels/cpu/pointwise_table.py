"""Entries of every operator that is an expression, of casts and of fills."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..loops import LOOPS
from ..native import TABLE, Native, choose, native
from ..record import FLOATS, REGISTRY, Type
from .layout import MAX_DIMS, broadcast_strides, code, collapse, cost

INTEGERS = ("uint8", "int8", "int32", "int64", "bool")
CALL_STEPS = 4  # a math function costs about as much as this many additions


def broadcast_fields(shape, in_shapes) -> dict | None:
    """The fields of plk_pointwise that describe arrays; None where they need more than MAX_DIMS
    dimensions."""
    dims, strides = collapse(shape, *(broadcast_strides(s, shape) for s in in_shapes))
    if len(dims) > MAX_DIMS:
        return None
    return {
        "n_in": len(in_shapes),
        "ndim": len(dims),
        "n": prod(shape),
        "shape": dims,
        "strides": strides,
        "in_n": [prod(s) for s in in_shapes],
    }


def loop_native(name, e, ins, y, constants=()):
    """The generated loop `name` of expression `e` on inputs of y's dtype; None where there is none
    for it."""
    dtype = y.dtype
    if (
        dtype not in FLOATS
        and (e.dtypes != "all" or dtype not in INTEGERS)
        or any(t.dtype != dtype for t in ins)
    ):
        return None
    number = lib.plk_pointwise_find(name.encode())
    fields = broadcast_fields(y.shape, [t.shape for t in ins])
    if number < 0 or fields is None:
        return None
    weight = 1 + CALL_STEPS * e.text.count("(")
    fields |= {
        "op": number,
        "dtype": code(dtype),
        "work": fields["n"] * weight // 2,
        "n_constants": len(constants),
        "constants": list(constants),
    }
    return Native(
        "plk_pointwise_run",
        ("plk_pointwise", fields),
        cost(*ins, y, steps=fields["n"] * weight / 8),
    )


def loop_of(op, attrs, dtype: str) -> tuple[int, list[float]] | None:
    """The generated loop of an operator of one input, (number, scalars); None where it is no loop."""
    t = Type((MAX_DIMS,), dtype)
    found = choose(op, [t], [t], attrs)
    if found is None or found.function != "plk_pointwise_run" or found.params[1]["n_in"] != 1:
        return None
    fields = found.params[1]
    given = [v for p in op.params if p.dynamic for v in [attrs[p.name]]]
    return fields["op"], fields["constants"] or given


def pointwise_entry(op, ins, outs, attrs):
    return loop_native(op.name, op.pointwise, ins, outs[0])


@native("Activation")
def activation_entry(op, ins, outs, attrs):
    name = f"Activation:{attrs['act_type']}"
    return loop_native(name, LOOPS[name], ins, outs[0])


@native("LeakyReLU")
def leaky_entry(op, ins, outs, attrs):
    kind = attrs["act_type"]
    e = LOOPS.get(f"LeakyReLU:{kind}")
    if e is None:
        return None
    if kind == "prelu":
        x, gamma = ins
        if len(gamma.shape) == 1 and len(x.shape) > 1:
            gamma = gamma._replace(shape=(*gamma.shape, *[1] * (len(x.shape) - 2)))
        ins = [x, gamma]
    return loop_native(f"LeakyReLU:{kind}", e, ins, outs[0], [attrs["slope"]] if e.scalars else ())


@native("where")
def where_entry(op, ins, outs, attrs):
    condition, x, y = ins
    if len(condition.shape) == 1 < len(x.shape) and condition.shape[0] == x.shape[0]:
        condition = condition._replace(shape=condition.shape + (1,) * (len(x.shape) - 1))
    return loop_native("where", LOOPS["where"], [condition, x, y], outs[0])


@native("add_n")
def add_n_entry(op, ins, outs, attrs):
    e = LOOPS.get(f"add_n:{len(ins)}")
    return e and loop_native(f"add_n:{len(ins)}", e, ins, outs[0])


@native("_contrib_div_sqrt_dim")
def div_sqrt_dim_entry(op, ins, outs, attrs):
    return loop_native(
        "scale",
        LOOPS["scale"],
        ins,
        outs[0],
        [ins[0].shape[-1] ** -0.5] if ins[0].shape[-1] else [1.0],
    )


for _op in set(REGISTRY.values()):
    if _op.pointwise:
        TABLE.setdefault(_op.name, []).append(pointwise_entry)


@native("Cast", "amp_cast")
def cast_entry(op, ins, outs, attrs):
    n = prod(ins[0].shape)
    return Native(
        "plk_cast_run",
        ("plk_cast", {"n": n, "from": code(ins[0].dtype), "to": code(outs[0].dtype)}),
        cost(*ins, *outs, steps=n / 2),
    )
