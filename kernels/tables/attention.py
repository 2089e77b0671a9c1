"""Attention: float32 on CPUs, float32, float16 and bfloat16 on GPUs."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import FLOPS_PER_US, cost
from ..native import Native
from ..ops.attention import LONGEST, apart, mask_sizes, operands
from ..record import Attrs, Operator, Types
from . import on_cpu, on_cuda

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


@on_cpu("_attention", "_attention_dropout")
def attention_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _attention("plk_attention_run", ins, ins, outs, attrs, 2)


def _sources(attrs) -> int | None:
    """The index of the first source among a gradient's inputs; None where the sources' elements
    overlap: kernels write each element of a gradient once."""
    views = operands(**attrs)
    sources = ([v[1:] for v in views if v[0] == i] for i in range(attrs["n_sources"]))
    return (4 if attrs["p"] else 3) if all(map(apart, sources)) else None


@on_cpu("_attention_grad")
def attention_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    at = _sources(attrs)
    if at is None or any(t.dtype != "float32" for t in ins[:3]):
        return None
    return _attention("plk_attention_backward", ins[at:], ins, outs, attrs, 5)


@on_cuda("_attention", "_attention_dropout")
def attention_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return cuda.attention_plan.forward(ins, outs, attrs)


@on_cuda("_attention_grad")
def attention_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    at = _sources(attrs)
    return None if at is None else cuda.attention_plan.backward(ins, outs, attrs, at)
