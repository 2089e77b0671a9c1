"""Optimizer states of "dist_async" servers as one file, that of a store of one process: joined from
the parts that servers have, and cut for as many servers as there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...ndarray.autograd import pause
from ...ndarray.functions import concat
from ..optimizer.updater import Updater, described, each, from_description
from .base import StoreError


class Place(NamedTuple):
    """Where a weight is. parts: (server, from element, to element)."""

    shape: tuple[int, ...]
    dtype: str
    parts: list[tuple[int, int, int]]
    stype: str = "default"


def joined(
    contents: Mapping[int, bytes], optimizer: Any, places: Mapping[Any, Place], dump: bool
) -> bytes:
    """The states of whole weights. contents: of each server. dump: with the optimizer's numbers,
    those of the server that has counted most, and all counts."""
    found: dict[int, Updater] = {}
    for server, content in contents.items():
        found[server] = Updater(from_description(described(optimizer)))
        found[server].set_states(content)
    made = max(found.values(), key=lambda one: one.optimizer.num_update)
    for one in found.values():
        for device, counts in one.optimizer._all_index_update_counts.items():
            made.optimizer._all_index_update_counts.setdefault(device, {}).update(counts)
    whole = {}
    with pause():
        for key, place in places.items():
            states = [found[server].states.get(key) for server, *_ in place.parts]
            if key not in found[place.parts[0][0]].states:  # no update yet
                continue
            whole[key] = states[0]
            if len(states) > 1:
                whole[key] = each(
                    lambda *parts, to=place.shape: concat(*parts, dim=0).reshape(to), *states
                )
    made.states = whole
    return made.get_states(dump)


def cut(
    content: bytes, optimizer: Any, places: Mapping[Any, Place], servers: Sequence[int]
) -> dict[int, bytes]:
    """What each server gets of a file's states. Sets the optimizer's numbers and counts, if the
    file has them. Raises StoreError for states of other weights."""
    read = Updater(optimizer)
    with_optimizer = read.set_states(content)
    by_server: dict[int, dict] = {server: {} for server in servers}
    with pause():
        for key, state in read.states.items():
            if key not in places:
                raise StoreError(f"the states are of key {key!r}, which the store does not have")
            place = places[key]
            for server, start, stop in place.parts:
                by_server[server][key] = state
                if len(place.parts) > 1:
                    by_server[server][key] = each(
                        lambda a, i=start, j=stop: a.reshape((-1,))[i:j], state
                    )
    made = {}
    for server, states in by_server.items():
        read.states = states
        made[server] = read.get_states(with_optimizer)
    return made
