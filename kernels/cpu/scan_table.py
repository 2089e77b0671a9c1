"""The entry of cumulative sums."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..shapes import one_axis
from .layout import code, cost
from .table import native


@native("_np_cumsum")
def cumsum_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype != y.dtype or x.dtype not in ("float32", "float64", "int32", "int64"):
        return None
    axis, shape = attrs["axis"], x.shape
    if axis is None or not shape:
        axis, shape = 0, (prod(shape),)
    axis = one_axis(op.name, axis, len(shape))
    fields = {
        "outer": prod(shape[:axis]),
        "n": shape[axis],
        "inner": prod(shape[axis + 1 :]),
        "dtype": code(x.dtype),
    }
    return Native("plk_scan_run", ("plk_scan", fields), cost(x, y, steps=prod(shape)))
