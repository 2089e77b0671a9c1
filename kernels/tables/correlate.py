"""The correlation of two vectors."""

from __future__ import annotations

from ..cpu.layout import code, cost
from ..native import Native
from ..record import NATIVE_FLOATS, Attrs, Operator, Types
from . import on_cpu


@on_cpu("_correlate")
def correlate_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, w = ins
    if x.dtype not in NATIVE_FLOATS:
        return None
    fields = {"n": x.shape[0], "k": w.shape[0], "pad": attrs["pad"], "dtype": code(x.dtype)}
    us = cost(*ins, *outs, steps=outs[0].shape[0] * w.shape[0] / 4)
    return Native("plk_correlate_run", ("plk_correlate", fields), us)
