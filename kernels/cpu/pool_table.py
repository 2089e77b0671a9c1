"""Entries of pooling, float32."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..ops.pool import windows
from .layout import cost
from .table import native

KINDS = {"max": lib.PLK_POOL_MAX, "avg": lib.PLK_POOL_AVG, "sum": lib.PLK_POOL_SUM}


def _windows(attrs, shape):
    geometry = {
        k: attrs[k]
        for k in (
            "kernel",
            "pool_type",
            "global_pool",
            "pooling_convention",
            "stride",
            "pad",
            "layout",
        )
    }
    return windows(shape, **geometry)


def _pool(function, attrs, w, planes, inner, types):
    if (
        attrs["pool_type"] not in KINDS
        or any(t.dtype != "float32" for t in types)
        or 0 in w.size
        or inner == 0
    ):
        return None
    fill = 3 - len(w.size)
    boxed = {
        name: (default,) * fill + tuple(values)
        for name, values, default in (
            ("size", w.size, 1),
            ("kernel", w.kernel, 1),
            ("stride", w.stride, 1),
            ("pad", w.pad, 0),
            ("out", w.out, 1),
        )
    }
    fields = dict(
        planes=planes,
        inner=inner,
        kind=KINDS[attrs["pool_type"]],
        count_pad=attrs["count_include_pad"] is not False,
        **boxed,
    )
    return Native(
        function,
        ("plk_pool", fields),
        cost(*types, steps=planes * inner * (prod(w.size) + prod(w.out))),
    )


def channels_last(attrs, shape, images, channels, types):
    """Forward pooling of `images` arrays (*space, channels); shape: as the operator's windows see
    the data."""
    return _pool("plk_pool_last", attrs, _windows(attrs, shape), images, channels, types)


@native("Pooling")
def pool_entry(op, ins, outs, attrs):
    shape, types = ins[0].shape, (*ins, *outs)
    w = _windows(attrs, shape)
    if w.channels_last:
        return channels_last(attrs, shape, shape[0], shape[-1], types)
    return _pool("plk_pool_run", attrs, w, shape[0] * shape[1], 1, types)


@native("_pool_grad")
def pool_grad_entry(op, ins, outs, attrs):
    shape = attrs["data_shape"]
    w = _windows(attrs, shape)
    planes, inner = (shape[0], shape[-1]) if w.channels_last else (shape[0] * shape[1], 1)
    return _pool("plk_pool_backward", attrs, w, planes, inner, (*ins, *outs))
