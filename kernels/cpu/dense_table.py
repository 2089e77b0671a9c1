"""Entries of matrix products, float32."""

from __future__ import annotations

from math import prod

from ..activations import NUMBERS
from ..native import Native
from .layout import FLOPS_PER_US, cost
from .table import native


def _float32(types):
    return all(t.dtype == "float32" for t in types)


def _gemm(ins, outs, n_batch, m, n, k, transpose_a, transpose_b, alpha=1.0, **epilogue):
    fields = {
        "n_batch": n_batch,
        "m": m,
        "n": n,
        "k": k,
        "a_step": m * k,
        "b_step": k * n,
        "transpose_a": transpose_a,
        "transpose_b": transpose_b,
        "alpha": alpha,
        **epilogue,
    }
    us = cost(*ins, *outs) + 0.3 + 2 * n_batch * m * n * k / FLOPS_PER_US
    return Native("plk_gemm_run", ("plk_gemm", fields), us)


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


@native("_dense")
def fused_dense_entry(op, ins, outs, attrs):
    a, _ = (t.shape for t in ins[:2])
    if not _float32(ins):
        return None
    m, n = outs[0].shape
    return _gemm(
        ins,
        outs,
        1,
        m,
        n,
        a[0] if attrs["transpose_a"] else a[1],
        attrs["transpose_a"],
        attrs["transpose_b"],
        attrs["scale"],
        act=NUMBERS[attrs["act"]],
        slope=NUMBERS[attrs["slope"]],
        **{k: attrs[k] for k in ("bias", "residual", "keep")},
    )


@native("_dot_sum")
def dot_sum_entry(op, ins, outs, attrs):
    (k, m), n = ins[0].shape, outs[0].shape[1]
    if not _float32(ins) or n == 0:
        return None
    return _gemm(ins, outs, 1, m, n, k, True, attrs["transpose_b"], sums=True)
