"""Common subexpressions: nodes of the same operator, attributes and inputs become one.

Not for operators that draw random numbers, nor for nodes that touch memory which the graph writes:
the same read gives another result after a write, and two arrays of zeros that are written must stay
two.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._graph import kinds, merge
from ..effects import Effects
from ..graph import Node, Value, topological


def cse(outputs: Sequence[Value]) -> list[Value]:
    """The graph in which no two nodes compute the same. The first of them stays where it is, so the
    order does too."""
    order = topological(outputs)
    pinned = Effects(order).pinned
    numbers, alike = kinds(order)
    same: dict[tuple, int] = {}
    return merge(list(outputs), order, numbers, [_name(n, same) for n in alike], pinned)


def _name(node: Node, same: dict[tuple, int]) -> int | None:
    """A number for nodes of the same operator and attributes; None for those that stay."""
    op = node.op
    if op is None or op.random and op.is_random(node.attrs):
        return None
    return same.setdefault((op, *op.attribute_key(node.attrs)), len(same))
