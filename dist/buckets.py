"""Sums of many arrays over the ranks of a group: small ones share a collective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..kernels.spec import Spec
from ..ndarray import NDArray
from .collectives import all_reduce
from .group import Group
from .schedules import SLICE_BYTES

SMALL_BYTES = 1 << 16  # arrays below it are sent together


def sum_together(
    arrays: Sequence[NDArray],
    group: Group,
    op: str = "sum",
    *,
    names: Sequence[str],
    priorities: Sequence[int] | None = None,
    number: Callable[[list[int]], int] | None = None,
    in_place: bool = False,
) -> list[NDArray]:
    """Dense arrays, each combined over the group, in their order. All ranks call it alike.

    Args:
        op: see all_reduce.
        priorities: of each array; a collective has the highest of its arrays.
        number: of the positions of arrays that share a collective, its id of Group.new_id; for
            sums that are made again and again.
        in_place: writes into the arrays; else returns new ones.
    """
    made = list(arrays)
    if group.size == 1:
        return made
    for some in _shared([a._spec for a in arrays]):
        part = [arrays[i] for i in some]
        label = ", ".join(names[i] for i in some[:3]) + (" ..." if len(some) > 3 else "")
        summed = all_reduce(
            part,
            op,
            out=part if in_place else None,
            group=group,
            name=label,
            key=number(some) if number is not None else None,
            priority=max(priorities[i] for i in some) if priorities is not None else 0,
        )
        for i, a in zip(some, summed):
            made[i] = a
    return made


def _shared(specs: Sequence[Spec]) -> Iterator[list[int]]:
    """Which arrays share a collective: positions. A large one has its own, as it is met; small ones
    wait until some are together."""
    together: list[int] = []
    n_bytes = 0
    for i, s in enumerate(specs):
        if s.nbytes >= SMALL_BYTES:
            yield [i]
            continue
        full = n_bytes + s.nbytes > SLICE_BYTES
        if together and (full or specs[together[0]].dtype != s.dtype):
            yield together
            together, n_bytes = [], 0
        together.append(i)
        n_bytes += s.nbytes
    if together:
        yield together
