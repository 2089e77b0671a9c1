"""Kernels of operators that have a decomposition: one kernel runs the decomposition as a program.
Fills the hook "kernel of a decomposition" of the backends' tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import Context, ffi, lib
from ..kernels import backend
from ..kernels.native import Native
from ..kernels.record import Operator, Type
from .graph import variable
from .passes.expand import decomposed
from .program import lower


def decomposition_entry(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any], device: Context
) -> Native | None:
    """An entry of the kernel table of `device`'s backend."""
    inputs = [variable(f"x{i}", t) for i, t in enumerate(ins)]
    made = decomposed(op, attrs, inputs, outs, backend.of(device).kernels)
    if made is None:
        return None
    program = lower(made, inputs, device, op.name + ".body")
    constants = list(program.constants)
    for a in constants:
        a.wait_to_read()
    n, n_in, n_out = len(ins), len(ins) + len(constants), len(outs)
    kinds = [lib.PL_PART_WHOLE] * n + [lib.PL_PART_CONSTANT] * len(constants)
    arrays = {
        "kinds": ffi.new("int32_t[]", kinds),
        "at": ffi.new("int32_t[]", [*range(n), *range(len(constants))]),
        "slice_bytes": ffi.new("int64_t[]", n_in),
        "constants": ffi.new(
            "char *[]", [ffi.cast("char *", lib.pl_array_data(a._handle)) for a in constants]
        ),
    }
    at = ffi.new("int32_t[]", list(range(n_out)))
    nbytes = ffi.new("int64_t[]", [s.nbytes for s in program.out_specs])
    fields = {
        "body": {"program": program.handle, "n_in": n_in, "n_out": n_out, **arrays},
        "length": 1,  # a loop of one round
        "n_in": n,
        "n_stacked": n_out,
        "count_at": -1,
        "count_out": -1,
        "stacked_at": at,
        "result_at": at,
        "out_bytes": nbytes,
    }
    return Native(
        "pl_kernel_loop",
        ("pl_loop", fields),
        cost_us=0.3 + program.cost_us,
        can_fail=program.can_fail,
        owner=(program, constants, arrays, at, nbytes),
    )
