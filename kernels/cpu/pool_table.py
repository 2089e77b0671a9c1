"""Entries of pooling, float32."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native, native
from ..ops.pool import windows
from .layout import cost, nbytes

KINDS = {"max": lib.PLK_POOL_MAX, "avg": lib.PLK_POOL_AVG, "sum": lib.PLK_POOL_SUM}


def _pool(function, attrs, shape, types):
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
    w = windows(shape, **geometry)
    if attrs["pool_type"] not in KINDS or any(t.dtype != "float32" for t in types) or 0 in w.size:
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
        planes=shape[0] if w.channels_last else shape[0] * shape[1],
        inner=shape[-1] if w.channels_last else 1,
        kind=KINDS[attrs["pool_type"]],
        count_pad=attrs["count_include_pad"] is not False,
        **boxed,
    )
    return Native(
        function,
        ("plk_pool", fields),
        cost(*types, steps=prod(shape) + nbytes(*types) / 4),
    )


@native("Pooling")
def pool_entry(op, ins, outs, attrs):
    return _pool("plk_pool_run", attrs, ins[0].shape, (*ins, *outs))


@native("_pool_grad")
def pool_grad_entry(op, ins, outs, attrs):
    return _pool("plk_pool_backward", attrs, attrs["data_shape"], (*ins, *outs))
