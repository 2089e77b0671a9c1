"""Entries of borders around arrays."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..record import NATIVE_FLOATS
from .layout import ITEM_BYTES, MAX_DIMS, code, cost
from .table import native

MODES = {
    "constant": lib.PLK_PAD_CONSTANT,
    "edge": lib.PLK_PAD_EDGE,
    "reflect": lib.PLK_PAD_REFLECT,
}


def _pad(function, mode, pad_width, x, y):
    """x: the smaller array."""
    pads = list(zip(pad_width[::2], pad_width[1::2]))
    if not any(pad_width) or 0 in x.shape or len(pads) != len(x.shape):
        return None
    if y.shape != tuple(n + sum(p) for n, p in zip(x.shape, pads)):
        return None
    inner, dims = 1, []
    for n, (before, after) in zip(reversed(x.shape), reversed(pads)):
        if not before + after and not dims:
            inner *= n
        elif not before + after and not sum(dims[-1][1:]):
            dims[-1] = (dims[-1][0] * n, 0, 0)
        else:
            dims.append((n, before, after))
    dims.reverse()
    if len(dims) > MAX_DIMS:
        return None
    fields = {
        "mode": MODES[mode],
        "ndim": len(dims),
        "size": ITEM_BYTES[x.dtype],
        "dtype": code(x.dtype),
        "inner": inner,
        "n_in": prod(x.shape),
        "n_out": prod(y.shape),
        "shape": [n for n, _, _ in dims],
        "before": [before for _, before, _ in dims],
        "out": [sum(d) for d in dims],
    }
    return Native(function, ("plk_pad", fields), cost(x, y, steps=prod(y.shape) / 8))


@native("Pad")
def pad_entry(op, ins, outs, attrs):
    return _pad("plk_pad_run", attrs["mode"], attrs["pad_width"], ins[0], outs[0])


@native("_pad_grad")
def pad_grad_entry(op, ins, outs, attrs):
    dy, dx = ins[0], outs[0]
    if attrs["mode"] == "constant" or dy.dtype not in NATIVE_FLOATS:
        return None
    return _pad("plk_pad_backward", attrs["mode"], attrs["pad_width"], dx, dy)
