"""Recurrent cells with convolutions: the state is a 1D, 2D or 3D image with channels.

Each cell class combines two bases: the step (RNN, LSTM, GRU) and the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine.error import InvalidValue
from ....kernels.record import several
from ....ndarray import NDArray
from ....training.initializer import Initializer
from ...parameter import Parameter
from ...rnn.rnn_cell import HybridRecurrentCell, activate
from ...rnn.sequence import namespace, zero_state

__all__ = [f"Conv{n}D{kind}Cell" for kind in ("RNN", "LSTM", "GRU") for n in (1, 2, 3)]


def _tuple(value, n: int, name: str) -> tuple[int, ...]:
    """A number for each axis, from one number or n of them."""
    values = tuple(several(value, n))
    if len(values) != n:
        raise SettingError(
            f"For {n}D convolution, the convolution settings can only be either int or list/tuple"
            f" of length {n}, got {name}={value!r}"
        )
    return values


class SettingError(InvalidValue, AssertionError):
    """An invalid setting of a cell's convolution."""


class _ConvCell(HybridRecurrentCell):
    """Parameters, shapes and the two convolutions. gates: the number of rows of the weights /
    hidden_channels; n_states: the number of states, all of one shape."""

    i2h_weight: Parameter
    n_axes, gates, n_states = 1, 1, 1

    def _set_up(
        self,
        input_shape,
        hidden_channels,
        i2h_kernel,
        h2h_kernel,
        i2h_pad,
        i2h_dilate,
        h2h_dilate,
        i2h_weight_initializer,
        h2h_weight_initializer,
        i2h_bias_initializer,
        h2h_bias_initializer,
        conv_layout,
        activation,
    ) -> None:
        n = self.n_axes
        i2h_kernel, h2h_kernel = (
            _tuple(i2h_kernel, n, "i2h_kernel"),
            _tuple(h2h_kernel, n, "h2h_kernel"),
        )
        i2h_pad, i2h_dilate = _tuple(i2h_pad, n, "i2h_pad"), _tuple(i2h_dilate, n, "i2h_dilate")
        h2h_dilate = _tuple(h2h_dilate, n, "h2h_dilate")
        if any(k % 2 == 0 for k in h2h_kernel):
            raise SettingError(f"Only support odd number, get h2h_kernel= {h2h_kernel}")
        self._hidden_channels, self._input_shape = hidden_channels, tuple(input_shape)
        self._conv_layout, self._activation = conv_layout, activation
        self._channel_axis = conv_layout.find("C")
        first = self._channel_axis == 1
        in_channels = input_shape[self._channel_axis - 1]
        space = input_shape[1:] if first else input_shape[:-1]
        size = tuple(
            (s + 2 * p - d * (k - 1) - 1) + 1 if s else 0
            for s, k, p, d in zip(space, i2h_kernel, i2h_pad, i2h_dilate)
        )
        self._state_shape = (hidden_channels, *size) if first else (*size, hidden_channels)
        rows = hidden_channels * self.gates
        shared = {"num_filter": rows, "stride": (1,) * n, "layout": conv_layout}
        self._i2h = {**shared, "kernel": i2h_kernel, "pad": i2h_pad, "dilate": i2h_dilate}
        h2h_pad = tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel))
        self._h2h = {**shared, "kernel": h2h_kernel, "pad": h2h_pad, "dilate": h2h_dilate}
        for name, shape, init in (
            ("i2h_weight", _weight(rows, in_channels, i2h_kernel, first), i2h_weight_initializer),
            (
                "h2h_weight",
                _weight(rows, hidden_channels, h2h_kernel, first),
                h2h_weight_initializer,
            ),
            ("i2h_bias", (rows,), i2h_bias_initializer),
            ("h2h_bias", (rows,), h2h_bias_initializer),
        ):
            parameter = self.params.get(name, shape=shape, init=init, allow_deferred_init=True)
            setattr(self, name, parameter)

    def state_info(self, batch_size: int = 0) -> list[Any]:
        return [
            {"shape": (batch_size, *self._state_shape), "__layout__": self._conv_layout}
            for _ in range(self.n_states)
        ]

    def _states_for(self, steps, begin_state):
        F = namespace(steps)
        if begin_state is not None or isinstance(steps[0], NDArray):
            return super()._states_for(steps, begin_state)
        rows = F.Flatten(steps[0])
        return [zero_state(F, rows, info["shape"], 0) for info in self.state_info()]

    def _convolutions(self, F, inputs, state, i2h_weight, h2h_weight, i2h_bias, h2h_bias):
        """(input's, state's) contribution to all gates, and the prefix of this step's names."""
        name = f"t{self._counter}_"
        i2h = F.Convolution(inputs, i2h_weight, i2h_bias, **self._i2h, name=name + "i2h")
        h2h = F.Convolution(state, h2h_weight, h2h_bias, **self._h2h, name=name + "h2h")
        return i2h, h2h, name

    def __repr__(self):
        shape = self.i2h_weight._sizes()
        channels = shape[1 if self._channel_axis == 1 else -1]
        return (
            f"{type(self).__name__}({channels or None} -> {shape[0]}, {self._activation},"
            f" {self._conv_layout})"
        )


