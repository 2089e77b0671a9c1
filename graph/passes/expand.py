"""Replaces operators without a kernel by their decompositions, whose operators have kernels and can
be fused with their neighbours by later passes; calls with 16-bit floats by calls with float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernels.native import Table
from ...kernels.plan import infer
from ...kernels.record import HALVES, Operator, Type
from ...kernels.traits import Decomposition, Matmul, SameMemory
from ..graph import Builder, Node, Value, rewrite, topological

SHORT = HALVES
BYTES = ("int8", "uint8")
F = Builder()


def expand(outputs: Sequence[Value], kernels: Table) -> list[Value]:
    """The graph with operators replaced by their decompositions, where all of a decomposition has
    kernels."""
    order = topological(outputs)
    if not any(n.op is not None and _may_expand(n.op, _types(n), kernels) for n in order):
        return list(outputs)

    def replace(node, inputs):
        if node.op is None or not _may_expand(node.op, _types(node), kernels):
            return None
        ins = [v.type for v in inputs]
        if kernels.choose(node.op, ins, node.types, node.attrs, derived=False) is not None:
            return None
        return decomposed(node.op, node.attrs, inputs, node.types, kernels)

    return rewrite(outputs, replace, order=order)


def _types(node) -> list[Type]:
    return [*[v.type for v in node.inputs], *node.types]


def _may_expand(op: Operator, types: Sequence[Type], kernels: Table) -> bool:
    """Has the operator a decomposition, or a call with 16-bit floats that may run with float32?"""
    return op.has(Decomposition) or (
        kernels.widens
        and any(t.dtype in SHORT for t in types)
        and not op.mutates
        and not op.random
        and not op.has(SameMemory)
        and kernels.has(op)
    )


def _widened(op: Operator, wide: Sequence[Value], attrs: dict[str, Any]) -> list[Value]:
    """The call with float32 in place of 16-bit floats. The reference computes so too."""
    if attrs.get("dtype") in SHORT:
        attrs = attrs | {"dtype": "float32"}
    types = infer(op, attrs, [v.type for v in wide])
    node = Node(op, op.shared(attrs), list(wide), "", types)
    return [Value(node, i) for i in range(len(types))]


def decomposed(
    op: Operator,
    attrs: dict[str, Any],
    inputs: Sequence[Value],
    outs: Sequence[Type],
    kernels: Table,
) -> list[Value] | None:
    """An operator's outputs by its decomposition, applied to typed values; None where the reference
    must run."""
    decomposition = op.trait(Decomposition)
    types = [*[v.type for v in inputs], *outs]
    if op.has_dynamic or not _may_expand(op, types, kernels):
        return None
    if any(t.layout for t in types):
        return None
    wide = [F.Cast(v, dtype="float32") if v.dtype in SHORT else v for v in inputs]
    made = decomposition.rule(F, *wide, **attrs) if decomposition else _widened(op, wide, attrs)
    if made is None:
        return None
    made = [
        F.Cast(v, dtype=t.dtype) if v.dtype != t.dtype else v
        for v, t in zip(made, outs, strict=True)
    ]
    assert [v.shape for v in made] == [t.shape for t in outs], (
        f"{op.name}: its decomposition gives {made}"
    )
    given = set(inputs)
    stack, seen = [v.node for v in made if v not in given], set()
    while stack:
        node = stack.pop()
        if node in seen or node.op is None:
            continue
        seen.add(node)
        ins = [v.type for v in node.inputs]
        if node.op.has(Matmul) and node.types[0].dtype in BYTES:  # it saturates, the reference not
            return None
        if (
            not node.op.has(SameMemory)
            and kernels.choose(node.op, ins, node.types, node.attrs) is None
        ):
            return None
        stack += [v.node for v in node.inputs if v not in given]
    return made
