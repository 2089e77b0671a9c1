"""Entries of matrix products and convolutions, float32."""

from __future__ import annotations

from math import prod

from ...engine import ffi, lib
from ..native import Native, native
from ..ops import conv
from . import onednn
from .convolve import own_convolution
from .layout import FLOPS_PER_US, cost

FORCE_PLAIN = False  # tests: oneDNN does not serve
SERIAL_MULTIPLIES = 1 << 20  # products smaller than this run on one thread


def _float32(types):
    return all(t.dtype == "float32" for t in types)


def _gemm(ins, outs, n_batch, m, n, k, transpose_a, transpose_b, bias=False, alpha=1.0):
    onednn.load()
    fields = {
        "n_batch": n_batch,
        "m": m,
        "n": n,
        "k": k,
        "a_step": m * k,
        "b_step": k * n,
        "transpose_a": transpose_a,
        "transpose_b": transpose_b,
        "bias": bias,
        "alpha": alpha,
    }
    multiplies = n_batch * m * n * k
    us = cost(*ins, *outs) + 0.3 + 2 * multiplies / FLOPS_PER_US
    return Native("plk_gemm_run", ("plk_gemm", fields), us, openmp=multiplies >= SERIAL_MULTIPLIES)


@native("FullyConnected")
def dense_entry(op, ins, outs, attrs):
    w = ins[1]
    if not _float32(ins):
        return None
    n, k = w.shape
    return _gemm(
        ins, outs, 1, prod(outs[0].shape[:-1]), n, k, False, True, bias=not attrs["no_bias"]
    )


@native("dot")
def dot_entry(op, ins, outs, attrs):
    (a, b), ta, tb = (t.shape for t in ins), attrs["transpose_a"], attrs["transpose_b"]
    if not _float32(ins):
        return None
    k, m = (a[0], prod(a[1:])) if ta else (a[-1], prod(a[:-1]))
    return _gemm(ins, outs, 1, m, prod(b[:-1] if tb else b[1:]), k, ta, tb)


@native("batch_dot", "_linalg_gemm2")
def batch_dot_entry(op, ins, outs, attrs):
    (a, _b), ta, tb = (t.shape for t in ins), attrs["transpose_a"], attrs["transpose_b"]
    if not _float32(ins) or attrs.get("axis", -2) not in (-2, len(a) - 2):
        return None
    m, n = outs[0].shape[-2:]
    return _gemm(
        ins, outs, prod(a[:-2]), m, n, a[-2] if ta else a[-1], ta, tb, alpha=attrs.get("alpha", 1.0)
    )


def _conv(kind, g, x_shape, filters, out, types, bias=False):
    n, channels, space = g.split(x_shape)
    if not _float32(types) or 0 in (n, channels, filters, *space, *out):
        return None
    if tuple(out) != g.conv_out(space):
        return None
    fields = {
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
    multiplies = n * filters * channels // g.groups * prod(g.kernel) * prod(out)
    us = cost(*types, *types) + 2 + 2 * multiplies / FLOPS_PER_US
    serves = onednn.load() and not FORCE_PLAIN
    own = None if FORCE_PLAIN else own_convolution(fields, us, serves)
    if own is not None:
        return own
    if serves:
        primitive = lib.plk_dnn_conv(_struct(fields))
        if primitive:
            return Native(
                "plk_dnn_run",
                ("plk_dnn", {"primitive": primitive}),
                us,
                openmp=lib.plk_dnn_threads(primitive) > 1,
                owner=ffi.gc(primitive, lib.plk_dnn_free),
            )
    return None if g.channels_last else Native("plk_conv_run", ("plk_conv", fields), us)


def _struct(fields):
    from ...engine import ffi

    return ffi.new("plk_conv *", fields)


def _geometry(op, attrs):
    return conv.geometry(
        op.name, *(attrs[k] for k in ("kernel", "stride", "dilate", "pad", "num_group", "layout"))
    )


@native("Convolution")
def convolution_entry(op, ins, outs, attrs):
    g = _geometry(op, attrs)
    _, filters, out = g.split(outs[0].shape)
    return _conv(
        lib.PLK_CONV_FORWARD, g, ins[0].shape, filters, out, (*ins, *outs), not attrs["no_bias"]
    )


@native("_conv_grad_data")
def conv_grad_data_entry(op, ins, outs, attrs):
    g = _geometry(op, attrs)
    _, filters, out = g.split(ins[0].shape)
    return _conv(lib.PLK_CONV_DATA, g, outs[0].shape, filters, out, (*ins, *outs))


@native("_conv_grad_weight")
def conv_grad_weight_entry(op, ins, outs, attrs):
    g = _geometry(op, attrs)
    _, filters, out = g.split(ins[0].shape)
    return _conv(lib.PLK_CONV_WEIGHT, g, ins[1].shape, filters, out, (*ins, *outs))


@native("Deconvolution")
def deconvolution_entry(op, ins, outs, attrs):
    if not attrs["no_bias"]:
        return None
    g, _ = conv._deconv_setup(
        ins[0].shape,
        *(
            attrs[k]
            for k in (
                "kernel",
                "stride",
                "dilate",
                "pad",
                "adj",
                "target_shape",
                "num_group",
                "layout",
            )
        ),
    )
    _, filters, out = g.split(ins[0].shape)
    return _conv(lib.PLK_CONV_DATA, g, outs[0].shape, filters, out, (*ins, *outs))
