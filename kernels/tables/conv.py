"""Convolutions, transposed convolutions and their gradients: float32 on CPUs, all float dtypes on
GPUs."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ...engine import ffi, lib
from .. import cuda
from ..cpu import onednn
from ..cpu.convolve import own_convolution
from ..cpu.layout import FLOPS_PER_US, cost
from ..native import Native
from ..ops import conv, deconv
from ..record import Attrs, Operator, Types
from . import on_cpu, on_cuda

# parts of a sum over the batch: the most threads that share it; each part is added at the end
MAX_SHARES, LEAST_PIXELS = 8, 128
FORCE_PLAIN = False  # set by tests: row-major layouts, without oneDNN
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


def fields_of(kind: int, call: Call, bias: bool = False) -> dict[str, Any]:
    """The fields of plk_conv."""
    g, filters, out = call.g, call.filters, call.out
    n, channels, space = g.split(call.x)
    return {
        "kind": kind,
        "nd": len(g.kernel),
        "channels_last": g.channels_last,
        "bias": bias,
        "n": n,
        "channels": channels,
        "filters": filters,
        "groups": g.groups,
        "space": space,
        "kernel": g.kernel,
        "out": out,
        "stride": g.stride,
        "dilate": g.dilate,
        "pad": g.pad,
    }


def us_of(fields: Attrs, types: Types) -> float:
    """The estimated time on one core, in microseconds."""
    per_output = fields["channels"] // fields["groups"] * prod(fields["kernel"])
    multiplies = fields["n"] * fields["filters"] * prod(fields["out"]) * per_output
    return cost(*types, *types) + 2 + 2 * multiplies / FLOPS_PER_US


def primitive_of(primitive: Any, us: float, **fields: Any) -> Native | None:
    """A Native that runs a new oneDNN primitive; None where oneDNN has none."""
    if not primitive:
        return None
    return Native(
        "plk_dnn_run",
        ("plk_dnn", {"primitive": primitive, **fields}),
        us,
        openmp=lib.plk_dnn_threads(primitive) > 1,
        owner=ffi.gc(primitive, lib.plk_dnn_free),
    )


def _on_cpu(kind: int, call: Call, types, bias: bool = False) -> Native | None:
    n, channels, space = call.g.split(call.x)
    if any(t.dtype != "float32" or t.layout for t in types):
        return None
    if 0 in (n, channels, call.filters, *space, *call.out):
        return None
    if tuple(call.out) != call.g.conv_out(space):
        return None
    fields = fields_of(kind, call, bias)
    us = us_of(fields, types)
    serves = onednn.load() and not FORCE_PLAIN
    own = None if FORCE_PLAIN else own_convolution(fields, us, serves)
    if own is not None:
        return own
    if serves:
        if kind == lib.PLK_CONV_WEIGHT:
            found = _sum_of_shares(fields, us)
        else:
            found = primitive_of(lib.plk_dnn_conv(ffi.new("plk_conv *", fields), False), us)
        if found:
            return found
    return None if call.g.channels_last else Native("plk_conv_run", ("plk_conv", fields), us)


def _sum_of_shares(fields, us):
    """The weight gradient, summed over parts of the batch; None where oneDNN has no primitive."""
    n = fields["n"]
    worth = max(1, n * prod(fields["out"]) // LEAST_PIXELS)
    per = -(-n // min(n, worth, MAX_SHARES))
    shares = -(-n // per)
    made = {}
    for size in (per, last := n - (shares - 1) * per):
        if size not in made:
            primitive = lib.plk_dnn_conv(ffi.new("plk_conv *", fields | {"n": size}), True)
            if not primitive:
                return None
            made[size] = ffi.gc(primitive, lib.plk_dnn_free)
    sizes = {
        "x_size": fields["channels"] * prod(fields["space"]),
        "y_size": fields["filters"] * prod(fields["out"]),
        "w_size": fields["filters"] * fields["channels"] // fields["groups"],
    }
    sizes["w_size"] *= prod(fields["kernel"])
    params = {"primitive": made[per], "last": made[last], "shares": shares, "per": per, **sizes}
    return Native("plk_dnn_weight_run", ("plk_dnn_weight", params), us, owner=list(made.values()))


@on_cpu("Convolution")
def convolution_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call, types = _forward(op, ins, outs, attrs), (*ins, *outs)
    return _on_cpu(lib.PLK_CONV_FORWARD, call, types, not attrs["no_bias"])


@on_cpu("_conv_grad_data")
def grad_data_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(lib.PLK_CONV_DATA, _data(op, ins, outs, attrs), (*ins, *outs))


@on_cpu("_conv_grad_weight")
def grad_weight_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(lib.PLK_CONV_WEIGHT, _weight(op, ins, outs, attrs), (*ins, *outs))


@on_cpu("Deconvolution")
def deconvolution_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not attrs["no_bias"]:
        return None
    return _on_cpu(lib.PLK_CONV_DATA, _deconvolution(op, ins, outs, attrs), (*ins, *outs))


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
