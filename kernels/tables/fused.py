"""Fused groups: on CPUs a compiled loop, which the pointwise drivers call; on GPUs a generated
kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...engine import Context, ffi, lib
from .. import cuda
from ..cpu.layout import MAX_DIMS, broadcast_fields, code, collapse, contiguous, cost
from ..fused import (
    MAX_INPUTS,
    MAX_OUTPUTS,
    WIDENED,
    Group,
    alone,
    n_scratch,
    source,
    step_forms,
    value_dtypes,
)
from ..loops import form
from ..native import Native
from ..record import FLOATS, Attrs, Operator, Type, Types
from . import on_cpu, on_cuda
from .pointwise import generated
from .reduce import method


def can_compile(device: Context) -> bool:
    """Is there a C compiler?"""
    from ..cpu import (
        jit,
    )  # imported here: it loads much of the standard library, and few processes compile

    return jit.compiler() is not None


def prepare(groups: Sequence[tuple[Group, Sequence[str]]], device: Context) -> list[bool]:
    """Compiles the loops of (group, dtypes of its inputs) that are not compiled yet, in parallel.
    Returns for each whether it exists now."""
    from ..cpu import jit

    sources, made = [], []
    for group, dtypes in groups:
        made.append(alone(group, dtypes) is not None)
        if made[-1]:
            sources.append("")
            continue
        try:
            sources.append(source(group, dtypes, jit.FUNCTION))
        except ValueError:  # too many temporaries
            sources.append("")
    jit.compile_all(s for s in sources if s)
    return [is_made or bool(s and jit.function(s)) for s, is_made in zip(sources, made)]


@on_cpu("_fused")
def fused_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    group: Group = attrs["group"]
    if len(ins) > MAX_INPUTS or len(outs) > MAX_OUTPUTS or 0 in group.shape or not ins:
        return None
    if group.rows:
        return _rows(group, ins, outs)
    one = alone(group, [t.dtype for t in ins])
    if one is not None:
        y = Type(group.shape, outs[0].dtype)
        return generated(one.form, ins, one.read, y, one.dtype, group.in_shapes)
    kept = tuple(1 if i in group.axes else n for i, n in enumerate(group.shape))
    described = broadcast_fields(group.shape, group.in_shapes, kept)
    if described is None:
        return None
    fields, kept_strides = described
    dtypes = value_dtypes(group, ins)
    forms = step_forms(group, dtypes)
    if forms is None or any(r.reduce and dtypes[r.value] not in FLOATS for r in group.results):
        return None
    address = jit_function(group, [t.dtype for t in ins])
    if not address:
        return None
    weight = sum(f.expression.weight for f in forms)
    fields |= {
        "loop": address,
        "n_out": len(outs),
        "in_dtype": [code(t.dtype) for t in ins],
        "out_dtype": [code(t.dtype) for t in outs],
        "in_as": [code(WIDENED.get(t.dtype, t.dtype)) for t in ins],
        "out_as": [code(WIDENED.get(t.dtype, t.dtype)) for t in outs],
        "work": fields["n"] * (weight + len(outs)) // 2,
    }
    us = cost(*ins, *outs, steps=fields["n"] * (weight + len(outs)) / 8)
    if not any(r.reduce for r in group.results):
        return Native("plk_pointwise_run", ("plk_pointwise", fields), us)
    return Native(
        "plk_map_reduce_run", ("plk_map_reduce", _reduction(group, fields, kept_strides)), us
    )


def _rows(group: Group, ins, outs) -> Native | None:
    """The kernel of a fused row reduction."""
    if any(t.dtype != "float32" for t in (*ins, *outs)) or 0 in group.shape:
        return None
    dtypes = [t.dtype for t in ins]
    forms = step_forms(group, value_dtypes(group, ins))
    address = forms and jit_function(group, dtypes)
    if not forms or not address:
        return None
    *lead, n = group.shape
    strides = []
    for s in group.in_shapes:
        full = (1,) * (len(group.shape) - len(s)) + tuple(s)
        strides.append([0 if m == 1 else k for m, k in zip(full, contiguous(full))][:-1])
    shape, strides = collapse(lead, *strides)
    if len(shape) > MAX_DIMS:
        return None
    n_rows, weight = prod(lead), sum(f.expression.weight for f in forms)
    size = prod(group.shape)
    fields = {
        "loop": address,
        "n_in": len(ins),
        "n_out": len(outs),
        "n_scratch": n_scratch(group, dtypes),
        "ndim": len(shape),
        "n_rows": n_rows,
        "n": n,
        "work": size * (weight + len(outs)) // 2,
        "shape": shape or [1],
        "strides": [s or [0] for s in strides],
        "in_n": [prod(s) for s in group.in_shapes],
        "out_step": [n if prod(t.shape) == size else 1 for t in outs],
    }
    us = cost(*ins, *outs, steps=size * (weight + len(outs)) / 8 + 20 * n_rows)
    return Native("plk_row_reduction_run", ("plk_row_reduction", fields), us)


def jit_function(group: Group, dtypes: Sequence[str]) -> int:
    from ..cpu import jit

    return jit.function(source(group, dtypes, jit.FUNCTION))


def loop_of(op: Operator, attrs: Attrs) -> tuple[int, list[float]] | None:
    """The generated loop of an operator of one float32 array, (address, scalars): what a kernel
    can apply to its results. None if the operator has no such loop."""
    if op.name == "_fused":
        group, scalars = attrs["group"], attrs["scalars"]
        address = jit_function(group, ["float32"])
    else:
        t = Type((1,), "float32")
        found = form(op, [t], [t], attrs)
        if found is None or found.expression.n_inputs != 1 or found.shapes:
            return None
        number = lib.plk_pointwise_find(found.name.encode())
        loop = lib.plk_pointwise_loop(number, code("float32")) if number >= 0 else ffi.NULL
        address = int(ffi.cast("uintptr_t", loop))
        scalars = found.constants or [attrs[p.name] for p in op.params if p.dynamic]
    return (address, list(scalars)) if address and len(scalars) <= lib.PLK_ACT_SCALARS else None


def _reduction(group: Group, fields: dict, kept_strides: list[int]) -> dict:
    """The fields of plk_map_reduce. kept_strides: strides of the result, 0 along reduced axes."""
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


@on_cuda("_fused")
def fused_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    made = cuda.fused_plan.make(attrs["group"], ins, outs)
    return made and cuda.launches(*made.steps, scratch_bytes=made.scratch_bytes)
