"""Random sparse arrays, for test-suites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine import Context
from ...engine.error import InvalidValue
from ...kernels.spec import STYPES, DType
from ...ndarray.sparse.structure import pointers


def shuffle_csr_column_indices(csr: Any) -> None:
    """Puts the column numbers of each row of a scipy matrix into random order, in place."""
    for begin, end in zip(csr.indptr, csr.indptr[1:]):
        np.random.shuffle(csr.indices[begin:end])


def _uniform(shape, density, dtype, data_init, shuffle):
    n_rows, n_columns = shape
    count = round(n_rows * n_columns * density)
    keys = np.sort(np.random.choice(n_rows * n_columns, count, replace=False))
    rows, columns = keys // n_columns, keys % n_columns
    starts = pointers(rows, n_rows)
    if shuffle:
        columns = columns[np.lexsort((np.random.rand(count), rows))]
    values = np.random.rand(count) if data_init is None else np.full(count, data_init)
    return values.astype(dtype), columns, starts


def _powerlaw(shape, density, dtype):
    """Each row has twice as many elements as the one before, until the density is reached."""
    n_rows, n_columns = shape
    count = int(n_rows * n_columns * density)
    if count < 2 * n_rows:
        raise InvalidValue(
            f"powerlaw: density {density} gives fewer than 2 elements for each of {n_rows} rows"
        )
    sizes, left = np.ones(n_rows, np.int64), count - n_rows
    for row in range(n_rows):
        more = min(min(n_columns, 2 ** (row + 1)) - 1, left)
        sizes[row] += more
        left -= more
    if left:
        raise InvalidValue(f"not supported for this density: {density} for this shape {shape}")
    columns = np.concatenate([np.arange(n) for n in sizes])
    values = 1 + np.random.uniform(0.001, 2, len(columns))
    return values.astype(dtype), columns, np.concatenate(([0], np.cumsum(sizes)))


def rand_sparse_ndarray(
    shape: Sequence[int],
    stype: str,
    density: Any = None,
    dtype: DType | None = None,
    distribution: Any = None,
    data_init: Any = None,
    rsp_indices: Any = None,
    modifier_func: Any = None,
    shuffle_csr_indices: bool = False,
    ctx: Context | None = None,
) -> Any:
    """(a random sparse array, its parts: (data, indices) as NumPy, or (indptr, indices, data)).

    Args:
        density: fraction of rows (row_sparse) or elements (csr) that are stored, default random.
        distribution: "uniform", or of csr "powerlaw": each row has twice as many elements as the
            one before.
        data_init: all values. rsp_indices: numbers of the rows. modifier_func: applied to values.
    """
    dtype, density = dtype or "float32", np.random.rand() if density is None else density
    if stype == "row_sparse":
        if distribution not in (None, "uniform"):
            raise InvalidValue(f"Distribution {distribution} not supported for row_sparse")
        if rsp_indices is None:
            rsp_indices = np.flatnonzero(np.random.rand(shape[0]) < density)
        indices = np.asarray(rsp_indices, np.int64)
        if not indices.size:
            empty = nd.zeros(shape, ctx, dtype, stype=stype)
            return empty, (np.array([], dtype), np.array([]))
        values = np.random.rand(len(indices), *shape[1:])
        if data_init is not None:
            values.fill(data_init)
        if modifier_func is not None:
            values = np.vectorize(modifier_func)(values)
        values = values.astype(dtype)
        made = nd.sparse.row_sparse_array((values, indices), shape=tuple(shape), ctx=ctx)
        return made, (values, indices)
    if stype != "csr" or len(shape) != 2:
        raise InvalidValue(f"unknown storage type {stype!r} for the shape {tuple(shape)}")
    if distribution in (None, "uniform"):
        parts = _uniform(shape, density, dtype, data_init, shuffle_csr_indices)
    elif distribution == "powerlaw":
        parts = _powerlaw(shape, density, dtype)
    else:
        raise InvalidValue(f"Distribution not supported: {distribution}")
    csr = nd.sparse.csr_matrix(parts, shape=tuple(shape), ctx=ctx)
    return csr, (csr.indptr, csr.indices, csr.data)


def create_sparse_array(
    shape: Sequence[int],
    stype: str,
    data_init: Any = None,
    rsp_indices: Any = None,
    dtype: DType | None = None,
    modifier_func: Any = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> Any:
    """A random sparse array; see rand_sparse_ndarray. rsp_indices may come in any order."""
    if stype not in STYPES[1:]:
        raise InvalidValue(f"Unknown storage type: {stype}")
    rows = None if rsp_indices is None else np.sort(np.asarray(rsp_indices))
    return rand_sparse_ndarray(
        shape,
        stype,
        density,
        dtype,
        None,
        data_init,
        rows if stype == "row_sparse" else None,
        modifier_func,
        shuffle_csr_indices,
    )[0]


def create_sparse_array_zd(
    shape: Sequence[int],
    stype: str,
    density: Any,
    data_init: Any = None,
    rsp_indices: Any = None,
    dtype: DType | None = None,
    modifier_func: Any = None,
    shuffle_csr_indices: bool = False,
) -> Any:
    """A random sparse array; the rows of a row_sparse one are exactly rsp_indices."""
    return create_sparse_array(
        shape,
        stype,
        data_init,
        rsp_indices,
        dtype,
        modifier_func,
        0.0 if stype == "row_sparse" else density,
        shuffle_csr_indices,
    )
