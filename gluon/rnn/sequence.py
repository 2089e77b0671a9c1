"""Sequences as one array or as a list of steps, and zero states that fit them; for arrays and
symbols."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ... import ndarray as nd
from ...engine.error import MXNetError, ShapeError
from ...ndarray.ndarray import NDArray
from ...ndarray.numpy_mode import in_mode


def namespace(x: Any) -> Any:
    """nd or sym, by the type of the value (or the first of a list)."""
    while isinstance(x, (list, tuple)):
        x = x[0]
    if isinstance(x, NDArray):
        return nd
    from ... import symbol

    return symbol


def device_of(x: Any) -> Any:
    """The device of an array, for what a cell keeps from step to step; None: of a symbol."""
    return x.context if isinstance(x, NDArray) else None


def steps_of(length: int, inputs: Any, layout: str) -> list:
    """The steps of a sequence: a list as it is, an array cut along T. Raises ShapeError if there
    are not `length`."""
    if isinstance(inputs, (list, tuple)):
        if len(inputs) != length:
            raise ShapeError(
                "unroll", f"inputs must have length = {length} steps, got {len(inputs)}"
            )
        return list(inputs)
    axis = layout.find("T")
    if isinstance(inputs, NDArray) and inputs.shape[axis] != length:
        raise ShapeError(
            "unroll",
            f"inputs must have length = {length} steps on axis {axis} (layout {layout}), got "
            f"shape {inputs.shape}",
        )
    steps = namespace(inputs).split(inputs, axis=axis, num_outputs=length, squeeze_axis=1)
    return [steps] if length == 1 else list(steps)


def merged(inputs: Any, layout: str) -> Any:
    """A sequence as one array."""
    if isinstance(inputs, (list, tuple)):
        return namespace(inputs).stack(*inputs, axis=layout.find("T"))
    return inputs


def check_layout(layout: str) -> None:
    if sorted(layout) != ["C", "N", "T"] or layout.find("C") != 2:
        raise MXNetError(f"layout must be 'TNC' or 'NTC', got {layout!r}")


def masked(outputs: Any, length: int, valid_length: Any, layout: str, merge: bool | None) -> Any:
    """Zeroes steps from valid_length (batch,) on; a list of steps if merge is False, else one
    array."""
    F, axis = namespace(outputs), layout.find("T")
    data = F.SequenceMask(
        merged(outputs, layout), valid_length, use_sequence_length=True, axis=axis
    )
    return steps_of(length, data, layout) if merge is False else data


def reversed_steps(steps: list, valid_length: Any) -> list:
    """The steps backwards; with valid_length each sequence within its own length."""
    if valid_length is None:
        return list(reversed(steps))
    F = namespace(steps)
    back = F.SequenceReverse(F.stack(*steps, axis=0), valid_length, use_sequence_length=True)
    return steps_of(len(steps), back, "TNC")


def made_state(func: Callable[..., Any], name: str, info: dict) -> Any:
    """A state that func makes, of the class of the mode. Functions of mx.np have no `name`."""
    given = {"name": name, **info}
    if func is not nd.zeros:
        taken = inspect.signature(func).parameters
        if not any([p.kind is p.VAR_KEYWORD for p in taken.values()]):
            given = {k: v for k, v in given.items() if k in taken}
    return in_mode(func(**given))


def zero_state(F: Any, step: Any, shape: tuple[int, ...], batch_axis: int) -> Any:
    """Zeros of `shape`, with the batch size of the symbol `step` (N, C) on batch_axis, unknown
    until it is bound."""
    column = F.zeros_like(F.slice_axis(step, axis=1, begin=0, end=1))
    ones = [1] * len(shape)
    column = F.reshape(column, shape=(*ones[:batch_axis], -1, *ones[batch_axis + 1 :]))
    for axis, size in enumerate(shape):
        if axis != batch_axis:
            column = F.broadcast_axis(column, axis=axis, size=size)
    return column
