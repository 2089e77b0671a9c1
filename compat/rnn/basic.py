"""Symbolic cells with dense products: RNN, LSTM, GRU."""

from __future__ import annotations

from typing import Any

from ... import symbol
from ...training import initializer as init
from .base import BaseRNNCell, gates_of, sigmoid, vector_state


class _DenseCell(BaseRNNCell):
    def __init__(self, num_hidden: Any, prefix: str, params: Any, **bias: Any):
        super().__init__(prefix=prefix, params=params)
        self._num_hidden = num_hidden
        self._iW, self._hW = self.params.get("i2h_weight"), self.params.get("h2h_weight")
        self._iB, self._hB = self.params.get("i2h_bias", **bias), self.params.get("h2h_bias")

    @property
    def state_info(self) -> list[Any]:
        return [vector_state(self._num_hidden)]

    def _products(self, inputs, state, name: str):
        n = self._num_hidden * len(self._gate_names)
        return (
            symbol.FullyConnected(inputs, self._iW, self._iB, num_hidden=n, name=f"{name}i2h"),
            symbol.FullyConnected(state, self._hW, self._hB, num_hidden=n, name=f"{name}h2h"),
        )


class RNNCell(_DenseCell):
    """h = activation(W_i x + b_i + W_h h + b_h). activation: tanh, relu ..., or a function of a
    Symbol and a name."""

    def __init__(
        self, num_hidden: Any, activation: str = "tanh", prefix: str = "rnn_", params: Any = None
    ):
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    @property
    def _gate_names(self):
        return ("",)

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(_DenseCell):
    """Long short-term memory; states h and c. forget_bias: initial bias of the forget gate. Source:
    Hochreiter and Schmidhuber 1997; Jozefowicz et al. 2015."""

    def __init__(
        self, num_hidden: Any, prefix: str = "lstm_", params: Any = None, forget_bias: float = 1.0
    ):
        super().__init__(num_hidden, prefix, params, init=init.LSTMBias(forget_bias=forget_bias))

    @property
    def state_info(self) -> list[Any]:
        return [vector_state(self._num_hidden), vector_state(self._num_hidden)]

    @property
    def _gate_names(self):
        return ["_i", "_f", "_c", "_o"]

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], name)
        i, f, c, o = gates_of(i2h + h2h, 4, f"{name}slice")
        return lstm_step(
            sigmoid(i, f"{name}i"),
            sigmoid(f, f"{name}f"),
            symbol.Activation(c, act_type="tanh", name=f"{name}c"),
            lambda: sigmoid(o, f"{name}o"),
            states[1],
            lambda c: symbol.Activation(c, act_type="tanh"),
            name,
        )


def lstm_step(i: Any, f: Any, c: Any, make_o: Any, before: Any, activation: Any, name: str) -> Any:
    """(output, states) of an LSTM from its gates."""
    o = make_o()
    next_c = symbol._internal._plus(f * before, i * c, name=f"{name}state")
    next_h = symbol._internal._mul(o, activation(next_c), name=f"{name}out")
    return next_h, [next_h, next_c]


class GRUCell(_DenseCell):
    """Gated recurrent unit, in cuDNN's variant. Source: Cho et al. 2014."""

    def __init__(self, num_hidden: Any, prefix: str = "gru_", params: Any = None):
        super().__init__(num_hidden, prefix, params)

    @property
    def _gate_names(self):
        return ["_r", "_z", "_o"]

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._products(inputs, states[0], f"{name}_")

        def activation(x, name):
            return symbol.Activation(x, act_type="tanh", name=name)

        return gru_step(i2h, h2h, states[0], activation, name)


def gru_step(i2h: Any, h2h: Any, before: Any, activation: Any, name: str) -> Any:
    """(output, states) of a GRU from its products."""
    i2h_r, i2h_z, i2h = gates_of(i2h, 3, f"{name}_i2h_slice")
    h2h_r, h2h_z, h2h = gates_of(h2h, 3, f"{name}_h2h_slice")
    reset = sigmoid(i2h_r + h2h_r, f"{name}_r_act")
    update = sigmoid(i2h_z + h2h_z, f"{name}_z_act")
    made = activation(i2h + reset * h2h, name=f"{name}_h_act")
    next_h = symbol._internal._plus((1.0 - update) * made, update * before, name=f"{name}out")
    return next_h, [next_h]