def _weight(rows: int, channels: int, kernel, first: bool) -> tuple[int, ...]:
    return (rows, channels, *kernel) if first else (rows, *kernel, channels)


# ---- steps ---------------------------------------------------------------------------------------


class _RNN(_ConvCell):
    """h' = activation(W * x + b + U * h + c)"""

    def _alias(self):
        return "conv_rnn"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **parameters: Any) -> Any:
        i2h, h2h, name = self._convolutions(F, inputs, states[0], **parameters)
        output = activate(F, i2h + h2h, self._activation, name=name + "out")
        return output, [output]


class _LSTM(_ConvCell):
    """States are [h, c]; rows of the weights: input, forget, cell, output."""

    gates, n_states = 4, 2

    def _alias(self):
        return "conv_lstm"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **parameters: Any) -> Any:
        i2h, h2h, name = self._convolutions(F, inputs, states[0], **parameters)
        i, f, c, o = F.SliceChannel(
            i2h + h2h, num_outputs=4, axis=self._channel_axis, name=name + "slice"
        )
        i, f = F.sigmoid(i, name=name + "i"), F.sigmoid(f, name=name + "f")
        c = activate(F, c, self._activation, name=name + "c")
        o = F.sigmoid(o, name=name + "o")
        cell = F.elemwise_add(f * states[1], i * c, name=name + "state")
        output = F.elemwise_mul(o, activate(F, cell, self._activation), name=name + "out")
        return output, [output, cell]


class _GRU(_ConvCell):
    """Rows of the weights: reset, update, new."""

    gates = 3

    def _alias(self):
        return "conv_gru"

    def hybrid_forward(self, F: Any, inputs: Any, states: Any, **parameters: Any) -> Any:
        i2h, h2h, name = self._convolutions(F, inputs, states[0], **parameters)
        axis = self._channel_axis
        i2h_r, i2h_z, i2h_n = F.SliceChannel(i2h, num_outputs=3, axis=axis, name=name + "i2h_slice")
        h2h_r, h2h_z, h2h_n = F.SliceChannel(h2h, num_outputs=3, axis=axis, name=name + "h2h_slice")
        reset = F.sigmoid(i2h_r + h2h_r, name=name + "r_act")
        update = F.sigmoid(i2h_z + h2h_z, name=name + "z_act")
        new = activate(F, i2h_n + reset * h2h_n, self._activation, name=name + "h_act")
        output = F.elemwise_add((1.0 - update) * new, update * states[0], name=name + "out")
        return output, [output]


# ---- dimensions ----------------------------------------------------------------------------------


