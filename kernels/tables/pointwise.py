"""Pointwise operators: expressions of their inputs, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine import lib
from .. import cuda
from ..cpu.layout import broadcast_fields, code, cost
from ..fused import COMPUTED_IN, WIDENED
from ..loops import IN_BOOLS, Form, form
from ..native import Native
from ..record import REGISTRY, Attrs, Operator, Type, Types
from ..traits import LoopForm
from . import on_cpu, on_cuda

Shapes = Sequence[tuple[int, ...]]
NAMES = sorted({op.name for op in REGISTRY.values() if op.pointwise or op.has(LoopForm)})


@on_cpu(*NAMES)
def pointwise_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """The generated loop of a call that is an expression."""
    found = form(op, ins, outs, attrs, mixed=True)
    return found and generated(found, ins, [t.dtype for t in ins], outs[0], outs[0].dtype)


def generated(
    found: Form, ins: Types, read: Sequence[str], y: Type, dtype: str, shapes: Shapes | None = None
) -> Native | None:
    """The loop of an expression of a dtype, made when plait was built. read: the dtypes of its
    operands, to which the inputs are cast. y: the result, cast from `dtype`."""
    e = found.expression
    in_bools = e.truth and y.dtype == "bool"
    number = lib.plk_pointwise_find((found.name + IN_BOOLS * in_bools).encode())
    described = broadcast_fields(y.shape, shapes or found.shapes or [t.shape for t in ins])
    if number < 0 or described is None:
        return None
    fields, _ = described
    weight, constants = e.weight, found.constants or ()
    computed = COMPUTED_IN.get(dtype, dtype)
    own = [WIDENED.get(d, d) if k not in e.bools else "bool" for k, d in enumerate(read)]
    fields |= {
        "op": number,
        "dtype": code(computed),
        "n_out": 1,
        "in_dtype": [code(t.dtype) for t in ins],
        "in_as": list(map(code, own)),
        "out_dtype": [code(y.dtype)],
        "out_as": [code("bool" if in_bools else computed)],
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
