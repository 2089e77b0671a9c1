"""Which layer runs: blocks as paths of attribute names from the network, `features.3 (Conv2D)`, as
parameters are named in files (`features.3.weight`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engine import layers, lib

_set_layer = lib.pl_profiler_set_layer


class _Place:
    """A block where it is called: its path from the outermost block, and its layer's name. above:
    where it is called from."""

    __slots__ = ("above", "name", "path", "pointer")

    def __init__(self, above: _Place | None, path: str, block: Any):
        kind = type(block).__name__
        self.above, self.path = above, path
        self.name = f"{path} ({kind})" if path else kind
        self.pointer = layers.pointer(self.name)


class _Calls(threading.local):
    def __init__(self) -> None:
        self.running: list[tuple[Any, _Place]] = []  # blocks that this thread is in


_calls = _Calls()


def _find(block: Any, running: list[tuple[Any, _Place]]) -> _Place:
    above = running[-1][1] if running else None
    for outer, place in reversed(running):
        if outer is block:
            return _Place(above, place.path, block)
        for key, child in outer._children.items():
            if child is block:
                return _Place(above, f"{place.path}.{key}" if place.path else key, block)
    return _Place(above, block.name if running else "", block)


def call(block: Any, args: tuple) -> Any:
    """block._call(*args), while its operations have its name."""
    running = _calls.running
    place = block.__dict__.get("_place")  # the last one
    if place is None or place.above is not (running[-1][1] if running else None):
        place = block.__dict__["_place"] = _find(block, running)
    running.append((block, place))
    own = layers.own  # as layers.enter does, without calls
    before, own.name = own.name, place.name
    outer = _set_layer(place.pointer)
    try:
        return block._call(*args)
    finally:
        own.name = before
        _set_layer(outer)
        running.pop()


@contextmanager
def top(block: Any) -> Iterator[None]:
    """Inside, block is the network from which paths begin: a trace serves wherever its block
    stands."""
    running, place = _calls.running, _Place(None, "", block)
    _calls.running = [(block, place)]
    layers.watch(True)
    before = layers.enter(place.name)
    try:
        yield
    finally:
        layers.enter(before)
        layers.watch(False)
        _calls.running = running
