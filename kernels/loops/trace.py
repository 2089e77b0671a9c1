"""The loops of a reference.

A reference is written against NumPy. Here it runs once for a plan, on arrays that record what is
done to them (NumPy's protocols __array_ufunc__ and __array_function__ bring it here). What was
recorded is a list of loops (nodes.py) that c.py and cuda/trace.py print: chains of pointwise
operations, slices and gathers are one loop, each reduction is one. References that look at values
or loop for long cannot be traced; they run as they are.

Read on in: arrays.py (what a reference gets), recorder.py (nodes and loops), index.py,
reductions.py, functions.py (NumPy's functions), draws.py (its random numbers), nest.py (how C's
loops walk memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..record import REGISTRY, Operator, Type, mutated_inputs
from ..shapes import contiguous
from ..spec import ITEM_BYTES
from ..traits import Eager, OwnKernel, PythonKernel
from .arguments import Buffer, Copy, Scalar, Scratch
from .arrays import Array, Namespace
from .draws import Generator
from .index import Indexing
from .nodes import Leaf, Number, Step, Untraceable, reads, writes
from .reductions import Reductions

NOT_TRACED = (PythonKernel, Eager, OwnKernel)  # traits of operators whose reference does not run


class Tracer(Reductions, Indexing):
    """Records one call."""

    def needed(self) -> list[Step]:
        """The steps on which outputs depend."""
        found: list[Step] = []
        wanted: set = set()
        for step in reversed(self.steps):
            if any(isinstance(p, Buffer) or p in wanted for p in writes(step)):
                found.insert(0, step)
                wanted |= reads(step)
        return found


def traceable() -> list[str]:
    """The operators whose references may run on what records."""
    return sorted(
        {
            op.name
            for op in REGISTRY.values()
            if not (op.random or any(map(op.has, NOT_TRACED))) and op.ref is not None
        }
    )


def trace(
    op: Operator,
    ins: Sequence[Type],
    outs: Sequence[Type],
    attrs: dict,
    for_cpu: bool = False,
) -> Tracer:
    """A call, recorded. Raises Untraceable, and what the reference raises."""
    given, at = dict(attrs), 0
    t = Tracer()
    t.for_cpu = for_cpu
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
    if op.random:
        given["rng"] = Generator(t, at)
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
            copies.append(Copy(place, scratch, nbytes))
            place = scratch
        groups.setdefault(node.shape, []).append((node, (place, target.dtype)))
    for group in groups.values():
        t.write([x for x, _ in group], [to for _, to in group])
    t.steps += copies
    return t
