"""Entries of CTC loss and its gradient, float32."""

from __future__ import annotations

from ..native import Native
from ..record import NATIVE
from .layout import code, cost
from .table import native

INTEGERS = NATIVE


@native("CTCLoss", "_ctc_grad")
def ctc_entry(op, ins, outs, attrs):
    x, label, lengths = ins[0], ins[1], list(ins[2:])
    if x.dtype != "float32" or 0 in x.shape or any(t.dtype not in INTEGERS for t in ins[1:]):
        return None
    steps, batch, classes = x.shape
    own = [
        code(lengths.pop(0).dtype) if attrs[f"use_{k}_lengths"] else -1 for k in ("data", "label")
    ]
    fields = {
        "steps": steps,
        "batch": batch,
        "classes": classes,
        "length": label.shape[1],
        "label_dtype": code(label.dtype),
        "steps_dtype": own[0],
        "count_dtype": own[1],
        "blank_is_last": attrs["blank_label"] == "last",
    }
    back = op.name == "_ctc_grad"
    work = steps * batch * (4 * classes + (60 + 60 * back) * (2 * label.shape[1] + 1))
    function = "plk_ctc_backward" if back else "plk_ctc_run"
    return Native(function, ("plk_ctc", fields), cost(x, *outs, steps=work), can_fail=True)
