"""Padding of arrays."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import MAX_DIMS, code, cost, nbytes
from ..native import Native
from ..record import FLOATS, NATIVE_FLOATS, Attrs, Operator, Types
from ..shapes import contiguous
from ..spec import ITEM_BYTES
from ..strided_copies import StridedCopy
from . import on_cpu, on_cuda

MODES = {
    "constant": lib.PLK_PAD_CONSTANT,
    "edge": lib.PLK_PAD_EDGE,
    "reflect": lib.PLK_PAD_REFLECT,
}


def _pad(function, mode, pad_width, x, y):
    """x: the array without padding."""
    pads = list(zip(pad_width[::2], pad_width[1::2]))
    if not any(pad_width) or 0 in x.shape or len(pads) != len(x.shape):
        return None
    if y.shape != tuple(n + sum(p) for n, p in zip(x.shape, pads)):
        return None
    inner = 1
    dims: list[tuple[int, int, int]] = []
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


@on_cpu("Pad")
def pad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _pad("plk_pad_run", attrs["mode"], attrs["pad_width"], ins[0], outs[0])


@on_cpu("_pad_grad")
def pad_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, dx = ins[0], outs[0]
    if attrs["mode"] == "constant" or dy.dtype not in NATIVE_FLOATS:
        return None
    return _pad("plk_pad_backward", attrs["mode"], attrs["pad_width"], dx, dy)


@on_cuda("Pad")
def pad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y, to = ins[0], outs[0], cuda.Buffer(1)
    if attrs["mode"] != "constant" or 0 in x.shape or not x.shape:
        return None
    value = attrs["constant_value"]
    value = value if x.dtype in FLOATS else int(value)
    strides = contiguous(y.shape)
    offset = sum(p * s for p, s in zip(attrs["pad_width"][::2], strides))
    first: cuda.Fill | cuda.Launch = cuda.Fill(to, nbytes(y))
    if value:
        first = cuda.copy_plan.fill(y.shape, strides, 0, y, to, cuda.Float64(value))
    copy = StridedCopy(x.shape, contiguous(x.shape), strides, 0, offset)
    launch = cuda.copy_plan.copy_launch(copy, ITEM_BYTES[y.dtype], cuda.Buffer(0), to)
    return cuda.launches(first, launch)
