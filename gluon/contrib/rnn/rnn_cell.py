"""LSTM with projection, variational dropout, and unrolling by a loop operator."""

from __future__ import annotations

from typing import Any

from ....engine.error import MXNetError
from ....training.initializer import Initializer
from ...parameter import Parameter
from ...rnn.rnn_cell import BidirectionalCell, HybridRecurrentCell, ModifierCell
from ...rnn.sequence import device_of, masked, merged, namespace, steps_of

__all__ = ["VariationalDropoutCell", "LSTMPCell"]


class VariationalDropoutCell(ModifierCell):
    """Dropout with one mask for all steps of a sequence, on a cell's inputs, first state and
    outputs. When stepping manually, call `reset()` before each sequence to draw new masks.

    drop_inputs, drop_states, drop_outputs: probabilities; 0 for none.
    Source: Gal and Ghahramani 2015, arXiv:1512.05287.
    """

    def __init__(
        self,
        base_cell: Any,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ):
        inside = (base_cell, *base_cell._children.values())
        if drop_states and any(isinstance(cell, BidirectionalCell) for cell in inside):
            raise StateDropoutError(
                "BidirectionalCell doesn't support variational state dropout. Please add"
                " VariationalDropoutCell to the cells underneath instead."
            )
        super().__init__(base_cell)
        self.drop_inputs, self.drop_states, self.drop_outputs = (
            drop_inputs,
            drop_states,
            drop_outputs,
        )

    def _alias(self):
        return "vardrop"

    def reset(self) -> None:
        super().reset()
        self._masks: dict[tuple[str, Any], Any] = {}

    def _dropped(self, F, x, which: str, rate: float):
        """x times this sequence's mask of its kind, on x's device."""
        if not rate:
            return x
        key = which, device_of(x)
        if key not in self._masks:
            self._masks[key] = F.Dropout(F.ones_like(x), p=rate)
        return x * self._masks[key]

    def _mask(self, which: str):
        """The mask that was drawn first, if there is one per device."""
        return next((mask for (kind, _), mask in self._masks.items() if kind == which), None)

    drop_inputs_mask = property(lambda self: self._mask("inputs"))
    drop_states_mask = property(lambda self: self._mask("states"))
    drop_outputs_mask = property(lambda self: self._mask("outputs"))

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        states = [self._dropped(F, states[0], "states", self.drop_states), *states[1:]]
        inputs = self._dropped(F, inputs, "inputs", self.drop_inputs)
        output, states = self.base_cell(inputs, states)
        return self._dropped(F, output, "outputs", self.drop_outputs), states

    def __repr__(self):
        return f"VariationalDropoutCell(p_out = {self.drop_outputs}, p_state = {self.drop_states})"

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> Any:
        if self.drop_states:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()  # masks of inputs and outputs apply to the whole array at once
        axis = layout.find("T")
        states = self._states_for(steps_of(length, inputs, layout), begin_state)
        F, data = namespace(inputs), merged(inputs, layout)
        if self.drop_inputs:
            data = F.Dropout(data, p=self.drop_inputs, axes=(axis,))
        outputs, states = self.base_cell.unroll(length, data, states, layout, True, valid_length)
        if self.drop_outputs:
            outputs = F.Dropout(outputs, p=self.drop_outputs, axes=(axis,))
        if valid_length is not None:
            return masked(outputs, length, valid_length, layout, merge_outputs), states
        return steps_of(length, outputs, layout) if merge_outputs is False else outputs, states


class StateDropoutError(MXNetError, AssertionError):
    """Variational dropout of the states of a cell that cannot be stepped."""


class LSTMPCell(HybridRecurrentCell):
    """LSTM cell whose output is projected to projection_size; states are [r, c]: the projected
    output and the cell, of hidden_size.

    Source: Sak et al. 2014, arXiv:1402.1128.
    """

    i2h_weight: Parameter
    h2r_weight: Parameter
    size_argument = "input_size"

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        h2r_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._projection_size = hidden_size, projection_size
        self._input_size = input_size
        rows = 4 * hidden_size
        for name, shape, init in (
            ("i2h_weight", (rows, input_size), i2h_weight_initializer),
            ("h2h_weight", (rows, projection_size), h2h_weight_initializer),
            ("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer),
            ("i2h_bias", (rows,), i2h_bias_initializer),
            ("h2h_bias", (rows,), h2h_bias_initializer),
        ):
            parameter = self.params.get(name, shape=shape, init=init, allow_deferred_init=True)
            setattr(self, name, parameter)

    def state_info(self, batch_size: int = 0) -> list[Any]:
        return [
            {"shape": (batch_size, size), "__layout__": "NC"}
            for size in (self._projection_size, self._hidden_size)
        ]

    def _alias(self):
        return "lstmp"

    def __repr__(self):
        shape, projected = self.i2h_weight._sizes(), self.h2r_weight._sizes()[0]
        return f"LSTMPCell({shape[1] or None} -> {shape[0]} -> {projected})"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        h2r_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        name, rows = f"t{self._counter}_", 4 * self._hidden_size
        i2h = F.FullyConnected(inputs, i2h_weight, i2h_bias, num_hidden=rows, name=name + "i2h")
        h2h = F.FullyConnected(states[0], h2h_weight, h2h_bias, num_hidden=rows, name=name + "h2h")
        i, f, c, o = F.SliceChannel(i2h + h2h, num_outputs=4, name=name + "slice")
        i, f = F.sigmoid(i, name=name + "i"), F.sigmoid(f, name=name + "f")
        c, o = F.tanh(c, name=name + "c"), F.sigmoid(o, name=name + "o")
        cell = F.elemwise_add(f * states[1], i * c, name=name + "state")
        hidden = F.elemwise_mul(o, F.tanh(cell), name=name + "hidden")
        output = F.FullyConnected(
            hidden, h2r_weight, no_bias=True, num_hidden=self._projection_size, name=name + "out"
        )
        return output, [output, cell]


def dynamic_unroll(
    cell: Any,
    inputs: Any,
    begin_state: Any,
    drop_inputs: int = 0,
    drop_outputs: int = 0,
    layout: str = "TNC",
    valid_length: Any = None,
) -> Any:
    """Steps a cell over a sequence of any length by the loop operator `foreach`.

    Args:
        inputs: one array in `layout`. begin_state: list of states.
        drop_inputs, drop_outputs: rates of dropout with one mask for all steps.
        valid_length: (N,) lengths; later outputs are 0, states are those of the last valid step.
    Returns: (outputs in `layout`, states).
    """
    F, axis = namespace(inputs), layout.find("T")
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(axis,))
    if axis:
        inputs = F.swapaxes(inputs, dim1=0, dim2=axis)
    states = list(begin_state)
    n = len(states)

    def step(x, states):
        output, new = cell(x, states[:n])
        if valid_length is None:
            return output, new
        alive = F.broadcast_greater(valid_length, states[n])
        return output, [*[F.where(alive, a, b) for a, b in zip(new, states)], states[n] + 1]

    if valid_length is not None:
        states.append(F.zeros((1,)))
    outputs, states = F.contrib.foreach(step, inputs, states)
    if axis:
        outputs = F.swapaxes(outputs, dim1=0, dim2=axis)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(axis,))
    if valid_length is not None:
        outputs = F.SequenceMask(outputs, valid_length, use_sequence_length=True, axis=axis)
    return outputs, states[:n]
