"""Common subexpressions: nodes of the same operator, attributes and inputs become one.

Not for operators that draw random numbers, nor for nodes that touch memory which the graph writes:
the same read gives another result after a write, and two arrays of zeros that are written must stay
two.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..effects import Effects
from ..graph import Node, Value, rewrite, topological, with_inputs


def common(outputs: Sequence[Value]) -> list[Value]:
    """The graph in which no two nodes compute the same. The first of them stays where it is, so the
    order does too."""
    held = Effects(topological(outputs)).held
    seen: dict[tuple, list[Value]] = {}

    def replace(node: Node, inputs: list[Value]):
        if node.op is None or node in held or node.op.is_random(node.attrs):
            return None
        # repr tells 0.0 from -0.0 and True from 1, which compare equal
        key = (node.op.name, repr(node.attrs), *inputs)
        found = seen.get(key)
        if found is None:
            kept = with_inputs(node, inputs)
            found = seen[key] = [Value(kept, i) for i in range(len(kept.types))]
        return found

    return rewrite(outputs, replace)
