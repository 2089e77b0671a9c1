"""Replacing values of a graph by values of new nodes that read the old graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph import Node, Origin, Value, inherit, with_inputs


def replace_uses(outputs: Sequence[Value], instead: Mapping[Value, Value]) -> list[Value]:
    """The graph in which every use of a key of `instead` is a use of its value.

    The values are given on nodes over the old graph; what these read is redirected too. No value
    may depend on its own key but through the nodes that it replaces.
    """
    for v, new in instead.items():
        if v.node.source.__class__ is Origin:
            inherit([new], v.node, v.node.inputs)
    made: dict[Node, Node] = {}

    def now(v: Value) -> Value:
        while v in instead:
            v = instead[v]
        return v

    for output in outputs:
        stack = [now(output).node]
        while stack:
            node = stack[-1]
            inputs = [now(v) for v in node.inputs]
            missing = [v.node for v in inputs if v.node not in made]
            if node in made or not missing:
                stack.pop()
                if node not in made:
                    made[node] = with_inputs(node, [Value(made[v.node], v.index) for v in inputs])
            else:
                stack.extend(missing)
    return [Value(made[now(v).node], now(v).index) for v in outputs]
