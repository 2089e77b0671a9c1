"""Cells that modify another cell, or combine two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ndarray as nd
from ...engine.error import InvalidValue, MissingMethod, MXNetError
from .recurrent_cell import CellContainer, HybridRecurrentCell, cells_of
from .sequence import (
    device_of,
    masked,
    merged,
    namespace,
    reversed_steps,
    steps_of,
)


class DropoutCell(HybridRecurrentCell):
    """Dropout on the input, while training. rate: probability; axes: along which the mask is
    shared."""

    def __init__(
        self,
        rate: float,
        axes: int | Sequence[int] = (),
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix, params)
        if not 0 <= rate <= 1:
            raise InvalidValue(f"DropoutCell: rate must be a number in [0, 1], got {rate}")
        self._rate, self._axes = rate, axes

    def __repr__(self):
        return f"DropoutCell(rate={self._rate}, axes={self._axes})"

    def _alias(self):
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[Any]:
        return []

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        if self._rate > 0:
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> Any:
        if isinstance(inputs, (list, tuple)):
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()  # one operator with one mask for the whole array
        output, states = self.hybrid_forward(namespace(inputs), inputs, begin_state or [])
        return steps_of(length, output, layout) if merge_outputs is False else output, states


class ModifierCell(HybridRecurrentCell):
    """Base of cells that modify another cell; they share its parameters and states."""

    def __init__(self, base_cell: Any):
        if base_cell._modified:
            raise MXNetError(
                f"Cell {base_cell.name} is already modified. One cell cannot be modified twice"
            )
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> Any:
        return self.base_cell.state_info(batch_size)

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = nd.zeros, **kwargs: Any
    ) -> Any:
        with _unmodified(self.base_cell):
            return self.base_cell.begin_state(batch_size=batch_size, func=func, **kwargs)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_cell})"


class _unmodified:
    """Scope in which the modified cell can be called directly."""

    def __init__(self, cell: Any):
        self._cell = cell

    def __enter__(self):
        self._cell._modified = False

    def __exit__(self, *error):
        self._cell._modified = True


class ZoneoutCell(ModifierCell):
    """While training, keeps old values of outputs and states with the given probabilities. Source:
    Krueger et al. 2016."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        if isinstance(base_cell, BidirectionalCell):
            raise MXNetError(
                "BidirectionalCell doesn't support zoneout since it doesn't support step. Please"
                " add ZoneoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states
        self._prev_outputs: dict = {}  # by device

    def __repr__(self):
        return (
            f"ZoneoutCell(p_out={self.zoneout_outputs}, p_state={self.zoneout_states},"
            f" {self.base_cell})"
        )

    def _alias(self):
        return "zoneout"

    def reset(self) -> None:
        super().reset()
        self._prev_outputs = {}

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        new_output, new_states = self.base_cell(inputs, states)

        def mixed(rate, new, old):
            return F.where(F.Dropout(F.ones_like(new), p=rate), new, old) if rate else new

        device = device_of(new_output)
        old = self._prev_outputs.get(device)
        old = F.zeros_like(new_output) if old is None else old
        output = mixed(self.zoneout_outputs, new_output, old)
        new_states = [mixed(self.zoneout_states, new, old) for new, old in zip(new_states, states)]
        self._prev_outputs[device] = output
        return output, new_states


class ResidualCell(ModifierCell):
    """Adds the input to the output. Source: Wu et al. 2016."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{self._counter}_fwd"), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> Any:
        self.reset()
        with _unmodified(self.base_cell):
            outputs, states = self.base_cell.unroll(
                length, inputs, begin_state, layout, merge_outputs, valid_length
            )
        as_list = isinstance(outputs, (list, tuple))
        if valid_length is not None:
            inputs = masked(inputs, length, valid_length, layout, not as_list)
        if as_list:
            return [o + i for o, i in zip(outputs, steps_of(length, inputs, layout))], states
        return outputs + merged(inputs, layout), states


class BidirectionalCell(CellContainer, HybridRecurrentCell):
    """One cell forwards and one backwards over a sequence; outputs are concatenated. It can be
    unrolled, not stepped."""

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_"):
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise MissingMethod("Bidirectional cannot be stepped. Please use unroll")

    def __repr__(self):
        return (
            f"BidirectionalCell(forward={self._children['l_cell']},"
            f" backward={self._children['r_cell']})"
        )

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> Any:
        self.reset()
        steps = steps_of(length, inputs, layout)
        F = namespace(steps)
        states = self._states_for(steps, begin_state)
        left, right = cells_of(self)
        n = len(left.state_info())
        l_outputs, l_states = left.unroll(length, steps, states[:n], layout, False, valid_length)
        r_outputs, r_states = right.unroll(
            length, reversed_steps(steps, valid_length), states[n:], layout, False, valid_length
        )
        r_outputs = reversed_steps(r_outputs, valid_length)
        outputs = [
            F.concat(a, b, dim=1, name=f"{self._output_prefix}t{i}")
            for i, (a, b) in enumerate(zip(l_outputs, r_outputs))
        ]
        if valid_length is not None:
            outputs = masked(outputs, length, valid_length, layout, merge_outputs)
        elif merge_outputs:
            outputs = merged(outputs, layout)
        return outputs, l_states + r_states
