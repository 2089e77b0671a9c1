"""Operators on triangular matrices."""

from __future__ import annotations

from math import prod

from ..cpu.layout import cost
from ..native import Native
from ..record import Attrs, Operator, Types
from ..spec import ITEM_BYTES
from . import on_cpu

LARGEST = {"potrf": 512, "trsm": 1024, "trmm": 1024}  # above it LAPACK and NumPy are faster
SUFFIX = {"float32": "", "float64": "_f64"}


def _kernel(name, ins, outs, columns, transpose=False, rightside=False, lower=True, alpha=1.0):
    a = ins[0]
    n, n_batch = a.shape[-1], prod(a.shape[:-2])
    if n > LARGEST[name] or n == 0:
        return None
    fields = {
        "n_batch": n_batch,
        "n": n,
        "columns": columns,
        "transpose": transpose,
        "right": rightside,
        "lower": lower,
        "alpha": alpha,
    }
    us = cost(*ins, *outs, steps=n_batch * n * (n * columns / 4 + 4))
    return Native(f"plk_{name}_run{SUFFIX[a.dtype]}", ("plk_triangular", fields), us)


@on_cpu("_linalg_potrf")
def potrf_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    found = _kernel("potrf", ins, outs, ins[0].shape[-1])
    return found and found._replace(can_fail=True)


@on_cpu("_linalg_trsm", "_linalg_trmm")
def triangular_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    columns = ins[1].shape[-2 if attrs["rightside"] else -1]
    return _kernel(op.name.removeprefix("_linalg_"), ins, outs, columns, **attrs)


@on_cpu("_linalg_triangle")
def triangle_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    *lead, rows, columns = ins[0].shape
    fields = {
        "n_batch": prod(lead),
        "rows": rows,
        "columns": columns,
        "offset": attrs["offset"],
        "lower": attrs["lower"],
        "bytes": ITEM_BYTES[ins[0].dtype],
    }
    return Native("plk_triangle_run", ("plk_triangle", fields), cost(*ins, *outs))
