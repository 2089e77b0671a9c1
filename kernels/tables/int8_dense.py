"""Dense layers with weights of 8 bits: float32 on CPUs."""

from __future__ import annotations

from math import prod

from ..cpu.layout import FLOPS_PER_US, cost
from ..native import Native
from ..ops.int8_dense import rows_of
from ..record import Attrs, Operator, Types
from . import on_cpu


@on_cpu("_contrib_int8_dense")
def int8_dense_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if outs[0].dtype != "float32":
        return None
    rows, k = rows_of(ins[0], attrs["flatten"])
    fields = {"m": prod(rows), "n": attrs["num_hidden"], "k": k, "bias": not attrs["no_bias"]}
    us = cost(*ins, *outs) + 2 * prod(rows) * fields["n"] * k / FLOPS_PER_US
    return Native("plk_int8_dense_run", ("plk_int8_dense", fields), us)
