"""Memory layouts: convolutions get data and weights as their kernels like them best, and values
keep such a layout from one operator to the next.

A kernel table says what an operator wants (`Table.wants`); an array changes its layout only where
two disagree. Changes of parameters depend on them alone, and so land in a prepack program. Some
layouts pay there only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.native import Table, Wanted
from ...kernels.record import Operator, Type, lookup
from ..graph import Node, Value, rewrite, topological, typed_node
from .prepack import settled


def layout(
    outputs: Sequence[Value],
    kernels: Table,
    free: Sequence[int] = (),
    stable: Sequence[Value] = (),
) -> list[Value]:
    """The graph with `_reorder` nodes where layouts change; outputs are row-major, but those whose
    numbers are in `free`. stable: see compile_passes.

    Where an operator may, it runs on views of the memory, which need no layout: see fuse.py.
    """
    if not kernels.layouts:
        return list(outputs)
    prepared = _prepared(outputs, kernels, stable)
    stored: dict[tuple[Value, str], Value] = {}
    memory: dict[tuple[Value, Type], Value] = {}

    def as_layout(v: Value, tag: str) -> Value:
        if v.type.layout == tag:
            return v
        if v.node.op is REORDER:
            return as_layout(v.node.inputs[0], tag)
        if (v, tag) not in stored:
            stored[v, tag] = _node(REORDER, {"layout": tag}, v)
        return stored[v, tag]

    def replace(node: Node, inputs: list[Value]):
        if node.op is None or node.op is REORDER:
            return None
        found = kernels.wanted(node.op, [v.type for v in inputs], node.types, node.attrs)
        if found is None or not all(node.inputs[i] in prepared for i in found.prepared):
            found = Wanted([""] * len(inputs), [t.layout for t in node.types])
        given = [as_layout(v, tag) for v, tag in zip(inputs, found.ins)]
        types = [t._replace(layout=tag) for t, tag in zip(node.types, found.outs)]
        if not found.memory:
            return _outputs(node, given, types)
        for v, t in zip(given, found.memory):
            if (v, t) not in memory:
                memory[v, t] = _as_memory(v, t)
        given = [memory[v, t] for v, t in zip(given, found.memory)]
        return [
            _node(FROM_MEMORY, {"shape": t.shape, "layout": t.layout}, v)
            for v, t in zip(_outputs(node, given, found.memory[len(given) :]), types)
        ]

    made = rewrite(outputs, replace)
    keep = set(free)
    return [v if i in keep else as_layout(v, outputs[i].type.layout) for i, v in enumerate(made)]


def _prepared(outputs: Sequence[Value], kernels: Table, stable: Sequence[Value]) -> set[Value]:
    """Weights that follow from stable variables, and that all who read them want prepared in one
    layout."""
    if not stable:
        return set()
    fixed = settled(outputs, stable).union(v.node for v in stable)
    wishes: dict[Value, set[str]] = {v: {""} for v in outputs}
    for node in topological(outputs):
        if node.op is None or not any(v.node in fixed for v in node.inputs):
            continue
        found = kernels.wanted(node.op, [v.type for v in node.inputs], node.types, node.attrs)
        for i, v in enumerate(node.inputs):
            tag = found.ins[i] if found and i in found.prepared else ""
            wishes.setdefault(v, set()).add(tag)
    return {
        v for v, tags in wishes.items() if v.node in fixed and "" not in tags and len(tags) == 1
    }


REORDER, MEMORY, FROM_MEMORY = map(lookup, ("_reorder", "_memory", "_from_memory"))


def _outputs(node: Node, inputs: Sequence[Value], types: Sequence[Type]) -> list[Value]:
    """The outputs of the node on other inputs, with other types."""
    made = Node(node.op, node.attrs, inputs, node.name, types, node.extra, node.source)
    return [Value(made, i) for i in range(len(types))]


def _node(op: Operator, attrs: dict, v: Value) -> Value:
    return Value(typed_node(op, attrs, [v]))


def _as_memory(v: Value, t: Type) -> Value:
    """What lies in v's memory, of row-major type t."""
    if not v.type.layout:
        return v if v.shape == t.shape else _node(lookup("reshape_to"), {"shape": t.shape}, v)
    if v.node.op is FROM_MEMORY:
        return v.node.inputs[0]
    return _node(MEMORY, {"layout": v.type.layout}, v)
