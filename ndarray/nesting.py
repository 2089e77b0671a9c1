"""Nested lists as a flat list and a form, and back.

A form is a list for a list, and for what is no list a number: 0 one value, n > 1 a list of n, -1
None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..engine.error import InvalidType, InvalidValue

Leaf = Callable[[Any], "tuple[list, int] | None"]


class NotNested(InvalidType, AssertionError):
    """Something that stands where an array, or a list of them, must; MXNet asserts it."""


class LoopError(InvalidValue):
    """A body that a loop cannot use."""


def flatten(value, leaf: Leaf, refuse: Callable[[Any], Exception]) -> tuple[list, Any]:
    """(all values in order, their form).

    leaf(x): (values, form) of an x that is no list, None for a list and for what must not be there.
    refuse(x): the error for the latter.
    """
    found = leaf(value)
    if found is not None:
        return found
    if not isinstance(value, (list, tuple)):
        raise refuse(value)
    parts = [flatten(v, leaf, refuse) for v in value]
    return [v for values, _ in parts for v in values], [form for _, form in parts]


def regroup(values: Iterable, form) -> Any:
    """The values nested as the form says."""
    rest = iter(values)

    def build(f):
        if isinstance(f, list):
            return [build(x) for x in f]
        return next(rest) if f in (0, -1) else [next(rest) for _ in range(f)]

    return build(form)


def pair(found, loop: str, wanted: str) -> tuple:
    """The two things that a loop's function returns. Raises LoopError for anything else."""
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        got = f"{len(found)} things" if isinstance(found, (list, tuple)) else type(found).__name__
        raise LoopError(f"{loop} must return ({wanted}), got {got}\n  fix: return two things")
    return tuple(found)
