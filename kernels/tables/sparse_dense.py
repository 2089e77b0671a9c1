"""Dense layers with pruned weights: float32 on CPUs."""

from __future__ import annotations

from ..cpu.layout import FLOPS_PER_US, cost
from ..native import Native
from ..ops.sparse_dense import fields_of
from ..record import Attrs, Operator, Types
from . import on_cpu


@on_cpu("_contrib_sparse_dense")
def sparse_dense_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    fields = fields_of(ins, attrs)
    work = 2 * fields["m"] * fields["entries"] * fields["height"]
    us = cost(*ins, *outs) + 2 * work / FLOPS_PER_US
    return Native("plk_sparse_dense_run", ("plk_sparse_dense", fields), us, can_fail=True)
