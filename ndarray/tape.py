"""The tape: autograd's record of each call. It is a graph, kept until backward has used it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

from ..engine import layers
from ..engine.error import MXNetError, compose
from ..graph.graph import Node, Value, typed_node, variable
from ..kernels.plan import Plan
from ..kernels.spec import Spec
from ..kernels.traits import Lowered
from . import watch
from .ndarray import NDArray, make_view, state

next_seq = itertools.count().__next__


class Variable:
    """The tape entry of an array with attach_grad, in its `_tape`."""

    __slots__ = ("array", "fresh", "grad", "rank", "req")

    def __init__(self, array: NDArray, grad: NDArray | None, req: str):
        self.array, self.grad, self.req, self.fresh = array._spec, grad, req, False
        self.rank = 0  # see autograd.rank_gradients


class Composite(Protocol):
    """What stands on the tape for a call that is no single operator: a recorded graph, a call of
    sparse arrays, an autograd.Function."""

    @property
    def saved(self) -> tuple[int, ...]: ...

    @property
    def unread(self) -> tuple: ...

    @property
    def out_specs(self) -> tuple[Spec, ...]: ...

    def eager_grads(self, node: TapeNode, dys: list, create_graph: bool) -> list: ...


Recorded = Plan | Composite


class TapeNode:
    """One recorded call. entries: the source of each input: None, a Variable, or (TapeNode, output
    index).

    inputs, saved: the arrays that the gradient reads, so that the others can be freed before
        backward: inputs has None
    for those it does not read, saved maps indices of outputs. All three are None once backward has
    used the tape.
    """

    __slots__ = ("entries", "inputs", "layer", "plan", "saved", "scalars", "seq")
    entries: tuple | None
    inputs: tuple | None
    layer: str | None  # set only while somebody wants to know it
    plan: Recorded
    saved: dict[int, NDArray] | None
    scalars: tuple
    seq: int


def entries_of(arrays: Sequence[NDArray]) -> tuple | None:
    """The tape entries of arrays; None if they depend on no variable. Calls whose tape backward has
    freed count as constants, as in MXNet: states carried between truncated sequences need no
        detach."""
    entries = tuple([a._tape for a in arrays])
    for e in entries:
        if e.__class__ is tuple and e[0].entries is None:
            entries = tuple([None if spent(e) else e for e in entries])
            break
    return entries if entries.count(None) < len(entries) else None


def spent(entry: Any) -> bool:
    """Has a backward freed the call of this tape entry?"""
    return entry.__class__ is tuple and entry[0].entries is None


def refuse_recorded(target: NDArray, value: Any = None, whole: bool = False) -> None:
    """Raises MXNetError for writes that would make gradients wrong: into a taped array, or of one
    into a part."""
    if not state.recording:
        return
    if target._tape is not None and not spent(target._tape):
        raise MXNetError(
            compose(
                "Assigning to NDArrays that are already in a computational graph will cause"
                " undefined behavior when evaluating gradients",
                fix="write y = x + 1 instead of x += 1, or assign outside autograd.record()",
            )
        )
    if (
        not whole
        and isinstance(value, NDArray)
        and value._tape is not None
        and not spent(value._tape)
    ):
        raise MXNetError(
            compose(
                "Inplace operations (+=, -=, x[:]=, etc) are not supported when recording with"
                " autograd: a recorded array cannot be written into part of another",
                fix="build the array with nd.concat, nd.stack or nd.where",
            )
        )


def record(
    plan: Recorded, inputs: Sequence[NDArray], scalars: Sequence[float], outputs: Sequence[NDArray]
) -> None:
    """Records a call whose inputs depend on a variable, and sets the outputs' tape entries."""
    if watch.see is not None:
        watch.see(plan, inputs, scalars, outputs)
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
        assert isinstance(plan, Plan)
        plan.unread, saved = unread_and_saved(plan, scalars)
        plan.saved = saved
    node = TapeNode()
    node.plan, node.scalars = plan, tuple(scalars)
    if layers.watched:
        node.layer = layers.current()
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
    """The same memory under a new handle without a tape entry, to avoid a reference cycle through
    the tape."""
    if array._spec.stype != "default":
        return array.detach()
    return make_view(array)


def unread_and_saved(plan: Plan, scalars: Sequence[float]) -> tuple[tuple, tuple[int, ...]]:
    """What the operator's gradient reads, found by tracing it once for a call with these dynamic
    parameters: indices of the inputs that it does not read (a tuple of Nones instead if it reads
        none) and of the outputs that it reads."""
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
    # reads by `node` itself do not count: its results are stored
    read = {v for n in topological(grads) if n is not node for v in n.inputs} | set(grads)
    unread = tuple(i for i, x in enumerate(xs) if x not in read)
    if plan.op.has(Lowered):  # a gradient's gradient may read all of them
        unread = ()
    return nothing if len(unread) == len(xs) else unread, tuple(v.index for v in ys if v in read)


def keeps_input(plan: Recorded, j: int) -> bool:
    """Does the tape keep input j of a recorded call of this plan?"""
    unread = plan.unread
    return not unread or unread[0] is not None and j not in unread


def expand(
    plan: Recorded, inputs: Sequence[Value], scalars: Sequence
) -> tuple[Sequence[Value], Sequence[Value]]:
    """A recorded call as a graph: (values of its outputs, the values that `saved` indexes)."""
    if hasattr(plan, "expand"):  # a recorded graph
        return plan.expand(inputs)
    assert isinstance(plan, Plan)
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
