"""What is said of a parameter without a value: why, where it is, what completes it."""

from __future__ import annotations

import weakref
from typing import Any


def deferred(parameter: Any) -> str:
    """Initialization waits for a shape."""
    shape = parameter._shape
    unknown = [i for i, n in enumerate(shape or ()) if n <= 0]
    return (
        f"Parameter '{parameter.name}' has not been initialized yet because initialization was"
        " deferred:"
        f" {'dimension ' + ', '.join(map(str, unknown)) if unknown else 'the rank'} of its"
        f" shape {shape} is unknown until data has passed through the network\n  at:"
        f" {where(parameter)}\n  fix: {shape_fix(parameter)}"
    )


def missing(parameter: Any) -> str:
    """Nobody initialized it."""
    return (
        f"Parameter '{parameter.name}' has not been initialized. Note that you should initialize"
        " parameters and create Trainer with Block.collect_params() instead of Block.params"
        " because the later does not include Parameters of nested child Blocks\n  at:"
        f" {where(parameter)}\n  fix: net.initialize()"
    )


def freed(parameter: Any) -> str:
    """`freeze` keeps what was made of it."""
    return (
        f"Parameter '{parameter.name}' has no value: freeze() kept only what the network's kernels"
        f" read\n  at: {where(parameter)}\n  fix: save or export the network before it is frozen;"
        " net.load_parameters(file) gives the values back and ends the freeze"
    )


def bad_shape(parameter: Any) -> str:
    """Its shape is not known, and must be."""
    return (
        f"Cannot initialize Parameter '{parameter.name}' because it has invalid shape: "
        f"{parameter._shape}.\n  fix: {shape_fix(parameter)}"
    )


def where(parameter: Any) -> str:
    """The block that created it, if that is known."""
    block = _block(parameter)
    if block is None:
        return f'parameter "{parameter.name}"'
    return f'{type(block).__name__} "{block.name}"'


def shape_fix(parameter: Any) -> str:
    """How its shape becomes known."""
    argument = getattr(_block(parameter), "size_argument", None)
    say = "the whole shape, shape=(...)"
    if argument:
        say = f"{argument}=... in the layer {where(parameter)}"
    return f"pass one batch of data through the network (or call net.infer_shape(x)), or give {say}"


def _block(parameter: Any) -> Any:
    return parameter._owner() if parameter._owner is not None else None


def owned(parameter: Any, block: Any) -> None:
    """Stores a weak reference to the first block that registered a parameter, for error
    messages."""
    if parameter._owner is None:
        parameter._owner = weakref.ref(block)
