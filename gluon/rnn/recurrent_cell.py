"""The base classes of recurrent cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ... import ndarray as nd
from ...engine.error import InvalidType, MXNetError
from ...ndarray.ndarray import NDArray
from ..block import Block
from ..hybrid import HybridBlock
from .sequence import (
    made_state,
    masked,
    merged,
    namespace,
    steps_of,
    zero_state,
)


class RecurrentCell(Block):
    """Base of all cells: `output, states = cell(input, states)`.

    A subclass defines `state_info` and `forward(inputs, states)` (`hybrid_forward` for a
    HybridRecurrentCell).
    """

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Clears what a previous sequence left; call it before stepping over a new one."""
        self._init_counter, self._counter = -1, -1
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Shapes of the states."""
        raise InvalidType(f"{type(self).__name__} must define state_info")

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = nd.zeros, **kwargs: Any
    ) -> list:
        """Initial states. func: makes an array from shape= and **kwargs."""
        self._check_unmodified()
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            name = f"{self.prefix}begin_state_{self._init_counter}"
            states.append(made_state(func, name, (info or {}) | kwargs))
        return states

    def _check_unmodified(self) -> None:
        if self._modified:
            raise MXNetError(
                "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called"
                " directly. Call the modifier cell instead."
            )

    def _states_for(self, steps: list, begin_state) -> list:
        """begin_state, or zeros that fit the first step (N, C)."""
        if begin_state is not None:
            return list(begin_state)
        if isinstance(steps[0], NDArray):
            return self.begin_state(steps[0].shape[0], ctx=steps[0].context, dtype=steps[0].dtype)
        F = namespace(steps)
        return [zero_state(F, steps[0], info["shape"], 0) for info in self.state_info()]

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> Any:
        """Steps over a sequence.

        Args:
            inputs: one array in `layout`, or a list of `length` arrays (N, C).
            begin_state: list of states; default: zeros.
            merge_outputs: True gives one array, False a list of steps, None whichever is available
                (a list).
            valid_length: (N,) lengths of the sequences; later outputs are 0, states are those of
                the last valid step.
        Returns: (outputs, states).
        """
        self.reset()
        steps = steps_of(length, inputs, layout)
        states = self._states_for(steps, begin_state)
        outputs, history = [], []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            history.append(states)
        if valid_length is not None:
            F = namespace(steps)
            states = [
                F.SequenceLast(
                    F.stack(*column, axis=0), valid_length, use_sequence_length=True, axis=0
                )
                for column in zip(*history)
            ]
            return masked(outputs, length, valid_length, layout, merge_outputs), states
        return merged(outputs, layout) if merge_outputs else outputs, states

    def __call__(self, inputs: Any, states: Any) -> Any:
        """(output, new states) of one step; inputs (N, C)."""
        self._counter += 1
        return super().__call__(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """Base of cells that define `hybrid_forward(F, inputs, states, **parameters)`."""

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)


class CellContainer(RecurrentCell):
    """A cell made of its children: its states are theirs, in their order."""

    def state_info(self, batch_size: int = 0) -> list[dict]:
        return [info for cell in cells_of(self) for info in cell.state_info(batch_size)]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = nd.zeros, **kwargs: Any
    ) -> list:
        self._check_unmodified()
        return [s for cell in cells_of(self) for s in cell.begin_state(batch_size, func, **kwargs)]


def cells_of(block: Any) -> list[RecurrentCell]:
    """The cells that a cell has."""
    return [cast(RecurrentCell, child) for child in block._children.values()]
