"""Common subexpressions: nodes of the same operator, attributes and inputs become one.

Not for operators that draw random numbers, nor for nodes that touch memory which the graph writes:
the same read gives another result after a write, and two arrays of zeros that are written must stay
two.
"""

from __future__ import annotations

import itertools
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


class _Numbers:
    """A number for each operator with its attributes. Attributes that have no hash, as a Size,
    are compared with all others: they may be equal to a constant."""

    def __init__(self) -> None:
        self._hashed: dict[tuple, int] = {}
        self._others: list[tuple[tuple, int]] = []
        self._next = itertools.count().__next__

    def of(self, key: tuple) -> int:
        try:
            found, others = self._hashed.get(key), self._others
        except TypeError:
            found, others = None, [*self._hashed.items(), *self._others]
        if found is None:
            found = next((number for other, number in others if other == key), None)
        if found is None:
            found = self._next()
            if others is self._others:
                self._hashed[key] = found
            else:
                self._others.append((key, found))
        return found


def _name(node: Node, same: _Numbers) -> int | None:
    """A number for nodes of the same operator and attributes; None for those that stay."""
    op = node.op
    if op is None or op.random and op.is_random(node.attrs):
        return None
    return same.of((op, *op.attribute_key(node.attrs)))
