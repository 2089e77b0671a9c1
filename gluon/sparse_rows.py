"""Access to the rows of row_sparse parameters."""

from __future__ import annotations

from typing import Any

from ..engine.error import MXNetError
from ..ndarray import NDArray, functions
from .tracing import tracing_state


class SparseRows:
    """What a Parameter with stype="row_sparse" offers instead of data()."""

    name: str
    _arrays: list[NDArray] | None
    _stype: str
    _trainer: Any
    _data_on: Any
    _not_initialized: Any

    def row_sparse_data(self, row_id: Any) -> NDArray:
        """The rows at row_id (an array of numbers) of a row_sparse parameter, as a row_sparse array
        on row_id's device. Gradients flow to the parameter. Raises MXNetError for dense ones.

        With a Trainer, whose store holds the weight, this is the parameter's own array, which then
        has only these rows.
        """
        self._must_be_sparse("row_sparse_data")
        return self._rows(self._data_on(row_id.context), row_id)

    def list_row_sparse_data(self, row_id: Any) -> list[NDArray]:
        """The rows at row_id on every device; see row_sparse_data."""
        self._must_be_sparse("list_row_sparse_data")
        if self._arrays is None:
            raise self._not_initialized()
        return [self._rows(a, row_id) for a in self._arrays]

    def _rows(self, array: NDArray, row_id: NDArray) -> NDArray:
        ids = row_id.reshape((-1,)).as_in_context(array.context)
        if self._trainer is None:
            return functions._sparse_retain(array, ids)
        self._trainer._row_sparse_pull(self, array, ids)
        return array

    def _must_be_sparse(self, method: str) -> None:
        if self._stype != "row_sparse":
            raise MXNetError(
                f"Cannot return a copy of Parameter '{self.name}' via {method}() because its"
                f" storage type is {self._stype}. Please use data() instead."
            )
        if tracing_state.tracer is not None:
            raise MXNetError(f"{method}: Parameter '{self.name}' is being traced as a Symbol")
