"""Common subexpressions: nodes of the same operator, attributes and inputs become one.

Not for operators that draw random numbers, nor for nodes that touch memory which the graph writes:
the same read gives another result after a write, and two arrays of zeros that are written must stay
two.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..effects import Effects
from ..graph import Node, Value, rewrite, topological, values_of, with_inputs


def common(outputs: Sequence[Value]) -> list[Value]:
    """The graph in which no two nodes compute the same. The first of them stays where it is, so the
    order does too."""
    order = topological(outputs)
    held = Effects(order).held
    seen: dict[tuple, list[Value]] = {}

    def replace(node: Node, inputs: Sequence[Value]):
        op = node.op
        if op is None or node in held or op.random and op.is_random(node.attrs):
            return None
        key = (op, *_attributes(node), *inputs)
        found = seen.get(key)
        if found is None:
            seen[key] = found = values_of(with_inputs(node, inputs))
        return found if found[0].node is not node else None

    return rewrite(outputs, replace, order=order)


def _attributes(node: Node):
    """What tells attributes apart: their values, in the record's order."""
    for name in node.op.float_params:
        value = node.attrs[name]
        if value == 0 or type(value) is tuple:
            return (repr(node.attrs),)  # tells 0.0 from -0.0, which compare equal
    return node.attrs.values()
