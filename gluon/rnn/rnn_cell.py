"""Recurrent cells: one step of a recurrent network, and unrolling over a sequence."""

from __future__ import annotations

from ... import ndarray as nd
from ...engine.error import InvalidType, InvalidValue, MissingMethod, MXNetError
from ...ndarray.ndarray import NDArray
from ..block import Block
from ..hybrid import HybridBlock
from .sequence import (
    device_of,
    masked,
    merged,
    namespace,
    reversed_steps,
    steps_of,
    zero_state,
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


class RecurrentCell(Block):
    """Base of all cells: `output, states = cell(input, states)`.

    A subclass defines `state_info` and `forward(inputs, states)` (`hybrid_forward` for a
    HybridRecurrentCell).
    """

    def __init__(self, prefix=None, params=None):
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Forgets what a previous sequence left; call it before stepping over a new one."""
        self._init_counter, self._counter = -1, -1
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[dict]:
        """Shapes of the states."""
        raise InvalidType(f"{type(self).__name__} must define state_info")

    def begin_state(self, batch_size: int = 0, func=nd.zeros, **kwargs) -> list:
        """States to begin with. func: makes an array from shape= and **kwargs."""
        if self._modified:
            raise MXNetError(
                "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called"
                " directly. Call the modifier cell instead."
            )
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            states.append(
                func(name=f"{self.prefix}begin_state_{self._init_counter}", **(info or {}) | kwargs)
            )
        return states

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
        inputs,
        begin_state=None,
        layout="NTC",
        merge_outputs=None,
        valid_length=None,
    ):
        """Steps over a sequence.

        Args:
            inputs: one array in `layout`, or a list of `length` arrays (N, C).
            begin_state: list of states; default: zeros.
            merge_outputs: True gives one array, False a list of steps, None whatever is at hand (a
                list).
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

    def __call__(self, inputs, states):
        """(output, new states) of one step; inputs (N, C)."""
        self._counter += 1
        return super().__call__(inputs, states)


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """Base of cells that define `hybrid_forward(F, inputs, states, **parameters)`."""

    def __init__(self, prefix=None, params=None):
        super().__init__(prefix=prefix, params=params)


class _BaseCell(HybridRecurrentCell):
    """A cell with weights from the input (i2h) and from the state (h2h)."""

    size_argument = "input_size"
    gates, n_states = 1, 1

    def __init__(
        self,
        hidden_size,
        i2h_weight_initializer,
        h2h_weight_initializer,
        i2h_bias_initializer,
        h2h_bias_initializer,
        input_size,
        prefix,
        params,
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

    def state_info(self, batch_size=0):
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
        shape = self.i2h_weight.shape
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}{self._more()})"

    def _more(self) -> str:
        return ""


def activate(F, x, activation, **kwargs):
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
        hidden_size,
        activation="tanh",
        i2h_weight_initializer=None,
        h2h_weight_initializer=None,
        i2h_bias_initializer="zeros",
        h2h_bias_initializer="zeros",
        input_size=0,
        prefix=None,
        params=None,
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

    def hybrid_forward(self, F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias):
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
        hidden_size,
        i2h_weight_initializer=None,
        h2h_weight_initializer=None,
        i2h_bias_initializer="zeros",
        h2h_bias_initializer="zeros",
        input_size=0,
        prefix=None,
        params=None,
        activation="tanh",
        recurrent_activation="sigmoid",
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

    def hybrid_forward(self, F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias):
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
        hidden_size,
        i2h_weight_initializer=None,
        h2h_weight_initializer=None,
        i2h_bias_initializer="zeros",
        h2h_bias_initializer="zeros",
        input_size=0,
        prefix=None,
        params=None,
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

    def hybrid_forward(self, F, inputs, states, i2h_weight, h2h_weight, i2h_bias, h2h_bias):
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


def _info_of(cells, batch_size) -> list[dict]:
    return [info for cell in cells for info in cell.state_info(batch_size)]


def _begin_of(cells, **kwargs) -> list:
    return [state for cell in cells for state in cell.begin_state(**kwargs)]


