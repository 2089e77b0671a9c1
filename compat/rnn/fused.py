"""The symbolic cell of all layers and steps in one operator, sym.RNN."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

from ... import ndarray as nd
from ... import symbol
from ...engine.error import InvalidValue, MissingMethod
from ...symbol.symbol import Symbol
from ...training import initializer as init
from .base import BaseRNNCell, CellError, normalize
from .basic import GRUCell, LSTMCell, RNNCell
from .stack import BidirectionalCell, DropoutCell, SequentialRNNCell

GATES = {
    "rnn_relu": [""],
    "rnn_tanh": [""],
    "lstm": ["_i", "_f", "_c", "_o"],
    "gru": ["_r", "_z", "_o"],
}


class FusedRNNCell(BaseRNNCell):
    """Layers of recurrent cells that run as one operator over all steps, with one parameter vector.

    mode: rnn_relu, rnn_tanh, lstm or gru. dropout: between layers. get_next_state: does unroll
    return the last states? forget_bias: initial bias of the forget gate.
    """

    def __init__(
        self,
        num_hidden: Any,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: Any = None,
    ):
        if mode not in GATES:
            raise InvalidValue(
                f"FusedRNNCell: mode must be one of {', '.join(GATES)}, got {mode!r}"
            )
        super().__init__(prefix=f"{mode}_" if prefix is None else prefix, params=params)
        self._num_hidden, self._num_layers, self._mode = num_hidden, num_layers, mode
        self._bidirectional, self._dropout = bidirectional, dropout
        self._get_next_state = get_next_state
        self._directions = ["l", "r"] if bidirectional else ["l"]
        start = init.FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self.params.get("parameters", init=start)

    @property
    def state_info(self) -> list[Any]:
        shape = (len(self._directions) * self._num_layers, 0, self._num_hidden)
        return [{"shape": shape, "__layout__": "LNC"} for _ in range(1 + (self._mode == "lstm"))]

    @property
    def _gate_names(self):
        return GATES[self._mode]

    @property
    def _num_gates(self):
        return len(self._gate_names)

    def _slice_weights(self, arr, li, lh):
        """Views of the vector by name. li: size of the input, lh: of the states."""
        shapes: list[tuple[str, tuple[int, ...]]] = []
        b = len(self._directions)
        units = [(layer, d) for layer in range(self._num_layers) for d in self._directions]
        for layer, d in units:
            for group, width in (("i2h", b * lh if layer else li), ("h2h", lh)):
                for gate in self._gate_names:
                    name = f"{self._prefix}{d}{layer}_{group}{gate}_weight"
                    shapes.append((name, (lh, width)))
        for layer, d in units:
            for group in ("i2h", "h2h"):
                for gate in self._gate_names:
                    shapes.append((f"{self._prefix}{d}{layer}_{group}{gate}_bias", (lh,)))
        args, at = {}, 0
        for name, shape in shapes:
            size = prod(shape)
            args[name] = arr[at : at + size].reshape(shape)
            at += size
        if at != arr.size:
            raise CellError("Invalid parameters size for FusedRNNCell")
        return args

    def unpack_weights(self, args: Any) -> Any:
        """A copy of the dict args with an array for each gate instead of the vector."""
        args = args.copy()
        arr = args.pop(self._parameter.name)
        b, h = len(self._directions), self._num_hidden
        rest = (self._num_layers - 1) * (h + b * h + 2)
        num_input = arr.size // b // h // self._num_gates - rest - h - 2
        args.update({k: v.copy() for k, v in self._slice_weights(arr, num_input, h).items()})
        return args

    def pack_weights(self, args: Any) -> Any:
        """The reverse of unpack_weights."""
        args = args.copy()
        b, m, h = len(self._directions), self._num_gates, self._num_hidden
        first = args[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"]
        num_input = first.shape[1]
        total = (num_input + h + 2) * h * m * b
        total += (self._num_layers - 1) * m * h * (h + b * h + 2) * b
        arr = nd.zeros((total,), ctx=first.context, dtype=first.dtype)
        for name, view in self._slice_weights(arr, num_input, h).items():
            view[:] = args.pop(name)
        args[self._parameter.name] = arr
        return args

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise MissingMethod("FusedRNNCell cannot be stepped. Please use unroll")

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """(outputs, last states); states are [] without get_next_state. See BaseRNNCell.unroll."""
        self.reset()
        inputs, axis = normalize(length, inputs, layout, True)
        if axis == 1:
            warnings.warn(
                "NTC layout detected. Consider using TNC for FusedRNNCell for faster speed",
                stacklevel=2,
            )
            inputs = symbol.swapaxes(inputs, dim1=0, dim2=1)
        elif axis != 0:
            raise CellError(f"Unsupported layout {layout}")
        begin = self.begin_state() if begin_state is None else begin_state
        states = dict(zip(("state", "state_cell"), begin[: 1 + (self._mode == "lstm")]))
        made = symbol.RNN(
            data=inputs,
            parameters=self._parameter,
            state_size=self._num_hidden,
            num_layers=self._num_layers,
            bidirectional=self._bidirectional,
            p=self._dropout,
            state_outputs=self._get_next_state,
            mode=self._mode,
            name=self._prefix + "rnn",
            **states,
        )
        parts = [Symbol([v]) for v in made._outputs]
        outputs, last = (parts[0], parts[1:]) if self._get_next_state else (made, [])
        for s in last:
            s._set_attr(__layout__="LNC")
        if axis == 1:
            outputs = symbol.swapaxes(outputs, dim1=0, dim2=1)
        return normalize(length, outputs, layout, merge_outputs)[0], last

    def unfuse(self) -> Any:
        """The same layers as a SequentialRNNCell of cells that can be stepped; pack_weights and
        unpack_weights convert the parameters."""
        make = {
            "rnn_relu": lambda prefix: RNNCell(self._num_hidden, activation="relu", prefix=prefix),
            "rnn_tanh": lambda prefix: RNNCell(self._num_hidden, activation="tanh", prefix=prefix),
            "lstm": lambda prefix: LSTMCell(self._num_hidden, prefix=prefix),
            "gru": lambda prefix: GRUCell(self._num_hidden, prefix=prefix),
        }[self._mode]
        stack = SequentialRNNCell()
        for i in range(self._num_layers):
            cells = [make(f"{self._prefix}{d}{i}_") for d in self._directions]
            stack.add(
                BidirectionalCell(cells[0], cells[1], output_prefix=f"{self._prefix}bi_l{i}_")
                if self._bidirectional
                else cells[0]
            )
            if self._dropout > 0 and i != self._num_layers - 1:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{i}_"))
        return stack
