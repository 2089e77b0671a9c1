"""Symbolic cells composed of cells: sequential, bidirectional, with dropout, zoneout, residuals."""

from __future__ import annotations

from numbers import Real
from typing import Any

from ... import symbol
from ...engine.error import MissingMethod
from ...symbol.symbol import Symbol
from .base import BaseRNNCell, CellError, normalize


class _Cells(BaseRNNCell):
    """Cells whose parameters and states are those of inner cells."""

    _override_cell_params: bool

    def _adopt(self, cells) -> None:
        for cell in cells:
            if self._override_cell_params:
                if not cell._own_params:
                    raise CellError(
                        f"Either specify params for {type(self).__name__} or child cells, not both."
                    )
                cell.params._params.update(self.params._params)
        for cell in cells:
            self.params._params.update(cell.params._params)

    @property
    def state_info(self) -> list[Any]:
        return [info for c in self._cells for info in c.state_info]

    def begin_state(self, **kwargs: Any) -> list[Any]:  # type: ignore[override]  # as MXNet's
        """Symbols of the initial states of all cells."""
        self._check_unmodified()
        return [s for c in self._cells for s in c.begin_state(**kwargs)]

    def unpack_weights(self, args: Any) -> Any:
        """See BaseRNNCell; of all cells."""
        for cell in self._cells:
            args = cell.unpack_weights(args)
        return args

    def pack_weights(self, args: Any) -> Any:
        """See BaseRNNCell; of all cells."""
        for cell in self._cells:
            args = cell.pack_weights(args)
        return args


class SequentialRNNCell(_Cells):
    """Stacked cells. params: RNNParams for all of them."""

    def __init__(self, params: Any = None):
        super().__init__(prefix="", params=params)
        self._override_cell_params = params is not None
        self._cells = []

    def add(self, cell: Any) -> None:
        """Puts a cell on top."""
        self._cells.append(cell)
        self._adopt([cell])

    def __call__(self, inputs: Any, states: Any) -> Any:
        self._counter += 1
        after, at = [], 0
        for cell in self._cells:
            if isinstance(cell, BidirectionalCell):
                raise CellError("a BidirectionalCell cannot be stepped\n  fix: cell.unroll(...)")
            n = len(cell.state_info)
            inputs, state = cell(inputs, states[at : at + n])
            at += n
            after += state
        return inputs, after

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """See BaseRNNCell.unroll; cell by cell."""
        self.reset()
        begin_state = self.begin_state() if begin_state is None else begin_state
        after, at = [], 0
        for cell in self._cells:
            n = len(cell.state_info)
            last = cell is self._cells[-1]
            inputs, states = cell.unroll(
                length,
                inputs=inputs,
                begin_state=begin_state[at : at + n],
                layout=layout,
                merge_outputs=merge_outputs if last else None,
            )
            at += n
            after.extend(states)
        return inputs, after


class BidirectionalCell(_Cells):
    """One cell forward and one backward in time; their outputs are concatenated."""

    def __init__(self, l_cell: Any, r_cell: Any, params: Any = None, output_prefix: str = "bi_"):
        super().__init__("", params=params)
        self._output_prefix = output_prefix
        self._override_cell_params = params is not None
        self._cells = [l_cell, r_cell]
        self._adopt(self._cells)

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise MissingMethod("Bidirectional cannot be stepped. Please use unroll")

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """See BaseRNNCell.unroll. The states are a list for each direction."""
        self.reset()
        inputs, axis = normalize(length, inputs, layout, False)
        begin = self.begin_state() if begin_state is None else begin_state
        l_cell, r_cell = self._cells
        n = len(l_cell.state_info)
        l_outs, l_states = l_cell.unroll(
            length, inputs, begin_state=begin[:n], layout=layout, merge_outputs=merge_outputs
        )
        r_outs, r_states = r_cell.unroll(
            length,
            list(reversed(inputs)),
            begin_state=begin[n:],
            layout=layout,
            merge_outputs=merge_outputs,
        )
        if merge_outputs is None:
            merge_outputs = isinstance(l_outs, Symbol) and isinstance(r_outs, Symbol)
            if not merge_outputs:
                l_outs, _ = normalize(length, l_outs, layout, False)
                r_outs, _ = normalize(length, r_outs, layout, False)
        states = [l_states, r_states]
        if merge_outputs:
            r_outs = symbol.reverse(r_outs, axis=axis)
            name = f"{self._output_prefix}out"
            return symbol.Concat(l_outs, r_outs, dim=2, name=name), states
        pairs = zip(l_outs, reversed(r_outs))
        outputs = [
            symbol.Concat(a, b, dim=1, name=f"{self._output_prefix}t{i}")
            for i, (a, b) in enumerate(pairs)
        ]
        return outputs, states


