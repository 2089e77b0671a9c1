"""The base of symbolic recurrent cells: parameters by name, states, unrolling, packed weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ndarray as nd
from ... import symbol
from ...engine.error import InvalidValue, MissingMethod, MXNetError
from ...symbol.symbol import Symbol


class CellError(MXNetError, AssertionError):
    """Invalid use of a cell; MXNet raises AssertionError."""


class RNNParams:
    """Variables by name, shared between cells. prefix: the prefix of every name."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Any:
        """The variable prefix + name, created at its first use. kwargs: as for sym.Variable."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = symbol.Variable(name, **kwargs)
        return self._params[name]


def normalize(length: Any, inputs: Any, layout: Any, merge: Any, in_layout: Any = None) -> Any:
    """(inputs as one Symbol or as a list of one for each step, the axis of time). merge: True one,
    False a list, None unchanged."""
    if inputs is None:
        raise CellError(
            "unroll(inputs=None) has been deprecated. Please create input variables outside unroll."
        )
    axis = layout.find("T")
    in_axis = in_layout.find("T") if in_layout is not None else axis
    if isinstance(inputs, Symbol):
        if merge is False:
            if len(inputs.list_outputs()) != 1:
                raise CellError(
                    "unroll doesn't allow grouped symbol as input. Please convert to list with"
                    " list(inputs) first or let unroll handle splitting."
                )
            parts = symbol.split(inputs, axis=in_axis, num_outputs=length, squeeze_axis=True)
            inputs = [Symbol([v]) for v in parts._outputs]
    else:
        if length is not None and len(inputs) != length:
            raise CellError(f"unroll: needs {length} inputs, got {len(inputs)}")
        if merge is True:
            inputs = [symbol.expand_dims(i, axis=axis) for i in inputs]
            inputs = symbol.Concat(*inputs, dim=axis)
            in_axis = axis
    if isinstance(inputs, Symbol) and axis != in_axis:
        inputs = symbol.swapaxes(inputs, dim1=axis, dim2=in_axis)
    return inputs, axis


class BaseRNNCell:
    """Base of cells: cell(input, states) -> (output, new states) for one step.

    prefix: of the names of the nodes, and of the parameters unless `params`, the RNNParams of other
        cells, is given.
    """

    _num_hidden: int
    _cells: list[BaseRNNCell]

    def __init__(self, prefix: str = "", params: Any = None):
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Resets the counters in names."""
        self._init_counter = -1
        self._counter = -1
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise MissingMethod(f"{type(self).__name__} cannot be stepped\n  fix: cell.unroll(...)")

    @property
    def params(self) -> Any:
        """The parameters, which can be shared with other cells."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> Any:
        """A dict with shape (0: the batch) and __layout__ for each state."""
        raise MissingMethod(f"{type(self).__name__} must define state_info")

    @property
    def state_shape(self) -> list[Any]:
        """Shapes of the states; 0 is the batch size."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self):
        return ()

    def _step_name(self) -> str:
        """The name prefix of the next step."""
        self._counter += 1
        return f"{self._prefix}t{self._counter}_"

    def _check_unmodified(self) -> None:
        if self._modified:
            raise CellError(
                "After applying modifier cells (e.g. DropoutCell) the base cell cannot be called"
                " directly. Call the modifier cell instead."
            )

    def begin_state(self, func: Callable[..., Any] = symbol.zeros, **kwargs: Any) -> Any:
        """Symbols of the initial states. func: creates them: sym.zeros, sym.Variable ...; kwargs:
        for func."""
        self._check_unmodified()
        states = []
        for info in self.state_info:
            self._init_counter += 1
            kwargs.update(info or {})
            states.append(func(name=f"{self._prefix}begin_state_{self._init_counter}", **kwargs))
        return states

    def _group_names(self):
        """(name of the packed array, names of its gates), for weights and biases."""
        for group in ("i2h", "h2h") if self._gate_names else ():
            for kind in ("weight", "bias"):
                gates = [f"{self._prefix}{group}{g}_{kind}" for g in self._gate_names]
                yield f"{self._prefix}{group}_{kind}", gates

    def unpack_weights(self, args: Any) -> Any:
        """A copy of the dict args with one array per gate instead of one for all."""
        args = args.copy()
        for packed, gates in self._group_names():
            array, h = args.pop(packed), self._num_hidden
            for j, gate in enumerate(gates):
                args[gate] = array[j * h : (j + 1) * h].copy()
        return args

    def pack_weights(self, args: Any) -> Any:
        """The reverse of unpack_weights."""
        args = args.copy()
        for packed, gates in self._group_names():
            args[packed] = nd.concatenate([args.pop(g) for g in gates])
        return args

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """(outputs, last states) of `length` steps.

        inputs: a Symbol of the layout, N batch, T time, C channels; or a list of one for each step.
        merge_outputs: True one Symbol, False a list, None whichever is available.
        """
        self.reset()
        inputs, _ = normalize(length, inputs, layout, False)
        states = self.begin_state() if begin_state is None else begin_state
        outputs = []
        for i in range(length):
            output, states = self(inputs[i], states)
            outputs.append(output)
        return normalize(length, outputs, layout, merge_outputs)[0], states

    def _get_activation(self, inputs, activation, **kwargs):
        if isinstance(activation, str):
            return symbol.Activation(inputs, act_type=activation, **kwargs)
        if not callable(activation):
            raise InvalidValue(f"activation must be a name or a function, got {activation!r}")
        return activation(inputs, **kwargs)


def vector_state(num_hidden: int) -> dict:
    """The description of a state of shape (batch, num_hidden)."""
    return {"shape": (0, num_hidden), "__layout__": "NC"}


def gates_of(values: Any, n: int, name: str, axis: int = 1) -> list[Symbol]:
    """A Symbol split into n gates."""
    parts = symbol.SliceChannel(values, num_outputs=n, axis=axis, name=name)
    return [Symbol([v]) for v in parts._outputs]


def sigmoid(x: Any, name: str) -> Symbol:
    return symbol.Activation(x, act_type="sigmoid", name=name)
