"""Which layer runs: blocks as paths of attribute names from the network, `features.3 (Conv2D)`, as
parameters are named in files (`features.3.weight`)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engine import layers
from ..engine.layers import Layer


def _place(above: Layer | None, path: str, block: Any) -> Layer:
    kind = type(block).__name__
    return layers.made(f"{path} ({kind})" if path else kind, above, path, weakref.ref(block))


def find(block: Any, above: Layer | None) -> Layer:
    """The layer of a block that is called inside another, by its path from the outermost one."""
    place = above
    while place is not None and place.block is not None:
        outer = place.block()
        assert outer is not None  # it is running
        if outer is block:
            return _place(above, place.path, block)
        for key, child in outer._children.items():
            if child is block:
                return _place(above, f"{place.path}.{key}" if place.path else key, block)
        place = place.above
    inside = above is not None and above.block is not None
    return _place(above, block.name if inside else "", block)


@contextmanager
def top(block: Any) -> Iterator[None]:
    """Inside, block is the network from which paths begin: a trace serves wherever its block
    stands."""
    layers.watch(True)
    before = layers.enter(_place(None, "", block))
    try:
        yield
    finally:
        layers.enter(before)
        layers.watch(False)
