"""Entries of attention and of strided views, float32 (views: every type)."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..ops.attention import LONGEST, apart, mask_sizes, operands
from .layout import FLOPS_PER_US, cost
from .table import native

MASKS = {
    (None, ""): lib.PLK_MASK_NONE,
    ("add", "float32"): lib.PLK_MASK_ADD,
    ("where", "float32"): lib.PLK_MASK_WHERE,
    ("length", "int32"): lib.PLK_MASK_LENGTH32,
    ("length", "int64"): lib.PLK_MASK_LENGTH64,
}


def _attention(function, sources, ins, outs, attrs, products):
    n, mask = attrs["n_sources"], attrs["mask"]
    kind = MASKS.get((mask, sources[n].dtype if mask else ""))
    batch, heads, n_q, n_k, dim, dim_v = sizes = attrs["sizes"]
    floats = [*outs[:2], *sources[:n]]
    if (
        kind is None
        or any(t.dtype != "float32" for t in floats)
        or not 0 < min(sizes)
        or max(dim, dim_v) > LONGEST
    ):
        return None
    place = ("source", "at", "batch", "head", "row")
    views = {x: dict(zip(place, attrs[x])) for x in "qkv"}
    y = (heads * n_q * dim_v, n_q * dim_v, dim_v)
    if not attrs["heads_first"]:
        y = (n_q * heads * dim_v, dim_v, heads * dim_v)
    covered = [0] * n
    for source, _, shape, _ in operands(**attrs):
        covered[source] += prod(shape)
    at, *steps = attrs["mask_view"]
    fields = {
        **dict(zip(("batch", "heads", "n_q", "n_k", "dim", "dim_v"), sizes)),
        **views,
        "y": dict(zip(place, (0, 0, *y))),
        "mask": dict(zip(place, (n, at, *steps[:3]))),
        "mask_column": steps[3] if len(mask_sizes(**attrs)) == 4 else 0,
        "n_sources": n,
        "mask_kind": kind,
        "fill": [covered[i] != prod(sources[i].shape) for i in range(n)],
        "source_n": [prod(t.shape) for t in sources[:n]],
        "scale": attrs["scale"],
        "mask_value": attrs["mask_value"],
    }
    if attrs.get("p"):
        keep = 1 - attrs["p"]
        fields |= {"keep": keep, "kept_scale": 1 / keep if keep else 0, "words": -(-n_k // 32)}
    multiplies = batch * heads * n_q * n_k * (dim + dim_v) / 2 * products
    us = cost(*ins, *outs, steps=batch * heads * n_q * n_k) + 2 * multiplies / FLOPS_PER_US
    return Native(function, ("plk_attention", fields), us)


@native("_attention", "_attention_dropout")
def attention_entry(op, ins, outs, attrs):
    return _attention("plk_attention_run", ins, ins, outs, attrs, 2)


@native("_attention_grad")
def attention_grad_entry(op, ins, outs, attrs):
    views = operands(**attrs)
    if any(t.dtype != "float32" for t in ins[:3]) or not all(
        apart([x[1:] for x in views if x[0] == i]) for i in range(attrs["n_sources"])
    ):
        return None  # the kernel writes each element of a gradient once
    sources = ins[4 if attrs["p"] else 3 :]
    return _attention("plk_attention_backward", sources, ins, outs, attrs, 5)
