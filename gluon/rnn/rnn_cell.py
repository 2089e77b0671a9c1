"""Recurrent cells: one step of a recurrent network, and unrolling over a sequence."""

from __future__ import annotations

from typing import Any

from ...training.initializer import Initializer
from ..parameter import Parameter
from .modifier_cell import BidirectionalCell, DropoutCell, ModifierCell, ResidualCell, ZoneoutCell
from .recurrent_cell import CellContainer, HybridRecurrentCell, RecurrentCell, cells_of
from .sequence import (
    steps_of,
)

__all__ = [
    "RecurrentCell",
    "HybridRecurrentCell",
    "RNNCell",
    "LSTMCell",
    "GRUCell",
    "SequentialRNNCell",
    "HybridSequentialRNNCell",
    "DropoutCell",
    "ModifierCell",
    "ZoneoutCell",
    "ResidualCell",
    "BidirectionalCell",
]


class _BaseCell(HybridRecurrentCell):
    """A cell with weights from the input (i2h) and from the state (h2h)."""

    i2h_weight: Parameter
    size_argument = "input_size"
    gates, n_states = 1, 1

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: str | Initializer | None,
        h2h_weight_initializer: str | Initializer | None,
        i2h_bias_initializer: str | Initializer | None,
        h2h_bias_initializer: str | Initializer | None,
        input_size: int,
        prefix: str | None,
        params: Any,
    ):
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._input_size = hidden_size, input_size
        rows = self.gates * hidden_size
        with self.name_scope():
            for name, shape, init in (
                ("i2h_weight", (rows, input_size), i2h_weight_initializer),
                ("h2h_weight", (rows, hidden_size), h2h_weight_initializer),
                ("i2h_bias", (rows,), i2h_bias_initializer),
                ("h2h_bias", (rows,), h2h_bias_initializer),
            ):
                setattr(
                    self,
                    name,
                    self.params.get(name, shape=shape, init=init, allow_deferred_init=True),
                )

    def state_info(self, batch_size: int = 0) -> list[Any]:
        return [
            {"shape": (batch_size, self._hidden_size), "__layout__": "NC"}
            for _ in range(self.n_states)
        ]

    def _products(self, F, inputs, state, i2h_weight, h2h_weight, i2h_bias, h2h_bias):
        """(input's, state's) contribution to all gates; and the prefix of this step's names."""
        name, n = f"t{self._counter}_", self.gates * self._hidden_size
        i2h = F.FullyConnected(inputs, i2h_weight, i2h_bias, num_hidden=n, name=name + "i2h")
        h2h = F.FullyConnected(state, h2h_weight, h2h_bias, num_hidden=n, name=name + "h2h")
        return i2h, h2h, name

    def __repr__(self):
        shape = self.i2h_weight._sizes()
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}{self._more()})"

    def _more(self) -> str:
        return ""


def activate(F: Any, x: Any, activation: Any, **kwargs: Any) -> Any:
    """An activation given by name, or as a block or function."""
    if not isinstance(activation, str):
        return activation(x)
    if activation in ("tanh", "sigmoid", "relu", "softsign"):
        return getattr(F, activation)(x, **kwargs)
    return F.Activation(x, act_type=activation, **kwargs)


