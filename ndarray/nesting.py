"""Flattens nested lists to a flat list and a form, and restores them.

A form is a list for a list, and otherwise a number: 0 one value, n > 1 a list of n, -1 None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..engine.error import InvalidType, InvalidValue

Leaf = Callable[[Any], "tuple[list, int] | None"]


class NotNested(InvalidType, AssertionError):
    """A value that is not an array or a nested list of arrays; MXNet raises AssertionError."""


class LoopError(InvalidValue):
    """An invalid body of a loop."""


def flatten(value, leaf: Leaf, refuse: Callable[[Any], Exception]) -> tuple[list, Any]:
    """(all values in order, their form).

    leaf(x): (values, form) of a leaf x, None for a list or an invalid value. refuse(x): the error
    for an invalid value.
    """
    found = leaf(value)
    if found is not None:
        return found
    if not isinstance(value, (list, tuple)):
        raise refuse(value)
    parts = [flatten(v, leaf, refuse) for v in value]
    return [v for values, _ in parts for v in values], [form for _, form in parts]


def regroup(values: Iterable, form) -> Any:
    """The values nested according to the form."""
    rest = iter(values)

    def build(f):
        if isinstance(f, list):
            return [build(x) for x in f]
        return next(rest) if f in (0, -1) else [next(rest) for _ in range(f)]

    return build(form)


def pair(found, loop: str, wanted: str) -> tuple:
    """The two results of a loop's function. Raises LoopError for anything else."""
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        got = f"{len(found)} things" if isinstance(found, (list, tuple)) else type(found).__name__
        raise LoopError(f"{loop} must return ({wanted}), got {got}\n  fix: return two things")
    return tuple(found)
