"""Pointwise operators: expressions of their inputs, element by element."""

from __future__ import annotations

from ...engine import lib
from .. import cuda
from ..cpu.layout import broadcast_fields, code, cost
from ..loops import form
from ..native import Native
from ..record import REGISTRY, Attrs, Operator, Types
from ..traits import LoopForm
from . import on_cpu, on_cuda

NAMES = sorted({op.name for op in REGISTRY.values() if op.pointwise or op.has(LoopForm)})


@on_cpu(*NAMES)
def pointwise_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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


@on_cuda(*NAMES)
def pointwise_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """A generated kernel; inputs may have other dtypes."""
    found = form(op, ins, outs, attrs, mixed=True)
    return found and cuda.launches(cuda.pointwise_plan.pointwise_launch(found, ins, outs[0]))