class _Conv1D(_ConvCell):
    n_axes = 1

    def __init__(
        self,
        input_shape: Any,
        hidden_channels: Any,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: int | Sequence[int] = (0,),
        i2h_dilate: int | Sequence[int] = (1,),
        h2h_dilate: int | Sequence[int] = (1,),
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        conv_layout: str = "NCW",
        activation: str = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._set_up(
            input_shape,
            hidden_channels,
            i2h_kernel,
            h2h_kernel,
            i2h_pad,
            i2h_dilate,
            h2h_dilate,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            conv_layout,
            activation,
        )


class _Conv2D(_ConvCell):
    n_axes = 2

    def __init__(
        self,
        input_shape: Any,
        hidden_channels: Any,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: int | Sequence[int] = (0, 0),
        i2h_dilate: int | Sequence[int] = (1, 1),
        h2h_dilate: int | Sequence[int] = (1, 1),
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        conv_layout: str = "NCHW",
        activation: str = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._set_up(
            input_shape,
            hidden_channels,
            i2h_kernel,
            h2h_kernel,
            i2h_pad,
            i2h_dilate,
            h2h_dilate,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            conv_layout,
            activation,
        )


class _Conv3D(_ConvCell):
    n_axes = 3

    def __init__(
        self,
        input_shape: Any,
        hidden_channels: Any,
        i2h_kernel: Any,
        h2h_kernel: Any,
        i2h_pad: int | Sequence[int] = (0, 0, 0),
        i2h_dilate: int | Sequence[int] = (1, 1, 1),
        h2h_dilate: int | Sequence[int] = (1, 1, 1),
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        conv_layout: str = "NCDHW",
        activation: str = "tanh",
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._set_up(
            input_shape,
            hidden_channels,
            i2h_kernel,
            h2h_kernel,
            i2h_pad,
            i2h_dilate,
            h2h_dilate,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            conv_layout,
            activation,
        )


class Conv1DRNNCell(_RNN, _Conv1D):
    """Elman cell over lines, (N, C, W) a step; see Conv2DRNNCell."""


class Conv2DRNNCell(_RNN, _Conv2D):
    """Elman cell over images, (N, C, H, W) a step: h' = activation(W * x + b + U * h + c), where *
    is a convolution.

    Args:
        input_shape: of a step without the batch, in the order of conv_layout: (C, H, W).
        hidden_channels: channels of the state.
        i2h_kernel, i2h_pad, i2h_dilate: convolution of the input; a number, or one an axis.
        h2h_kernel, h2h_dilate: convolution of the state, padded to keep its size; odd kernels.
        activation: name, block or function.
    Source: Shi et al. 2015, arXiv:1506.04214.
    """


class Conv3DRNNCell(_RNN, _Conv3D):
    """Elman cell over volumes, (N, C, D, H, W) a step; see Conv2DRNNCell."""


class Conv1DLSTMCell(_LSTM, _Conv1D):
    """LSTM cell over lines, (N, C, W) a step; see Conv2DRNNCell. States are [h, c]."""


class Conv2DLSTMCell(_LSTM, _Conv2D):
    """LSTM cell over images, (N, C, H, W) a step; see Conv2DRNNCell. States are [h, c].

    Source: Shi et al. 2015, arXiv:1506.04214.
    """


class Conv3DLSTMCell(_LSTM, _Conv3D):
    """LSTM cell over volumes, (N, C, D, H, W) a step; see Conv2DRNNCell. States are [h, c]."""


class Conv1DGRUCell(_GRU, _Conv1D):
    """GRU cell over lines, (N, C, W) a step; see Conv2DRNNCell."""


class Conv2DGRUCell(_GRU, _Conv2D):
    """GRU cell over images, (N, C, H, W) a step; see Conv2DRNNCell."""


class Conv3DGRUCell(_GRU, _Conv3D):
    """GRU cell over volumes, (N, C, D, H, W) a step; see Conv2DRNNCell."""
