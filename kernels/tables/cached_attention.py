"""Attention over a cache of keys and values: float32 on CPUs."""

from __future__ import annotations

from ..cpu.layout import FLOPS_PER_US, code, cost
from ..native import Native
from ..ops.cached_attention import sizes_of
from ..record import NATIVE, Attrs, Operator, Types
from . import on_cpu


@on_cpu("_contrib_cached_attention")
def cached_attention_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    *floats, position = ins
    if any(t.dtype != "float32" for t in floats) or position.dtype not in NATIVE:
        return None
    s = sizes_of(ins, attrs)
    if not min(s.batch, s.n_new, s.heads, s.kept_heads, s.dim, s.dim_v):
        return None
    fields = {**s._asdict(), "position_dtype": code(position.dtype)}
    multiplies = s.batch * s.heads * s.n_new * s.length * (s.dim + s.dim_v)
    us = cost(*ins, *outs) + 2 * multiplies / FLOPS_PER_US
    return Native("plk_cached_attention_run", ("plk_cached_attention", fields), us, can_fail=True)
