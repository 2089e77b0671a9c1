"""Layers inside a network, replaced by others that take their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .block import Block
from .hybrid import HybridBlock
from .trace import blocks_of


def replace_layers(net: Block, kinds: tuple[type, ...], make: Callable[[Any], Block | None]) -> int:
    """Puts make(layer) in the place of each layer of exactly these classes inside net, None: the
    layer stays. Makes all of them before any is replaced; one that stands in several places is made
    once. Returns how many there are."""
    found = [
        (block, name, child)
        for block in blocks_of(net)
        for name, child in block._children.items()
        if type(child) in kinds
    ]
    made: dict[Block, Block | None] = {}
    for _, _, child in found:
        if child not in made:
            made[child] = make(child)
    for block, name, child in found:
        new = made[child]
        if new is None:
            continue
        if block.__dict__.get(name) is child:
            setattr(block, name, new)
        else:
            block.register_child(new, name)
    for block in blocks_of(net):
        if isinstance(block, HybridBlock):
            block._clear_traces()
    return sum(new is not None for new in made.values())


def share_parameters(new: Block, layer: Block, names: tuple[str, ...]) -> None:
    """Gives a layer the parameters of another, under these names."""
    for name in names:
        parameter = getattr(layer, name, None)
        if parameter is not None:
            new.params._params[parameter.name] = parameter
            new._reg_params[name] = parameter
        object.__setattr__(new, name, parameter)
