"""Entries of optimizer updates: SGD with its momentum, multi-precision and multi-tensor forms, and
Adam."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native, native
from .layout import code, cost

_FORMS = [
    f"{before}{many}{wide}sgd_{momentum}update"
    for momentum in ("", "mom_")
    for wide in ("", "mp_")
    for before, many in (("", ""), ("", "multi_"), ("preloaded_", "multi_"))
]


@native(*_FORMS)
def sgd_entry(op, ins, outs, attrs):
    momentum, wide, preloaded = (
        "mom_" in op.name,
        "mp_" in op.name,
        op.name.startswith("preloaded_"),
    )
    n, size = len(outs), 2 + momentum + wide
    groups = [ins[i * size : (i + 1) * size] for i in range(n)]
    dtype = outs[0].dtype
    narrow = [t.dtype for g in groups for t in g[:2]]
    full = [t.dtype for g in groups for t in g[2:]] + [t.dtype for t in ins[n * size :]]
    if (
        any(d != dtype for d in narrow)
        or any(d != "float32" for d in full)
        or n > lib.PLK_MAX_WEIGHTS
    ):
        return None
    if dtype not in (("float16", "bfloat16") if wide else ("float32",)):
        return None
    fields = {
        "n_weights": n,
        "has_momentum": momentum,
        "dtype": code(dtype),
        "preloaded": preloaded,
        "single": "multi_" not in op.name,
        "n": [prod(t.shape) for t in outs],
    }
    return Native("plk_sgd_run", ("plk_sgd", fields), cost(*ins, *outs))


@native("adam_update", "multi_adam_update")
def adam_entry(op, ins, outs, attrs):
    if any(t.dtype != "float32" for t in (*ins, *outs)) or len(outs) > lib.PLK_MAX_WEIGHTS:
        return None
    sizes = [prod(t.shape) for t in outs]
    fields = {"n_weights": len(outs), "single": op.name == "adam_update", "n": sizes}
    return Native("plk_adam_run", ("plk_adam", fields), cost(*ins, *outs, steps=sum(sizes)))
