"""Convolutions, transposed convolutions and their gradients: float32 on CPUs, all float dtypes on
GPUs."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ...engine import lib
from .. import cuda
from ..cpu.convolve import own_convolution
from ..cpu.layout import FLOPS_PER_US, cost
from ..native import Native
from ..ops import conv, deconv
from ..record import Attrs, Operator, Types
from . import on_cpu, on_cuda

FORCE_PLAIN = False  # set by tests: row-major layouts, no blocks of channels
GEOMETRY = ("kernel", "stride", "dilate", "pad", "num_group", "layout")


class Call(NamedTuple):
    """One convolution, or its gradient. x, y: the shapes of the convolution's data and result."""

    g: conv.Geometry
    x: tuple[int, ...]
    y: tuple[int, ...]

    @property
    def filters(self) -> int:
        return self.g.split(self.y)[1]

    @property
    def out(self) -> tuple[int, ...]:
        return self.g.split(self.y)[2]


def geometry(op: str, attrs: Attrs) -> conv.Geometry:
    return conv.geometry(op, *(attrs[k] for k in GEOMETRY))


def _forward(op, ins, outs, attrs) -> Call:
    return Call(geometry(op.name, attrs), ins[0].shape, outs[0].shape)


def _data(op, ins, outs, attrs) -> Call:
    return Call(geometry(op.name, attrs), outs[0].shape, ins[0].shape)


def _weight(op, ins, outs, attrs) -> Call:
    return Call(geometry(op.name, attrs), ins[1].shape, ins[0].shape)


def _deconvolution(op, ins, outs, attrs) -> Call:
    names = (*GEOMETRY[:4], "adj", "target_shape", *GEOMETRY[4:])
    g, _ = deconv.deconv_setup(ins[0].shape, *(attrs[k] for k in names))
    return Call(g, outs[0].shape, ins[0].shape)


# ---- CPU -----------------------------------------------------------------------------------------


def native_of(kind: int, call: Call, types: Types, **more: Any) -> Native | None:
    """The kernel of a convolution on row-major arrays. more: other fields of plk_conv."""
    if any(t.dtype != "float32" or t.layout for t in types):
        return None
    n, channels, space = call.g.split(call.x)
    if 0 in (n, channels, call.filters, *space, *call.out):
        return None
    if tuple(call.out) != call.g.conv_out(space):
        return None
    g, fill = call.g, 3 - len(call.g.kernel)
    ones, zeros = (1,) * fill, (0,) * fill
    fields = {
        "kind": kind,
        "channels_last": g.channels_last,
        "w_last": g.channels_last,
        "bias": False,
        "add": False,
        "n": n,
        "channels": channels,
        "filters": call.filters,
        "groups": g.groups,
        "size": (*ones, *space),
        "kernel": (*ones, *g.kernel),
        "out": (*ones, *call.out),
        "stride": (*ones, *g.stride),
        "dilate": (*ones, *g.dilate),
        "pad": (*zeros, *g.pad),
        **more,
    }
    products = n * call.filters * prod(call.out) * (channels // g.groups) * prod(g.kernel)
    return own_convolution(fields, cost(*types, *types) + 2 + 2 * products / FLOPS_PER_US)


@on_cpu("Convolution")
def convolution_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call, types = _forward(op, ins, outs, attrs), (*ins, *outs)
    return native_of(lib.PLK_CONV_FORWARD, call, types, bias=not attrs["no_bias"])


@on_cpu("_conv_grad_data")
def grad_data_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return native_of(lib.PLK_CONV_DATA, _data(op, ins, outs, attrs), (*ins, *outs))


@on_cpu("_conv_grad_weight")
def grad_weight_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return native_of(lib.PLK_CONV_WEIGHT, _weight(op, ins, outs, attrs), (*ins, *outs))


@on_cpu("Deconvolution")
def deconvolution_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not attrs["no_bias"]:
        return None
    return native_of(lib.PLK_CONV_DATA, _deconvolution(op, ins, outs, attrs), (*ins, *outs))


# ---- CUDA ----------------------------------------------------------------------------------------


def _on_cuda(kind: str, call: Call, ins, outs, arrays, no_bias=True) -> Native | None:
    """arrays: indices of the buffers, in the order of conv_plan.run."""
    plan, (a, b, y) = cuda.conv_plan, map(cuda.Buffer, arrays)
    finish = (None if no_bias else cuda.Buffer(2), *plan.PLAIN[1:])
    return plan.run(kind, *call, (*ins, *outs), a, b, y, finish)


@on_cuda("Convolution")
def convolution_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call, arrays = _forward(op, ins, outs, attrs), (1, 0, len(ins))
    return _on_cuda("forward", call, ins, outs, arrays, attrs["no_bias"])


@on_cuda("_conv_grad_data")
def grad_data_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cuda("data", _data(op, ins, outs, attrs), ins, outs, (1, 0, 2))


@on_cuda("_conv_grad_weight")
def grad_weight_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cuda("weight", _weight(op, ins, outs, attrs), ins, outs, (0, 1, 2))


@on_cuda("Deconvolution")
def deconvolution_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call, arrays = _deconvolution(op, ins, outs, attrs), (1, 0, len(ins))
    return _on_cuda("data", call, ins, outs, arrays, attrs["no_bias"])
