"""Which elements sparse arrays store: computed with NumPy on the caller, after waiting for index
arrays only.

Keys unify both storage types: ascending int64 indices of rows (row_sparse) or of elements in
row-major order (csr), with one row of values per key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.error import InvalidIndex
from ...kernels.record import lookup
from ..invoke import invoke
from ..ndarray import NDArray, from_memory


def values_of(array: NDArray) -> np.ndarray:
    """The values of an index array; read-only."""
    return array._values()


def whole(array: NDArray) -> np.ndarray:
    """Row numbers that a user gave in any dtype, as int64."""
    return values_of(array).astype(np.int64).reshape(-1)


def index_array(numbers: Any, like: NDArray) -> NDArray:
    """An int64 array on the device of `like`."""
    return from_memory(np.ascontiguousarray(numbers, np.int64), like._spec.device)


def counts_of(indptr: np.ndarray) -> np.ndarray:
    """The number of values in each row of a csr array. Raises InvalidIndex."""
    counts = np.diff(indptr)
    if counts.size and counts.min() < 0:
        raise InvalidIndex("csr array: indptr must not descend")
    return counts


def rows_of(x: Any) -> np.ndarray:
    """The row of each value of a csr array. Raises InvalidIndex."""
    return np.repeat(np.arange(x.shape[0]), counts_of(values_of(x._parts[1])))


def places_of(x: Any) -> np.ndarray:
    """The column of each value (csr) or the stored rows. Raises InvalidIndex for positions outside
    the array."""
    indices, n = values_of(x._parts[-1]), x.shape[1 if x.stype == "csr" else 0]
    if indices.size and not 0 <= indices.min() <= indices.max() < n:
        what = "column" if x.stype == "csr" else "row"
        raise InvalidIndex(
            f"{x.stype} array of shape {x.shape}: {what} indices must be in [0, {n}), got"
            f" {indices.min()} to {indices.max()}"
        )
    return indices


def keys_of(x: Any) -> np.ndarray:
    """The position of each value: its element index (csr) or its row; ascending for valid arrays.
    Raises InvalidIndex for positions outside the array."""
    places = places_of(x)
    return rows_of(x) * x.shape[1] + places if x.stype == "csr" else places


def sorted_keys(x: Any) -> tuple[np.ndarray, NDArray]:
    """(keys in ascending order, values in that order): users may give unsorted columns."""
    keys = keys_of(x)
    if len(keys) < 2 or bool((keys[1:] > keys[:-1]).all()):
        return keys, x._parts[0]
    order = np.argsort(keys, kind="stable")
    return keys[order], gather(x._parts[0], order)


def pointers(rows: np.ndarray, n_rows: int) -> np.ndarray:
    """indptr of ascending row numbers."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_rows))))


def distinct(numbers: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct numbers in ascending order, the position of each number among them) for numbers
    in [0, n). Raises IndexError."""
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < n:
        raise InvalidIndex(
            f"sparse array: indices must be in [0, {n}), got {numbers.min()} to {numbers.max()}"
        )
    if n > 16 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    present = np.zeros(n, bool)  # no sorting
    present[numbers] = True
    found = np.flatnonzero(present)
    at = np.empty(n, np.int64)
    at[found] = np.arange(len(found))
    return found, at[numbers]


def gather(values: NDArray, at: np.ndarray | tuple[()]) -> NDArray:
    """Rows of an array."""
    return invoke(lookup("take"), (values, index_array(at, values)), {"mode": "clip"})


def place(values: NDArray, at: np.ndarray, n: int) -> NDArray:
    """Writes rows to distinct positions of n zero rows."""
    s = values._spec
    attrs = {"shape": (n, *s.shape[1:]), "dtype": s.dtype}
    zeros = invoke(lookup("_zeros"), (), attrs, None, s.device)
    if not len(at):
        return zeros
    return invoke(lookup("_assign_rows"), (zeros, values, index_array(at, values)), {}, zeros)


def scatter(values: NDArray, at: np.ndarray, n: int) -> NDArray:
    """Adds rows at positions of n zero rows."""
    attrs = {"mode": "clip", "shape": (n, *values.shape[1:])}
    return invoke(lookup("_take_grad"), (values, index_array(at, values)), attrs)


def broken_rule(x: Any, full: bool) -> str | None:
    """A description of what is wrong with an array's indices, or None."""
    data, indices = x._parts[0], values_of(x._parts[-1])
    if len(indices) != data.shape[0]:
        return f"as many indices as values are needed, got {len(indices)} and {data.shape[0]}"
    if x.stype == "csr":
        indptr, (n_rows, n_columns) = values_of(x._parts[1]), x.shape
        if len(indptr) != n_rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
            return (
                f"indptr must have {n_rows + 1} elements from 0 to {len(indices)}, got"
                f" {len(indptr)} from {indptr[0]} to {indptr[-1]}"
            )
        if not full:
            return None
        if (np.diff(indptr) < 0).any():
            return "indptr must not descend"
        if ((indices < 0) | (indices >= n_columns)).any():
            return f"column indices must be in [0, {n_columns})"
        steps = np.diff(indices) <= 0
        steps[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))] - 1] = False
        return "the column indices of a row must ascend" if steps.any() else None
    if not full:
        return None
    if ((indices < 0) | (indices >= x.shape[0])).any():
        return f"row indices must be in [0, {x.shape[0]})"
    return "row indices must ascend" if (np.diff(indices) <= 0).any() else None
