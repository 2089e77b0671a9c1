"""Kernels for operators that have none of their own: made from their references.

A reference is written against NumPy. Here it runs once for a plan, on arrays that record what is
done to them (NumPy's protocols __array_ufunc__ and __array_function__ bring it here), and what was
recorded becomes CUDA text: chains of pointwise operations, slices and gathers are one kernel,
each reduction is one. References that look at values, draw random numbers, or loop for long cannot
be traced; they run as they are (fallback.py).

Read on in: trace_arrays.py (what a reference gets), trace_recorder.py (nodes and kernels),
trace_index.py, trace_reductions.py, trace_functions.py (NumPy's functions), trace_source.py (the
text).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..native import Native
from ..record import REGISTRY, Operator, Type, mutated_inputs
from ..shapes import contiguous
from ..spec import ITEM_BYTES
from ..traits import Eager, OwnKernel, PythonKernel
from .launch import Buffer, Copy, Scalar, Scratch, launches
from .trace_arrays import Array, Namespace
from .trace_index import Indexing
from .trace_recorder import Step
from .trace_reductions import Reductions
from .trace_source import Leaf, Number, Untraceable

LAUNCH_US = 2.5


class Tracer(Reductions, Indexing):
    """Records one call."""


def trace(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> Native:
    """The kernel of a call. Raises Untraceable, and what the reference raises."""
    given, at = dict(attrs), 0
    t = Tracer()
    for p in op.params:
        if p.dynamic:
            if str(p.kind).endswith("?"):
                raise Untraceable("a number that may be none")
            count = len(given[p.name]) if isinstance(given[p.name], tuple | list) else None
            made = [
                Array(t, Number(Scalar(at + i, "float64"), "float64"), weak=True)
                for i in range(1 if count is None else count)
            ]
            given[p.name] = made[0] if count is None else tuple(made)
            at += len(made)
    arrays = [
        Array(t, Leaf(Buffer(i), x.shape, x.dtype, contiguous(x.shape))) for i, x in enumerate(ins)
    ]
    with np.errstate(all="ignore"):
        results = op.ref(Namespace(t), *arrays, **given)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    mutated = mutated_inputs(op, attrs, len(ins))
    targets = [*outs, *(ins[i] for i in mutated)]
    numbers = [*range(len(ins), len(ins) + len(outs)), *mutated]
    places: list[Buffer | Scratch] = [Buffer(i) for i in numbers]
    if len(results) != len(targets):
        raise Untraceable("its reference gives another number of arrays")
    apart = bool(op.inplace or mutated)  # outputs may lie over what is still to be read
    groups: dict[tuple, list] = {}
    copies = []
    for x, target, place in zip(results, targets, places):
        node = t.node(t.joined(x))
        if node.shape != tuple(target.shape):
            raise Untraceable("its reference gives another shape")
        if not prod(target.shape):
            continue
        if apart:
            nbytes = prod(target.shape) * ITEM_BYTES[target.dtype]
            scratch = t.scratch(nbytes)
            copies.append(Step(Copy(place, scratch, nbytes), {scratch}, {place}))
            place = scratch
        groups.setdefault(node.shape, []).append((node, (place, target.dtype)))
    for group in groups.values():
        t.write([x for x, _ in group], [to for _, to in group])
    source = t.module.text()
    steps = [
        s if isinstance(s, Copy) or s.source else s._replace(source=source)
        for s in _needed([*t.steps, *copies])
    ]
    return launches(*steps, scratch_bytes=t.scratch_bytes, cost_us=LAUNCH_US * max(len(steps), 1))


def _needed(steps: Sequence[Step]) -> list:
    """The steps on which outputs depend."""
    found: list = []
    wanted: set = set()
    for step in reversed(steps):
        if any(isinstance(p, Buffer) or p in wanted for p in step.writes):
            found.insert(0, step.launch)
            wanted |= step.reads
    return found


def traced_entry(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any]
) -> Native | None:
    """The reference's kernel, None where it has to run as it is: what it does cannot be traced, or
    its expressions are too deep. Any other exception is a fault, of the reference or of ours."""
    try:
        return trace(op, ins, outs, attrs)
    except (Untraceable, RecursionError):
        return None


NOT_TRACED = (PythonKernel, Eager, OwnKernel)  # traits of operators whose reference does not run


def register(native: Callable) -> None:
    """Makes the tracer an entry (Table.native) of every operator that it may run. After every other
    entry: an operator's own kernel is asked first."""
    names = {
        op.name
        for op in REGISTRY.values()
        if not (op.random or any(map(op.has, NOT_TRACED))) and op.ref is not None
    }
    native(*sorted(names), derived=True)(traced_entry)
