"""Which layer runs: blocks as paths of attribute names from the network, `features.3 (Conv2D)`, as
parameters are named in files (`features.3.weight`)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engine import layers, lib
from ..engine.layers import Layer, own

_set_layer = lib.pl_profiler_set_layer


class _Place(Layer):
    """A block where it is called: its path from the outermost block. above: where it is called
    from."""

    __slots__ = ("above", "block", "path")

    def __init__(self, above: Layer, path: str, block: Any):
        kind = type(block).__name__
        super().__init__(f"{path} ({kind})" if path else kind)
        self.above, self.path, self.block = above, path, weakref.ref(block)


def _find(block: Any, above: Layer) -> _Place:
    place = above
    while isinstance(place, _Place):
        outer = place.block()
        assert outer is not None  # it is running
        if outer is block:
            return _Place(above, place.path, block)
        for key, child in outer._children.items():
            if child is block:
                return _Place(above, f"{place.path}.{key}" if place.path else key, block)
        place = place.above
    return _Place(above, block.name if isinstance(above, _Place) else "", block)


def call(block: Any, args: tuple) -> Any:
    """block._call(*args), while its operations have its name."""
    inside = own.inside
    above = inside[-1]
    place = block._place  # the last one
    if place is None or place.above is not above:
        place = block.__dict__["_place"] = _find(block, above)
    inside.append(place)  # as layers.enter does, without calls
    _set_layer(place.pointer)
    try:
        return block._call(*args)
    finally:
        inside.pop()
        _set_layer(above.pointer)


@contextmanager
def top(block: Any) -> Iterator[None]:
    """Inside, block is the network from which paths begin: a trace serves wherever its block
    stands."""
    layers.watch(True)
    layers.enter(_Place(layers.named(None), "", block))
    try:
        yield
    finally:
        layers.leave()
        layers.watch(False)
