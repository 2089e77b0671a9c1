"""Entries of ranges and of diagonals of ones."""

from __future__ import annotations

from math import prod

from ..native import Native
from ..ops.create import arange_count
from ..record import FLOATS
from .layout import code, cost
from .table import native

EXACT = 2**53  # whole numbers up to here are doubles


def _range(y, start, step, repeat=1, out_at=0, whole=None):
    n, whole = prod(y.shape), y.dtype not in FLOATS if whole is None else whole
    if repeat < 1 or whole and max(abs(start), abs(step)) >= EXACT:
        return None
    fields = {
        "n": n,
        "repeat": repeat,
        "dtype": code(y.dtype),
        "whole": whole,
        "out_at": out_at,
        "start": start,
        "step": step,
    }
    return Native("plk_range_run", ("plk_range", fields), cost(y, steps=n / 2))


@native("_arange")
def arange_entry(op, ins, outs, attrs):
    given = {k: attrs[k] for k in ("start", "stop", "step", "repeat")}
    return _range(outs[0], arange_count(**given)[0], attrs["step"], attrs["repeat"])


@native("_linspace")
def linspace_entry(op, ins, outs, attrs):
    start, stop, num = attrs["start"], attrs["stop"], attrs["num"]
    step = (stop - start) / max(num - 1 if attrs["endpoint"] else num, 1)
    return _range(outs[0], start, step, whole=False)


@native("_contrib_arange_like")
def arange_like_entry(op, ins, outs, attrs):
    return _range(outs[0], attrs["start"], attrs["step"], attrs["repeat"], out_at=1)


@native("_eye")
def eye_entry(op, ins, outs, attrs):
    y = outs[0]
    rows, columns = y.shape
    fields = {"rows": rows, "columns": columns, "diagonal": attrs["k"], "dtype": code(y.dtype)}
    return Native("plk_eye_run", ("plk_eye", fields), cost(y))
