"""Recurrent layers RNN, LSTM, GRU: all layers and directions over the whole sequence as one fused
operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ndarray as nd
from ...engine.error import InvalidValue, MXNetError, ShapeError
from ...kernels.record import dtype_name
from ...kernels.spec import DType
from ...ndarray.ndarray import NDArray
from ...training.initializer import Initializer
from ..hybrid import HybridBlock
from ..parameter import Parameter
from . import rnn_cell
from .sequence import check_layout, made_state, zero_state

__all__ = ["RNN", "LSTM", "GRU"]


class _RNNLayer(HybridBlock):
    """What the recurrent layers have in common. `gates`: blocks of rows of the weights; `n_states`:
    LSTM has two."""

    l0_i2h_weight: Parameter
    _cell: Callable[[str, int], rnn_cell.HybridRecurrentCell]  # a layer of one direction as a cell
    size_argument = "input_size"
    gates, n_states = 1, 1

    def __init__(
        self,
        hidden_size: int,
        num_layers: int,
        layout: str,
        dropout: float,
        bidirectional: Any,
        input_size: int,
        initializers: Any,
        mode: Any,
        dtype: DType,
        projection_size: int | None = None,
        state_clip_min: Any = None,
        state_clip_max: Any = None,
        state_clip_nan: bool = False,
        use_sequence_length: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_layout(layout)
        self._hidden_size, self._num_layers, self._mode, self._layout = (
            hidden_size,
            num_layers,
            mode,
            layout,
        )
        self._dropout, self._directions, self._input_size = (
            dropout,
            ["l", "r"] if bidirectional else ["l"],
            input_size,
        )
        self._projection_size, self._dtype = projection_size, dtype_name(dtype)
        self._use_sequence_length = use_sequence_length
        self._clip = (
            {}
            if mode != "lstm"
            else {
                "lstm_state_clip_min": state_clip_min,
                "lstm_state_clip_max": state_clip_max,
                "lstm_state_clip_nan": state_clip_nan,
            }
        )
        self._initializers = initializers
        rows, out = self.gates * hidden_size, projection_size or hidden_size
        with self.name_scope():
            for layer in range(num_layers):
                for d in self._directions:
                    shapes = {
                        "i2h_weight": (rows, self._inputs_of(layer)),
                        "h2h_weight": (rows, out),
                        "i2h_bias": (rows,),
                        "h2h_bias": (rows,),
                    }
                    if projection_size:
                        shapes["h2r_weight"] = (projection_size, hidden_size)
                    for name, shape in shapes.items():
                        full = f"{d}{layer}_{name}"
                        setattr(
                            self,
                            full,
                            self.params.get(
                                full,
                                shape=shape,
                                init=initializers[name],
                                dtype=dtype,
                                allow_deferred_init=True,
                            ),
                        )

    def _inputs_of(self, layer: int) -> int:
        """The number of inputs of a layer; 0 is unknown."""
        if layer == 0:
            return self._input_size
        return (self._projection_size or self._hidden_size) * len(self._directions)

    def _parameter_names(self):
        """In the order of the operator's parameter vector: all weights, then all biases."""
        weights = ["i2h_weight", "h2h_weight"] + (["h2r_weight"] if self._projection_size else [])
        for names in (weights, ["i2h_bias", "h2h_bias"]):
            for layer in range(self._num_layers):
                for d in self._directions:
                    yield from (f"{d}{layer}_{name}" for name in names)

    def __repr__(self):
        more = [f"num_layers={self._num_layers}"] if self._num_layers != 1 else []
        more += [f"dropout={self._dropout}"] if self._dropout else []
        more += ["bidirectional"] if len(self._directions) == 2 else []
        n_in = self.l0_i2h_weight._sizes()[1]
        sizes = f"{n_in or None} -> {self._hidden_size}"
        return f"{type(self).__name__}({', '.join([sizes, self._layout, *more])})"

    def cast(self, dtype: DType) -> None:
        super().cast(dtype)
        self._dtype = dtype_name(dtype)

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Shapes of the states: (layers * directions, batch, size), and their dtype."""
        n = self._num_layers * len(self._directions)
        sizes = [self._projection_size or self._hidden_size, self._hidden_size][: self.n_states]
        return [
            {"shape": (n, batch_size, size), "__layout__": "LNC", "dtype": self._dtype}
            for size in sizes
        ]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = nd.zeros, **kwargs: Any
    ) -> list:
        """Initial states. func: makes an array from shape=, dtype= and **kwargs."""
        return [
            made_state(func, f"{self.prefix}h0_{i}", info | kwargs)
            for i, info in enumerate(self.state_info(batch_size))
        ]

    def __call__(  # type: ignore[override]  # takes keywords, where blocks take none
        self, inputs: Any, states: Any = None, sequence_length: Any = None, **kwargs: Any
    ) -> Any:
        """outputs, or (outputs, new states) when states are given.

        Args:
            inputs: (T, N, C), or (N, T, C) with layout NTC.
            states: array or list of arrays (layers * directions, N, size); default: zeros.
            sequence_length: (N,) integers, with use_sequence_length.
        """
        given = self._arguments(inputs, states, sequence_length)
        outputs, new_states = super().__call__(*given, **kwargs)
        return outputs if states is None else (outputs, new_states)

    def _arguments(self, inputs, states=None, sequence_length=None):
        if self._use_sequence_length and sequence_length is None:
            raise MXNetError(
                f"{type(self).__name__}: sequence_length is needed\n  fix: give it, or set "
                "use_sequence_length=False"
            )
        self._complete_shapes(inputs)
        if isinstance(inputs, NDArray):
            self._check_shapes(inputs, states)
            if states is None:
                states = self.begin_state(
                    inputs.shape[self._layout.find("N")], ctx=inputs.context, dtype=inputs.dtype
                )
        elif states is None:
            from ... import symbol as F

            step = F.squeeze(
                F.slice_axis(inputs, axis=self._layout.find("T"), begin=0, end=1),
                axis=self._layout.find("T"),
            )
            states = [zero_state(F, step, info["shape"], 1) for info in self.state_info()]
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        return inputs, states, *([sequence_length] if self._use_sequence_length else [])

    def _complete_shapes(self, inputs) -> None:
        """Sets the shapes of parameters that depend on the input size; they are packed before the
        operator."""
        if self.l0_i2h_weight._sizes()[1]:  # a trace that asks for no size serves them all
            return
        shape = getattr(inputs, "shape", None)
        if shape is None or len(shape) != 3:
            return
        self._input_size = shape[2]
        for d in self._directions:
            getattr(self, f"{d}0_i2h_weight").shape = (
                self.gates * self._hidden_size,
                self._input_size,
            )

    def _check_shapes(self, inputs, states) -> None:
        if inputs.ndim != 3:
            raise ShapeError(
                type(self).__name__,
                f"data must be {', '.join(self._layout)} (3 axes), got {inputs.shape}",
            )
        if states is None:
            return
        states = states if isinstance(states, (list, tuple)) else [states]
        want = [info["shape"] for info in self.state_info(inputs.shape[self._layout.find("N")])]
        if [tuple(s.shape) for s in states] != want:
            raise ShapeError(
                type(self).__name__,
                f"Invalid recurrent state shape. Expecting {', '.join(map(str, want))}, "
                f"got {', '.join(str(s.shape) for s in states)}",
                fix=f"layer.begin_state(batch_size={want[0][1]})",
            )

    def hybrid_forward(
        self, F: Any, inputs: Any, states: Any, sequence_length: Any = None, **params: Any
    ) -> Any:
        """The operator between the changes of layout. Returns (outputs, list of states)."""
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, dim1=0, dim2=1)
        vector = F._rnn_param_concat(
            *[F.reshape(params[n], shape=(-1,)) for n in self._parameter_names()], dim=0
        )
        more = (
            {}
            if sequence_length is None
            else {"sequence_length": sequence_length, "use_sequence_length": True}
        )
        found = F.RNN(
            inputs,
            vector,
            *states,
            state_size=self._hidden_size,
            num_layers=self._num_layers,
            bidirectional=len(self._directions) == 2,
            p=self._dropout,
            state_outputs=True,
            mode=self._mode,
            projection_size=self._projection_size,
            **self._clip,
            **more,
        )
        outputs, *new_states = found
        if self._layout == "NTC":
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        return outputs, new_states

    def unfuse(self) -> Any:
        """The same network as a HybridSequentialRNNCell that shares this layer's parameters."""
        if self._projection_size:
            raise MXNetError(f"{type(self).__name__}.unfuse: there is no cell with projection")
        stack = rnn_cell.HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        with stack.name_scope():
            for layer in range(self._num_layers):
                cells = [
                    self._cell(f"{d}{layer}_", self._inputs_of(layer)) for d in self._directions
                ]
                stack.add(
                    cells[0] if len(cells) == 1 else rnn_cell.BidirectionalCell(cells[0], cells[1])
                )
                if self._dropout > 0 and layer != self._num_layers - 1:
                    stack.add(rnn_cell.DropoutCell(self._dropout))
        return stack

    _unfuse = unfuse

    def _cell_arguments(self, prefix, input_size) -> dict:
        names = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
        return {f"{n}_initializer": self._initializers[n] for n in names} | {
            "prefix": prefix,
            "input_size": input_size,
        }


