"""Determinants, inverses, systems of equations and orthonormal rows of stacks of matrices."""

from __future__ import annotations

from math import prod

from ..cpu.layout import cost
from ..native import Native
from ..record import Attrs, Operator, Types
from . import on_cpu

LARGEST = 256  # above it LAPACK's blocks are faster


def _kernel(
    function: str, ins: Types, outs: Types, others: int = 0, zero: bool = False, error: str = ""
) -> Native | None:
    *lead, rows, columns = ins[0].shape
    if max(rows, columns) > LARGEST:
        return None
    fields = {
        "n_batch": prod(lead),
        "rows": rows,
        "columns": columns,
        "others": others,
        "wide": ins[0].dtype == "float64",
        "zero": zero,
        "error": error.encode(),
    }
    us = cost(*ins, *outs, steps=prod(lead) * rows * (columns + others) * rows / 4)
    return Native(function, ("plk_factors", fields), us, can_fail=bool(error))


@on_cpu("_linalg_det", "_linalg_slogdet")
def determinant_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    logs = op.name == "_linalg_slogdet"
    return _kernel("plk_determinant_run", ins, outs, others=logs)


@on_cpu("_linalg_inverse", "_linalg_inverse_or_zero")
def inverse_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if op.name == "_linalg_inverse_or_zero":
        return _kernel("plk_solve_run", ins, outs, zero=True)
    return _kernel("plk_solve_run", ins, outs, error="linalg_inverse: A must be invertible")


@on_cpu("_linalg_potri")
def potri_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    error = "linalg_potri: A must have no zero on its diagonal"
    return _kernel("plk_potri_run", ins, outs, error=error)


@on_cpu("_linalg_solve")
def solve_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    columns = ins[1].shape[-1]
    if not columns:
        return None
    error = "np.linalg.solve: a must be invertible"
    return _kernel("plk_solve_run", ins, outs, columns, error=error)


@on_cpu("_linalg_gelqf")
def gelqf_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _kernel("plk_gelqf_run", ins, outs)


@on_cpu("_linalg_complement")
def complement_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _kernel("plk_complement_run", ins, outs)
