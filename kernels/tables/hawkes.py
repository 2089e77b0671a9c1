"""The log-likelihood of Hawkes processes."""

from __future__ import annotations

from ..cpu.layout import cost
from ..native import Native
from ..record import NATIVE_FLOATS, Attrs, Operator, Types
from . import on_cpu


@on_cpu("_contrib_hawkesll")
def hawkes_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    rates, lags, marks = ins[0], ins[4], ins[5]
    floats = {t.dtype for t in (*ins, *outs) if t is not marks}
    if marks.dtype != "int32" or len(floats) != 1 or rates.dtype not in NATIVE_FLOATS:
        return None
    (n, n_marks), n_events = rates.shape, lags.shape[1]
    wide = rates.dtype == "float64"
    fields = {"n": n, "n_marks": n_marks, "n_events": n_events, "wide": wide}
    us = cost(*ins, *outs, steps=40 * n * (n_events + n_marks))
    return Native("plk_hawkes_run", ("plk_hawkes", fields), us)