class DropoutCell(BaseRNNCell):
    """Dropout of the input, with this probability."""

    def __init__(self, dropout: Any, prefix: str = "dropout_", params: Any = None):
        super().__init__(prefix, params)
        if not isinstance(dropout, Real):
            raise CellError("dropout probability must be a number")
        self.dropout: float = float(dropout)

    @property
    def state_info(self) -> list[Any]:
        return []

    def __call__(self, inputs: Any, states: Any) -> Any:
        return symbol.Dropout(inputs, p=self.dropout) if self.dropout > 0 else inputs, states

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """See BaseRNNCell.unroll; applied to all steps at once if they are one Symbol."""
        self.reset()
        inputs, _ = normalize(length, inputs, layout, merge_outputs)
        if isinstance(inputs, Symbol):
            return self(inputs, [])
        return super().unroll(length, inputs, begin_state, layout, merge_outputs)


class ModifierCell(BaseRNNCell):
    """Base of cells that modify another cell, which is then no longer called directly."""

    def __init__(self, base_cell: Any):
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        """The parameters of the inner cell."""
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> Any:
        return self.base_cell.state_info

    def begin_state(self, init_sym: Any = symbol.zeros, **kwargs: Any) -> Any:  # type: ignore[override]  # as MXNet's
        """The initial states of the inner cell. init_sym: creates them."""
        self._check_unmodified()
        self.base_cell._modified = False
        begin = self.base_cell.begin_state(func=init_sym, **kwargs)
        self.base_cell._modified = True
        return begin

    def unpack_weights(self, args: Any) -> Any:
        """See BaseRNNCell."""
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Any) -> Any:
        """See BaseRNNCell."""
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """Randomly keeps elements of the output and of the states of the previous step. Source:
    Krueger et al. 2016, arXiv:1606.01305."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0):
        for kind, text in (
            ("FusedRNNCell", "FusedRNNCell doesn't support zoneout. Please unfuse first."),
            (
                "BidirectionalCell",
                "BidirectionalCell doesn't support zoneout since it doesn't support step. Please"
                " add ZoneoutCell to the cells underneath instead.",
            ),
        ):
            if kind in (c.__name__ for c in type(base_cell).__mro__):
                raise CellError(text)
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states
        self.prev_output = None

    def reset(self) -> None:
        """Resets, without a previous output."""
        super().reset()
        self.prev_output = None

    def __call__(self, inputs: Any, states: Any) -> Any:
        def mixed(p, new, old):
            if p == 0.0:
                return new
            return symbol.where(symbol.Dropout(symbol.ones_like(new), p=p), new, old)

        output, after = self.base_cell(inputs, states)
        before = self.prev_output
        before = symbol.zeros_like(output) if before is None else before
        output = mixed(self.zoneout_outputs, output, before)
        after = [mixed(self.zoneout_states, n, o) for n, o in zip(after, states)]
        self.prev_output = output
        return output, after


class ResidualCell(ModifierCell):
    """Adds the input to the output of a cell. Source: Wu et al. 2016, arXiv:1609.08144."""

    def __call__(self, inputs: Any, states: Any) -> Any:
        output, states = self.base_cell(inputs, states)
        return _plus(output, inputs), states

    def unroll(
        self,
        length: Any,
        inputs: Any,
        begin_state: Any = None,
        layout: str = "NTC",
        merge_outputs: Any = None,
    ) -> Any:
        """See BaseRNNCell.unroll."""
        self.reset()
        self.base_cell._modified = False
        outputs, states = self.base_cell.unroll(
            length, inputs, begin_state=begin_state, layout=layout, merge_outputs=merge_outputs
        )
        self.base_cell._modified = True
        merged = isinstance(outputs, Symbol) if merge_outputs is None else merge_outputs
        inputs, _ = normalize(length, inputs, layout, merged)
        if merged:
            return _plus(outputs, inputs), states
        return [_plus(o, i) for o, i in zip(outputs, inputs)], states


def _plus(output: Symbol, inputs: Symbol) -> Symbol:
    return symbol.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
