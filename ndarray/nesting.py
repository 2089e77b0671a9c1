"""Nested lists as a flat list of leaves and a form, and back.

A form is hashable: a tuple for a list, and for what is no list 0, one leaf; n > 1, a list of n
leaves that one value stands for; -1, None; or a Constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..engine.error import InvalidType, InvalidValue


class NotNested(InvalidType, AssertionError):
    """A value that is not an array or a nested list of arrays; MXNet raises AssertionError."""


class LoopError(InvalidValue):
    """An invalid body of a loop."""


class Constant:
    """A number, a text or another constant among the leaves: part of the form."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other):
        return (
            isinstance(other, Constant)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self):
        return hash(self.value)

    def __repr__(self):
        return repr(self.value)


def flatten(
    value: Any, leaf: type | tuple[type, ...], other: Callable[[Any, list], Any]
) -> tuple[list, Any]:
    """(the leaves in order, their form).

    other(x, leaves): the form of an x that is neither a leaf nor a list; it appends what leaves x
    stands for, or raises.
    """
    leaves: list = []
    return leaves, _form(value, leaf, other, leaves)


def _form(value, leaf, other, leaves: list) -> Any:
    if isinstance(value, leaf):
        leaves.append(value)
        return 0
    if isinstance(value, (list, tuple)):
        return tuple([_form(v, leaf, other, leaves) for v in value])
    return other(value, leaves)


def unflatten(form: Any, leaves: Iterable) -> Any:
    """The leaves put back into a form; all lists are lists."""
    rest = iter(leaves)

    def build(form):
        if form.__class__ is tuple:
            return [build(f) for f in form]
        if form.__class__ is Constant:
            return form.value
        if form > 1:
            return [next(rest) for _ in range(form)]
        return None if form == -1 else next(rest)

    return build(form)


def as_lists(form: Any) -> Any:
    """The form as MXNet writes it: a list for a list; a constant stands for itself."""
    if form.__class__ is tuple:
        return [as_lists(f) for f in form]
    return form.value if form.__class__ is Constant else form


def pair(found: Any, loop: str, wanted: str) -> tuple:
    """The two results of a loop's function. Raises LoopError for anything else."""
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        got = f"{len(found)} things" if isinstance(found, (list, tuple)) else type(found).__name__
        raise LoopError(f"{loop} must return ({wanted}), got {got}\n  fix: return two things")
    return tuple(found)