class RNNCell(_BaseCell):
    """Elman cell: h' = activation(W x + b + U h + c). input_size 0: found out by the first call.
    Source: Elman 1990."""

    def __init__(
        self,
        hidden_size: int,
        activation: str = "tanh",
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation = activation

    def _alias(self):
        return "rnn"

    def _more(self):
        return f", {self._activation}"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        i2h, h2h, name = self._products(
            F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias
        )
        output = activate(
            F, F.elemwise_add(i2h, h2h, name=name + "plus0"), self._activation, name=name + "out"
        )
        return output, [output]


class LSTMCell(_BaseCell):
    """Long short-term memory cell; states are [h, c]; rows of the weights: input, forget, cell,
    output.

    Source: Hochreiter and Schmidhuber 1997.
    """

    gates, n_states = 4, 2

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
    ):
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )
        self._activation, self._recurrent_activation = activation, recurrent_activation

    def _alias(self):
        return "lstm"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        i2h, h2h, name = self._products(
            F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias
        )
        gates = F.elemwise_add(i2h, h2h, name=name + "plus0")
        i, f, c, o = F.SliceChannel(gates, num_outputs=4, name=name + "slice")
        i = activate(F, i, self._recurrent_activation, name=name + "i")
        f = activate(F, f, self._recurrent_activation, name=name + "f")
        c = activate(F, c, self._activation, name=name + "c")
        o = activate(F, o, self._recurrent_activation, name=name + "o")
        cell = F.elemwise_add(
            F.elemwise_mul(f, states[1], name=name + "mul0"),
            F.elemwise_mul(i, c, name=name + "mul1"),
            name=name + "state",
        )
        output = F.elemwise_mul(
            o, activate(F, cell, self._activation, name=name + "activation0"), name=name + "out"
        )
        return output, [output, cell]


class GRUCell(_BaseCell):
    """Gated recurrent unit; rows of the weights: reset, update, new. Source: Cho et al. 2014."""

    gates = 3

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(
            hidden_size,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            input_size,
            prefix,
            params,
        )

    def _alias(self):
        return "gru"

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: Any,
        i2h_weight: Any,
        h2h_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> Any:
        i2h, h2h, name = self._products(
            F, inputs, states[0], i2h_weight, h2h_weight, i2h_bias, h2h_bias
        )
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, name=name + "i2h_slice")
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, name=name + "h2h_slice")
        reset = F.sigmoid(F.elemwise_add(i2h_r, h2h_r), name=name + "r_act")
        update = F.sigmoid(F.elemwise_add(i2h_z, h2h_z), name=name + "z_act")
        new = F.tanh(F.elemwise_add(i2h_n, F.elemwise_mul(reset, h2h_n)), name=name + "h_act")
        output = F.elemwise_add(
            F.elemwise_mul(1.0 - update, new), F.elemwise_mul(update, states[0]), name=name + "out"
        )
        return output, [output]


class _CellStack(CellContainer):
    """What the two sequential cells have in common."""

    def __repr__(self):
        lines = [
            f"({key}): {str(cell).replace(chr(10), chr(10) + '  ')}"
            for key, cell in self._children.items()
        ]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def add(self, cell: Any) -> None:
        """Appends a cell."""
        self.register_child(cell)

    def _step(self, inputs, states):
        new_states, at = [], 0
        for cell in cells_of(self):
            n = len(cell.state_info())
            inputs, state = cell(inputs, states[at : at + n])
            at += n
            new_states += state
        return inputs, new_states

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
        states = self._states_for(steps_of(length, inputs, layout), begin_state)
        new_states, at, cells = [], 0, cells_of(self)
        for i, cell in enumerate(cells):
            n = len(cell.state_info())
            inputs, state = cell.unroll(
                length,
                inputs,
                states[at : at + n],
                layout,
                merge_outputs if i == len(cells) - 1 else None,
                valid_length,
            )
            at += n
            new_states += state
        return inputs, new_states

    def __getitem__(self, i):
        return list(self._children.values())[i]

    def __len__(self):
        return len(self._children)


class SequentialRNNCell(_CellStack):
    """Stacked cells."""

    def forward(self, inputs: Any, states: Any) -> Any:
        return self._step(inputs, states)

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        """forward; F is nd or sym, as the inputs."""
        return self._step(inputs, states)


class HybridSequentialRNNCell(_CellStack, HybridRecurrentCell):
    """Stacked hybrid cells."""

    def hybrid_forward(self, F: Any, inputs: Any, states: Any) -> Any:
        return self._step(inputs, states)