def _initializers(i2h_weight, h2h_weight, i2h_bias, h2h_bias, h2r_weight=None) -> dict:
    return {
        "i2h_weight": i2h_weight,
        "h2h_weight": h2h_weight,
        "i2h_bias": i2h_bias,
        "h2h_bias": h2h_bias,
        "h2r_weight": h2r_weight,
    }


class RNN(_RNNLayer):
    """Elman layers: h' = activation(W x + b + U h + c).

    Args:
        hidden_size, num_layers: sizes.
        activation: "relu" or "tanh".
        layout: "TNC" (time, batch, features) or "NTC".
        dropout: probability, on the outputs of each layer but the last, while training.
        bidirectional: each layer runs both ways; outputs are concatenated.
        input_size: number of features; 0: found out by the first forward pass.
    Source: Elman 1990.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        input_size: int = 0,
        dtype: DType = "float32",
        **kwargs: Any,
    ):
        if activation not in ("relu", "tanh"):
            raise InvalidValue(f"RNN: activation must be 'relu' or 'tanh', got {activation!r}")
        self._activation = activation
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            _initializers(
                i2h_weight_initializer,
                h2h_weight_initializer,
                i2h_bias_initializer,
                h2h_bias_initializer,
            ),
            "rnn_" + activation,
            dtype,
            **kwargs,
        )

    def _cell(self, prefix, input_size):
        return rnn_cell.RNNCell(
            self._hidden_size, self._activation, **self._cell_arguments(prefix, input_size)
        )


class LSTM(_RNNLayer):
    """Long short-term memory layers; states are [h, c].

    Args: as RNN, and
        projection_size: h is projected to this size; None: not.
        state_clip_min, state_clip_max, state_clip_nan: limits of c, and whether NaN is clipped too.
        use_sequence_length: calls take sequence_length (N,); later outputs are 0, states stop.
    Source: Hochreiter and Schmidhuber 1997; projection: Sak et al. 2014.
    """

    gates, n_states = 4, 2

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: str | Initializer | None = None,
        state_clip_min: Any = None,
        state_clip_max: Any = None,
        state_clip_nan: bool = False,
        dtype: DType = "float32",
        **kwargs: Any,
    ):
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            _initializers(
                i2h_weight_initializer,
                h2h_weight_initializer,
                i2h_bias_initializer,
                h2h_bias_initializer,
                h2r_weight_initializer,
            ),
            "lstm",
            dtype,
            projection_size,
            state_clip_min,
            state_clip_max,
            state_clip_nan,
            **kwargs,
        )

    def _cell(self, prefix, input_size):
        return rnn_cell.LSTMCell(self._hidden_size, **self._cell_arguments(prefix, input_size))


class GRU(_RNNLayer):
    """Gated recurrent unit layers; arguments as RNN, use_sequence_length as LSTM. Source: Cho et
    al. 2014."""

    gates = 3

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: str | Initializer | None = None,
        h2h_weight_initializer: str | Initializer | None = None,
        i2h_bias_initializer: str | Initializer | None = "zeros",
        h2h_bias_initializer: str | Initializer | None = "zeros",
        dtype: DType = "float32",
        **kwargs: Any,
    ):
        super().__init__(
            hidden_size,
            num_layers,
            layout,
            dropout,
            bidirectional,
            input_size,
            _initializers(
                i2h_weight_initializer,
                h2h_weight_initializer,
                i2h_bias_initializer,
                h2h_bias_initializer,
            ),
            "gru",
            dtype,
            **kwargs,
        )

    def _cell(self, prefix, input_size):
        return rnn_cell.GRUCell(self._hidden_size, **self._cell_arguments(prefix, input_size))
