"""Batch normalisation while training takes in the sum and the relu that follow it, or another
activation.

The first pass runs on graphs whose gradient has not been taken: the operator that it makes has one
of its own, with relu's mask in it. What that reads as a sum of two gradients (where a shortcut
leaves) it then adds itself: the second pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ...kernels.activations import OF_NORMS
from ...kernels.backend import Backend
from ...kernels.loops import adds, multiplies, rectifies
from ...kernels.record import lookup
from ...kernels.traits import Activates, BatchNorm, Scale
from ..graph import Node, Value, rewrite, topological, typed_node

FUSED, GRAD = lookup("_batch_norm_add_relu"), lookup("_batch_norm_relu_grad")
ACTIVATED, ACT_GRAD = lookup("_batch_norm_act"), lookup("_batch_norm_act_grad")


def norm_act(outputs: Sequence[Value], backend: Backend) -> list[Value]:
    """The graph with every float32 BatchNorm that takes the batch's statistics joined with what
    alone reads it."""
    order = topological(outputs)
    uses = _uses(order, outputs)
    norms = [n for n in order if _is_batch_norm(n)] if backend.kernels.has(FUSED) else []
    activates = backend.kernels.has(ACTIVATED)
    alone = {n for n in norms if _alone(n, uses, 1)}
    gated = {n for n in norms if _alone(n, uses, 2)} if activates else set()
    if not alone and not gated:
        return list(outputs)

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op is None or len(node.types) != 1 or node.types[0].dtype != "float32":
            return None
        types = [v.type for v in inputs]
        if rectifies(node.op, types, node.types, node.attrs):
            return _with(node, inputs[0], relu=True)
        if adds(node.op, types, node.types, node.attrs) and inputs[0] != inputs[1]:
            for i in (1, 0):  # the last one first: the other is computed before it
                made = _with(node, inputs[i], addend=inputs[1 - i], i=i)
                if made:
                    return made
        old = _gate(node, uses, gated)
        if old is not None:
            v = inputs[node.inputs.index(old)]
            return _activated(v.node, {"act": "silu"}) if v.node.op is old.node.op else None
        act = _activation(node) if activates else None
        if act and node.inputs[0].node in alone and not node.inputs[0].index:
            below = inputs[0].node
            return _activated(below, act) if below.op is node.inputs[0].node.op else None
        return None

    def _with(node: Node, v: Value, relu=False, addend=None, i=0):
        old, below = node.inputs[i].node, v.node
        if uses[node.inputs[i]] > 1 or v.index:
            return None
        if below.op is FUSED and not below.attrs["relu"] and addend is None:
            attrs, given = {**below.attrs, "relu": True}, below.inputs
        elif old in alone:
            kept = {p.name: below.attrs[p.name] for p in FUSED.params if p.name in below.attrs}
            attrs = FUSED.parse({**kept, "relu": relu, "add": addend is not None})
            given = below.inputs if addend is None else (*below.inputs, addend)
        else:
            return None
        return [Value(typed_node(FUSED, attrs, given, below.name, below.source))]

    return rewrite(outputs, replace, None, order)


def _activated(norm: Node, act: dict) -> list[Value]:
    kept = {p.name: norm.attrs[p.name] for p in ACTIVATED.params if p.name in norm.attrs}
    attrs = ACTIVATED.parse({**kept, **act})
    return [Value(typed_node(ACTIVATED, attrs, norm.inputs, norm.name, norm.source))]


def _activation(node: Node) -> dict | None:
    """The parameters of `_batch_norm_act` for a node that activates its input."""
    op, attrs = node.op, node.attrs
    if op is None or node.has_open_scalars or len(node.inputs) != 1:
        return None
    activates = op.trait(Activates)
    act = None if activates is None else activates.of(**attrs)
    if act is None or act.name not in OF_NORMS:
        return None
    return {"act": act.name, "low": act.low, "high": act.high}


def _gate(node: Node, uses: Counter, norms: Collection[Node]) -> Value | None:
    """The result of a batch normalisation that a node multiplies by its own sigmoid."""
    types = [v.type for v in node.inputs]
    if not norms or not multiplies(node.operation, types, node.types, node.attrs):
        return None
    for v, s in (node.inputs, node.inputs[::-1]):
        if v.node not in norms or v.index or uses[s] > 1 or _activation(s.node) != SIGMOID:
            continue
        below = s.node.inputs[0]
        scale = None if below.node.op is None else below.node.op.trait(Scale)
        if scale is not None and uses[below] == 1 and not below.node.has_open_scalars:
            if scale.factor(below.node.attrs) == 1:
                below = below.node.inputs[0]
        if below == v:
            return v
    return None


SIGMOID = {"act": "sigmoid", "low": 0.0, "high": 0.0}


def norm_sums(outputs: Sequence[Value]) -> list[Value]:
    """The graph with sums of two gradients inside the backward operators that alone read them."""
    order = topological(outputs)
    if not any(n.op in (GRAD, ACT_GRAD) for n in order):
        return list(outputs)
    uses = _uses(order, outputs)

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op not in (GRAD, ACT_GRAD) or node.attrs["more"] or uses[node.inputs[0]] > 1:
            return None
        total = inputs[0].node
        types = [v.type for v in total.inputs]
        if total.op is None or not adds(total.op, types, total.types, total.attrs):
            return None
        a, b = total.inputs
        made = typed_node(node.op, {**node.attrs, "more": True}, [a, *inputs[1:], b], node.name)
        return [Value(made, i) for i in range(len(made.types))]

    return rewrite(outputs, replace, None, order)


def _uses(order: Sequence[Node], outputs: Sequence[Value]) -> Counter:
    uses = Counter(v for node in order for v in node.inputs)
    uses.update(outputs)
    return uses


def _is_batch_norm(node: Node) -> bool:
    if node.op is None or not node.op.has(BatchNorm) or not node.is_typed:
        return False
    trains = node.attrs["train"] and not node.attrs["use_global_stats"]
    return trains and all(v.dtype == "float32" for v in node.inputs)


def _alone(node: Node, uses: Counter, n_readers: int) -> bool:
    """Do so many nodes read the result, none the statistics, and no other node the moving ones?
    Then the order of reads and writes stays what it was."""
    moving = node.inputs[3:]
    return (
        [uses[Value(node, i)] for i in range(3)] == [n_readers, 0, 0]
        and moving[0] != moving[1]
        and all(v.node.op is None and uses[v] == 1 for v in moving)
    )
