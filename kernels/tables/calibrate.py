"""Thresholds of histograms on CPUs."""

from __future__ import annotations

from ..native import Native
from ..record import Attrs, Operator, Types
from . import on_cpu


@on_cpu("_contrib_calibrate_entropy")
def entropy_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if any(t.dtype != "float32" for t in (*ins, *outs)):
        return None
    bins, levels = ins[0].shape[0], attrs["num_quantized_bins"]
    us = 0.01 * bins * (bins - levels) / 8
    return Native("plk_entropy_run", ("plk_entropy", {"bins": bins, "levels": levels}), us)
