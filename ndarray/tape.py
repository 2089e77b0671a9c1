"""The tape: what autograd records of each call. It is a graph, kept until backward has used it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..engine import lib
from ..graph.graph import Node, Value, typed_node, variable
from ..kernels.plan import Plan
from ..kernels.traits import Lowered
from .ndarray import NDArray, make

next_seq = itertools.count().__next__


class Variable:
    """An array whose gradient is wanted: what attach_grad puts on its `_tape`."""

    __slots__ = ("array", "fresh", "grad", "rank", "req")

    def __init__(self, array: NDArray, grad: NDArray | None, req: str):
        self.array, self.grad, self.req, self.fresh = array._spec, grad, req, False
        self.rank = 0  # see autograd.rank_gradients


class TapeNode:
    """One recorded call. entries: where each input came from: None, a Variable, or (TapeNode,
    output index).

    inputs, saved: the arrays that the gradient reads, so that the others can be freed before
        backward: inputs has None
    for those it does not read, saved maps indices of outputs. All three are None once backward has
    used the tape.
    """

    __slots__ = ("entries", "inputs", "plan", "saved", "scalars", "seq")
    entries: tuple | None
    inputs: tuple | None
    plan: Any  # a Plan, or what stands for one: see backward.py
    saved: dict[int, NDArray] | None
    scalars: tuple
    seq: int


def entries_of(arrays: Sequence[NDArray]) -> tuple | None:
    """Where arrays came from; None if from no variable. What backward has used up counts as a
    constant, as in MXNet: a state carried from one truncated sequence to the next needs no
    detach."""
    entries = tuple([a._tape for a in arrays])
    for e in entries:
        if e.__class__ is tuple and e[0].entries is None:
            entries = tuple([None if spent(e) else e for e in entries])
            break
    return entries if entries.count(None) < len(entries) else None


def spent(entry) -> bool:
    """Has a backward used up the call that this tape entry names?"""
    return entry.__class__ is tuple and entry[0].entries is None


def record(
    plan, inputs: Sequence[NDArray], scalars: Sequence[float], outputs: Sequence[NDArray]
) -> None:
    """Notes a call whose inputs depend on a variable; the outputs then know where they came
    from."""
    for a in inputs:
        if a._tape is not None:
            break
    else:
        return
    entries = entries_of(inputs)
    if entries is None:
        return
    saved = plan.saved
    if saved is None:
        plan.unread, saved = unread_and_saved(plan, scalars)
        plan.saved = saved
    node = TapeNode()
    node.plan, node.scalars = plan, tuple(scalars)
    if not plan.unread:
        node.inputs = tuple(inputs)
    elif len(plan.unread) == len(inputs):
        node.inputs = plan.unread
    else:
        node.inputs = tuple([a if i not in plan.unread else None for i, a in enumerate(inputs)])
    node.entries = entries
    node.seq = next_seq()
    node.saved = {i: shadow(outputs[i]) for i in saved} if saved else None
    index = 0
    for out in outputs:
        out._tape = (node, index)
        index += 1


def shadow(array: NDArray) -> NDArray:
    """The same memory under a handle of its own, not on the tape: no reference cycle through the
    tape."""
    if array._spec.stype != "default":
        return array.detach()
    return make(lib.pl_array_view(array._handle, 0), array._spec)


def unread_and_saved(plan: Plan, scalars: Sequence[float]) -> tuple[tuple, tuple[int, ...]]:
    """What the operator's gradient reads, found by tracing it once for a call with these dynamic
    parameters: indices of the inputs that it does not read (a tuple of Nones in their place where
    it reads none at all) and of the outputs that it reads."""
    nothing = (None,) * plan.n_in
    if plan.op.grad is None:
        return nothing, ()
    xs = [variable(f"x{i}", s.type) for i, s in enumerate(plan.in_specs)]
    node = plan_node(plan, xs, scalars)
    from ..graph.graph import Builder, topological

    ys = [Value(node, i) for i in range(len(node.types))]
    dys: list = [variable(f"dy{i}", y.type) for i, y in enumerate(ys)]
    if plan.op.has(Lowered):
        dys[plan.n_visible :] = [None] * (len(dys) - plan.n_visible)
    builder = Builder(bool(plan.attrs.get("train")))
    grads = plan.op.differentiate(builder, dys, list(node.inputs), ys, node.attrs)
    grads = [g for g in grads if g is not None]
    # what `node` itself reads does not count: its results are kept
    read = {v for n in topological(grads) if n is not node for v in n.inputs} | set(grads)
    unread = tuple(i for i, x in enumerate(xs) if x not in read)
    if plan.op.has(Lowered):  # a gradient's gradient may read all of them
        unread = ()
    return nothing if len(unread) == len(xs) else unread, tuple(v.index for v in ys if v in read)


def keeps_input(plan, j: int) -> bool:
    """Does the tape keep input j of a recorded call of this plan?"""
    unread = plan.unread
    return not unread or unread[0] is not None and j not in unread


def expand(
    plan, inputs: Sequence[Value], scalars: Sequence
) -> tuple[Sequence[Value], Sequence[Value]]:
    """A recorded call as a graph: (values of its outputs, the values that `saved` numbers)."""
    if hasattr(plan, "expand"):
        return plan.expand(inputs)
    node = plan_node(plan, inputs, scalars)
    values = [Value(node, i) for i in range(len(node.types))]
    return values, values


def plan_node(plan: Plan, inputs: Sequence[Value], scalars: Sequence[float]) -> Node:
    """The graph node of a plan: its attributes with the call's dynamic parameters put back."""
    attrs, at = dict(plan.attrs), 0
    for p in plan.op.params:
        if p.dynamic:
            if isinstance(attrs[p.name], tuple):
                n = len(attrs[p.name])
                attrs[p.name] = tuple(scalars[at : at + n])
                at += n
            else:
                attrs[p.name] = scalars[at]
                at += 1
    return typed_node(plan.op, attrs, inputs)
