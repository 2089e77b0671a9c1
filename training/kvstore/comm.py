"""Sums and copies on the communication lanes: they start when their arrays are ready, while the
devices continue with other work.

Of the ready operations, those with higher priority run first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...engine import lib
from ...engine._array import shared
from ...kernels.plan import comm_plan
from ...kernels.record import lookup
from ...ndarray import NDArray
from ...ndarray.functions import add_n
from ...ndarray.launch import copy_into, launch

_ADD, _COPY = lookup("add_n"), lookup("_copy")


@contextmanager
def priority_of(value: int) -> Iterator[None]:
    """Scope: operations that this thread pushes have this priority."""
    before = lib.pl_engine_set_priority(value)
    try:
        yield
    finally:
        lib.pl_engine_set_priority(before)


def in_turn(arrays: list[NDArray], priority: int) -> int:
    """The priority of a sum of arrays. On streams, whose operations are ready before their work is
    done, sums are made in the order of pushing."""
    return 0 if any(a.context.kind.streams for a in arrays) else priority


def total(arrays: list[NDArray], context: Any) -> NDArray:
    """The sum of arrays of any devices on one of them; a single array that is already there is
    returned unchanged."""
    like = arrays[0]._spec
    if (
        len(arrays) == 1
        or like.stype != "default"
        or any(a._spec.type != like.type or a._spec.stype != "default" for a in arrays)
    ):
        here = [a.as_in_context(context) for a in arrays]
        return here[0] if len(here) == 1 else add_n(*here)
    memory = context.memory
    here = [a if a.context.memory == memory else a.as_in_context(context) for a in arrays]
    attrs = _ADD.parse({"num_args": len(here)})
    return launch(comm_plan(_ADD, attrs, [a._spec for a in here], context), here, (), ())[0]


def copy_back(source: NDArray, target: NDArray) -> None:
    """Writes a sum into an array of its shape, on any device; as copy_into does."""
    a, b = source._spec, target._spec
    if source is target:
        return
    if (
        (a.stype, b.stype) != ("default", "default")
        or a.type != b.type
        or a.device.memory != b.device.memory
        or shared([source], [target])
    ):
        copy_into(source, target)
        return
    launch(comm_plan(_COPY, _COPY.parse({}), [a], b.device), [source], (), [target])
