"""Batch normalisation while training takes in the sum and the relu that follow it.

The first pass runs on graphs whose gradient has not been taken: the operator that it makes has one
of its own, with relu's mask in it. What that reads as a sum of two gradients (where a shortcut
leaves) it then adds itself: the second pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...kernels.loops import adds, rectifies
from ...kernels.record import lookup
from ..graph import Node, Value, rewrite, topological, typed_node

FUSED, GRAD = lookup("_batch_norm_add_relu"), lookup("_batch_norm_relu_grad")


def norm_act(outputs: Sequence[Value]) -> list[Value]:
    """The graph with every float32 BatchNorm that takes the batch's statistics joined with what
    alone reads it."""
    order = topological(outputs)
    uses = _uses(order, outputs)
    alone = {n for n in order if _is_batch_norm(n) and _alone(n, uses)}
    if not alone:
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


def norm_sums(outputs: Sequence[Value]) -> list[Value]:
    """The graph with sums of two gradients inside the backward operators that alone read them."""
    order = topological(outputs)
    if not any(n.op is GRAD for n in order):
        return list(outputs)
    uses = _uses(order, outputs)

    def replace(node: Node, inputs: Sequence[Value]):
        if node.op is not GRAD or node.attrs["more"] or uses[node.inputs[0]] > 1:
            return None
        total = inputs[0].node
        types = [v.type for v in total.inputs]
        if total.op is None or not adds(total.op, types, total.types, total.attrs):
            return None
        a, b = total.inputs
        made = typed_node(GRAD, {**node.attrs, "more": True}, [a, *inputs[1:], b], node.name)
        return [Value(made, i) for i in range(len(made.types))]

    return rewrite(outputs, replace, None, order)


def _uses(order: Sequence[Node], outputs: Sequence[Value]) -> Counter:
    uses = Counter(v for node in order for v in node.inputs)
    uses.update(outputs)
    return uses


def _is_batch_norm(node: Node) -> bool:
    if node.op is None or node.op.name != "BatchNorm" or node.types is None:
        return False
    trains = node.attrs["train"] and not node.attrs["use_global_stats"]
    return trains and all(v.dtype == "float32" for v in node.inputs)


def _alone(node: Node, uses: Counter) -> bool:
    """Does one node read the result, nothing the statistics, and nobody else the moving ones: then
    the order of reads and writes stays what it was."""
    moving = node.inputs[3:]
    return (
        [uses[Value(node, i)] for i in range(3)] == [1, 0, 0]
        and moving[0] != moving[1]
        and all(v.node.op is None and uses[v] == 1 for v in moving)
    )
