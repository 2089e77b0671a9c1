"""The entry of fused groups: their compiled loop under the drivers of pointwise kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..fused import MAX_INPUTS, MAX_OUTPUTS, Group, source, step_forms, value_dtypes
from ..native import TABLE, Native, native
from ..record import FLOATS
from .layout import code, contiguous, cost
from .pointwise_table import broadcast_fields
from .reduce_table import method, reduce_entry


def is_reduction(op) -> bool:
    """Can a group end in this operator?"""
    return reduce_entry in TABLE.get(op.name, ())


def can_compile() -> bool:
    """Is there a C compiler?"""
    from .. import jit  # late: it brings much of the standard library, and few processes compile

    return jit.compiler() is not None


def prepare(groups: Sequence[tuple[Group, Sequence[str]]]) -> list[bool]:
    """Compiles the loops of (group, dtypes of its inputs) that are not at hand, side by side. Which
    of them there are now."""
    from .. import jit

    sources = [source(group, dtypes, jit.FUNCTION) for group, dtypes in groups]
    jit.compile_all(sources)
    return [bool(jit.function(s)) for s in sources]


@native("_fused")
def fused_entry(op, ins, outs, attrs):
    from .. import jit

    group: Group = attrs["group"]
    if len(ins) > MAX_INPUTS or len(outs) > MAX_OUTPUTS or 0 in group.shape or not ins:
        return None
    kept = tuple(1 if i in group.axes else n for i, n in enumerate(group.shape))
    described = broadcast_fields(group.shape, group.in_shapes, kept)
    if described is None:
        return None
    fields, kept_strides = described
    dtypes = value_dtypes(group, ins)
    forms = step_forms(group, dtypes)
    if forms is None or any(r.reduce and dtypes[r.value] not in FLOATS for r in group.results):
        return None
    address = jit.function(source(group, [t.dtype for t in ins], jit.FUNCTION))
    if not address:
        return None
    weight = sum(f.expression.weight for f in forms)
    fields |= {
        "loop": address,
        "n_out": len(outs),
        "in_dtype": [code(t.dtype) for t in ins],
        "out_dtype": [code(t.dtype) for t in outs],
        "work": fields["n"] * (weight + len(outs)) // 2,
    }
    us = cost(*ins, *outs, steps=fields["n"] * (weight + len(outs)) / 8)
    if not any(r.reduce for r in group.results):
        return Native("plk_pointwise_run", ("plk_pointwise", fields), us)
    return Native(
        "plk_map_reduce_run", ("plk_map_reduce", _reduction(group, fields, kept_strides)), us
    )


def _reduction(group: Group, fields: dict, kept_strides: list[int]) -> dict:
    """The fields of plk_map_reduce. kept_strides: 0 along the reduced dimensions."""
    shape = fields["shape"]
    dims = list(zip(shape, contiguous(shape), (s == 0 for s in kept_strides)))
    run, _, inner_reduced = dims.pop() if dims else (1, 1, True)
    while inner_reduced and dims and dims[-1][2]:
        run *= dims.pop()[0]
    rest = {True: [d for d in dims if d[2]], False: [d for d in dims if not d[2]]}
    count = prod(group.shape[a] for a in group.axes)
    methods = [method(r.reduce, count) if r.reduce else (-1, 1.0) for r in group.results]
    return {
        "map": fields,
        "kind": [kind for kind, _ in methods],
        "scale": [scale for _, scale in methods],
        "inner_reduced": inner_reduced,
        "run": run,
        "n_results": fields["n"] // count,
        "n_kept": len(rest[False]),
        "n_reduced": len(rest[True]),
        "kept_shape": [d[0] for d in rest[False]],
        "kept_strides": [d[1] for d in rest[False]],
        "reduced_shape": [d[0] for d in rest[True]],
        "reduced_strides": [d[1] for d in rest[True]],
    }
