"""Symbolic cells with convolutions: their inputs and states are images."""

from __future__ import annotations

import functools
from typing import Any

from ... import symbol
from .base import BaseRNNCell, CellError, gates_of, sigmoid
from .basic import gru_step, lstm_step

LEAKY = functools.partial(symbol.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(BaseRNNCell):
    """Base of convolutional cells. input_shape: of one step, with the batch: (N, C, H, W) in the
    order of conv_layout. h2h kernels must be odd, so that states keep their size."""

    def __init__(
        self,
        input_shape: Any,
        num_hidden: Any,
        h2h_kernel: Any,
        h2h_dilate: Any,
        i2h_kernel: Any,
        i2h_stride: Any,
        i2h_pad: Any,
        i2h_dilate: Any,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        activation: Any,
        prefix: str = "",
        params: Any = None,
        conv_layout: str = "NCHW",
    ):
        super().__init__(prefix=prefix, params=params)
        if any(k % 2 == 0 for k in h2h_kernel):
            raise CellError(f"Only support odd number, get h2h_kernel= {h2h_kernel}")
        self._h2h = {
            "kernel": h2h_kernel,
            "dilate": h2h_dilate,
            "pad": tuple(d * (k - 1) // 2 for d, k in zip(h2h_dilate, h2h_kernel)),
            "stride": (1,) * len(h2h_kernel),
        }
        self._i2h = {
            "kernel": i2h_kernel,
            "stride": i2h_stride,
            "pad": i2h_pad,
            "dilate": i2h_dilate,
        }
        self._num_hidden, self._input_shape = num_hidden, input_shape
        self._conv_layout, self._activation = conv_layout, activation
        once = symbol.Convolution(
            symbol.Variable("data"), num_filter=num_hidden, layout=conv_layout, **self._i2h
        )
        self._state_shape = (0, *once.infer_shape(data=input_shape)[1][0][1:])
        self._iW = self.params.get("i2h_weight", init=i2h_weight_initializer)
        self._hW = self.params.get("h2h_weight", init=h2h_weight_initializer)
        self._iB = self.params.get("i2h_bias", init=i2h_bias_initializer)
        self._hB = self.params.get("h2h_bias", init=h2h_bias_initializer)

    @property
    def _num_gates(self):
        return len(self._gate_names)

    @property
    def state_info(self) -> list[Any]:
        info = {"shape": self._state_shape, "__layout__": self._conv_layout}
        return [dict(info), dict(info)]

    def _conv_forward(self, inputs, states, name):
        n = self._num_hidden * self._num_gates
        return tuple(
            symbol.Convolution(
                x, w, b, num_filter=n, layout=self._conv_layout, name=name + suffix, **shape
            )
            for x, w, b, suffix, shape in (
                (inputs, self._iW, self._iB, "i2h", self._i2h),
                (states[0], self._hW, self._hB, "h2h", self._h2h),
            )
        )


def _constructor(prefix: str):
    """The __init__ of a cell: MXNet's defaults, and a prefix."""

    def __init__(
        self,
        input_shape,
        num_hidden,
        h2h_kernel=(3, 3),
        h2h_dilate=(1, 1),
        i2h_kernel=(3, 3),
        i2h_stride=(1, 1),
        i2h_pad=(1, 1),
        i2h_dilate=(1, 1),
        i2h_weight_initializer=None,
        h2h_weight_initializer=None,
        i2h_bias_initializer="zeros",
        h2h_bias_initializer="zeros",
        activation=LEAKY,
        prefix=prefix,
        params=None,
        conv_layout="NCHW",
    ):
        BaseConvRNNCell.__init__(
            self,
            input_shape,
            num_hidden,
            h2h_kernel,
            h2h_dilate,
            i2h_kernel,
            i2h_stride,
            i2h_pad,
            i2h_dilate,
            i2h_weight_initializer,
            h2h_weight_initializer,
            i2h_bias_initializer,
            h2h_bias_initializer,
            activation,
            prefix,
            params,
            conv_layout,
        )

    return __init__


class ConvRNNCell(BaseConvRNNCell):
    """The Elman cell with convolutions."""

    __init__ = _constructor("ConvRNN_")

    @property
    def _gate_names(self):
        return ("",)

    @property
    def state_info(self) -> Any:
        return super().state_info[:1]

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._conv_forward(inputs, states, name)
        output = self._get_activation(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """The LSTM with convolutions. Source: Shi et al. 2015, arXiv:1506.04214."""

    __init__ = _constructor("ConvLSTM_")

    @property
    def _gate_names(self):
        return ["_i", "_f", "_c", "_o"]

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._conv_forward(inputs, states, name)
        axis = self._conv_layout.find("C")
        i, f, c, o = gates_of(i2h + h2h, 4, f"{name}slice", axis)
        return lstm_step(
            sigmoid(i, f"{name}i"),
            sigmoid(f, f"{name}f"),
            self._get_activation(c, self._activation, name=f"{name}c"),
            lambda: sigmoid(o, f"{name}o"),
            states[1],
            lambda c: self._get_activation(c, self._activation),
            name,
        )


class ConvGRUCell(BaseConvRNNCell):
    """The GRU with convolutions."""

    __init__ = _constructor("ConvGRU_")

    @property
    def _gate_names(self):
        return ["_r", "_z", "_o"]

    @property
    def state_info(self) -> Any:
        return super().state_info[:1]

    def __call__(self, inputs: Any, states: Any) -> Any:
        name = self._step_name()
        i2h, h2h = self._conv_forward(inputs, states, name)
        activation = functools.partial(self._get_activation, activation=self._activation)
        return gru_step(i2h, h2h, states[0], activation, name)
