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
    same = _Numbers()
    return merge(list(outputs), order, numbers, [_name(n, same) for n in alike], pinned)


class _Numbers(dict):
    """A number for each operator with its attributes. Attributes that have no hash, as a Size,
    are compared with one another."""

    def __init__(self) -> None:
        self._others: list[tuple] = []

    def __missing__(self, key: tuple) -> int:
        made = self[key] = len(self) + len(self._others)
        return made

    def of(self, key: tuple) -> int:
        try:
            return self[key]
        except TypeError:
            for other, number in self._others:
                if other == key:
                    return number
            self._others.append((key, len(self) + len(self._others)))
            return self._others[-1][1]


def _name(node: Node, same: _Numbers) -> int | None:
    """A number for nodes of the same operator and attributes; None for those that stay."""
    op = node.op
    if op is None or op.random and op.is_random(node.attrs):
        return None
    return same.of((op, *op.attribute_key(node.attrs)))