class _CellStack(RecurrentCell):
    """What the two sequential cells have in common."""

    def __repr__(self):
        lines = [
            f"({key}): {str(cell).replace(chr(10), chr(10) + '  ')}"
            for key, cell in self._children.items()
        ]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def add(self, cell) -> None:
        """Appends a cell."""
        self.register_child(cell)

    def state_info(self, batch_size=0):
        return _info_of(self._children.values(), batch_size)

    def begin_state(self, batch_size: int = 0, func=nd.zeros, **kwargs):
        if self._modified:
            raise MXNetError(
                "After applying modifier cells (e.g. ZoneoutCell) the base cell cannot be called"
                " directly. Call the modifier cell instead."
            )
        return _begin_of(self._children.values(), batch_size=batch_size, func=func, **kwargs)

    def _step(self, inputs, states):
        new_states, at = [], 0
        for cell in self._children.values():
            n = len(cell.state_info())
            inputs, state = cell(inputs, states[at : at + n])
            at += n
            new_states += state
        return inputs, new_states

    def unroll(
        self, length, inputs, begin_state=None, layout="NTC", merge_outputs=None, valid_length=None
    ):
        self.reset()
        states = self._states_for(steps_of(length, inputs, layout), begin_state)
        new_states, at, cells = [], 0, list(self._children.values())
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
    """Cells one above the other."""

    def forward(self, inputs, states):
        return self._step(inputs, states)

    def hybrid_forward(self, F, inputs, states):
        """forward; F is what the inputs belong to."""
        return self._step(inputs, states)


class HybridSequentialRNNCell(_CellStack, HybridRecurrentCell):
    """Hybrid cells one above the other."""

    def hybrid_forward(self, F, inputs, states):
        return self._step(inputs, states)


class DropoutCell(HybridRecurrentCell):
    """Dropout on the input, while training. rate: probability; axes: along which the mask is
    shared."""

    def __init__(self, rate, axes=(), prefix=None, params=None):
        super().__init__(prefix, params)
        if not 0 <= rate <= 1:
            raise InvalidValue(f"DropoutCell: rate must be a number in [0, 1], got {rate}")
        self._rate, self._axes = rate, axes

    def __repr__(self):
        return f"DropoutCell(rate={self._rate}, axes={self._axes})"

    def _alias(self):
        return "dropout"

    def state_info(self, batch_size=0):
        return []

    def hybrid_forward(self, F, inputs, states):
        if self._rate > 0:
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states

    def unroll(
        self, length, inputs, begin_state=None, layout="NTC", merge_outputs=None, valid_length=None
    ):
        if isinstance(inputs, (list, tuple)):
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        self.reset()  # one mask for the whole array is one operator
        output, states = self.hybrid_forward(namespace(inputs), inputs, begin_state or [])
        return steps_of(length, output, layout) if merge_outputs is False else output, states


class ModifierCell(HybridRecurrentCell):
    """Base of cells that change another cell, whose parameters and states they have."""

    def __init__(self, base_cell):
        if base_cell._modified:
            raise MXNetError(
                f"Cell {base_cell.name} is already modified. One cell cannot be modified twice"
            )
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self):
        return self.base_cell.params

    def state_info(self, batch_size=0):
        return self.base_cell.state_info(batch_size)

    def begin_state(self, batch_size: int = 0, func=nd.zeros, **kwargs):
        with _unmodified(self.base_cell):
            return self.base_cell.begin_state(batch_size=batch_size, func=func, **kwargs)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_cell})"


class _unmodified:
    """A scope in which a modified cell can be used."""

    def __init__(self, cell):
        self._cell = cell

    def __enter__(self):
        self._cell._modified = False

    def __exit__(self, *error):
        self._cell._modified = True


class ZoneoutCell(ModifierCell):
    """While training, keeps old values of outputs and states with the given probabilities. Source:
    Krueger et al. 2016."""

    def __init__(self, base_cell, zoneout_outputs=0.0, zoneout_states=0.0):
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

    def reset(self):
        super().reset()
        self._prev_outputs = {}

    def hybrid_forward(self, F, inputs, states):
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

    def hybrid_forward(self, F, inputs, states):
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{self._counter}_fwd"), states

    def unroll(
        self, length, inputs, begin_state=None, layout="NTC", merge_outputs=None, valid_length=None
    ):
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


class BidirectionalCell(HybridRecurrentCell):
    """One cell forwards and one backwards over a sequence; outputs are concatenated. It can be
    unrolled, not stepped."""

    def __init__(self, l_cell, r_cell, output_prefix="bi_"):
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, inputs, states):
        raise MissingMethod("Bidirectional cannot be stepped. Please use unroll")

    def __repr__(self):
        return (
            f"BidirectionalCell(forward={self._children['l_cell']},"
            f" backward={self._children['r_cell']})"
        )

    def state_info(self, batch_size=0):
        return _info_of(self._children.values(), batch_size)

    def begin_state(self, batch_size: int = 0, func=nd.zeros, **kwargs):
        if self._modified:
            raise MXNetError(
                "After applying modifier cells (e.g. DropoutCell) the base cell cannot be called"
                " directly. Call the modifier cell instead."
            )
        return _begin_of(self._children.values(), batch_size=batch_size, func=func, **kwargs)

    def unroll(
        self, length, inputs, begin_state=None, layout="NTC", merge_outputs=None, valid_length=None
    ):
        self.reset()
        steps = steps_of(length, inputs, layout)
        F = namespace(steps)
        states = self._states_for(steps, begin_state)
        left, right = self._children.values()
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
