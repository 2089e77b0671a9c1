"""The operators that compute with sparse arrays."""

from __future__ import annotations

from math import prod

from ..cpu.layout import ITEM_BYTES, cost
from ..native import Native
from ..record import NATIVE_FLOATS, Attrs, Operator, Types
from . import on_cpu


@on_cpu("_csr_dot")
def csr_dot_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    data, indptr, indices, x = ins
    y = outs[0]
    if data.dtype not in NATIVE_FLOATS or (indptr.dtype, indices.dtype) != ("int64",) * 2:
        return None
    fields = {
        "n_rows": indptr.shape[0] - 1,
        "n_columns": attrs["columns"],
        "n_elements": data.shape[0],
        "inner": prod(x.shape[1:]),
        "size": ITEM_BYTES[data.dtype],
    }
    function = "plk_csr_dot_transposed" if attrs["transpose"] else "plk_csr_dot_run"
    steps = prod(data.shape) * fields["inner"]
    us = cost(data, indices, y, steps=steps / 4)
    return Native(function, ("plk_csr", fields), us, can_fail=True)


@on_cpu("_assign_rows")
def assign_rows_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    data, rows, indices = ins
    if indices.dtype != "int64" or prod(data.shape) == 0:
        return None
    fields = {
        "n_rows": data.shape[0],
        "n_indices": indices.shape[0],
        "row_bytes": prod(data.shape[1:]) * ITEM_BYTES[data.dtype],
    }
    return Native("plk_assign_rows_run", ("plk_assign_rows", fields), cost(rows, rows, indices))
