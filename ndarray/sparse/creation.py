"""Making sparse arrays: csr_matrix, row_sparse_array, array, zeros, empty."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...engine import Context, current_context
from ...engine.error import InvalidType, InvalidValue, MXNetError
from ...kernels.record import dtype_name
from ...kernels.spec import STYPES, DType
from .. import creation as dense
from ..ndarray import NDArray, from_memory
from . import sparse_array as arrays
from .sparse_array import BaseSparseNDArray, CSRNDArray, RowSparseNDArray
from .structure import pointers, values_of


class NotSparse(MXNetError, AssertionError):
    """A dense array where a sparse one is needed."""


def _is_scipy(value) -> bool:
    """Is it a matrix or array of scipy.sparse, which may not be installed?"""
    return type(value).__module__.startswith("scipy.sparse")


def _dtype(source, dtype) -> str:
    if dtype is None:
        own = isinstance(source, (NDArray, np.ndarray)) or _is_scipy(source)
        dtype = source.dtype if own else "float32"
    return dtype_name(dtype)


def _same_shape(found, wanted) -> None:
    if found and wanted and tuple(found) != tuple(wanted):
        raise InvalidValue(f"Shape mismatch detected. {tuple(found)} v.s. {tuple(wanted)}")


def _dense(source, ctx, dtype: str) -> NDArray:
    if isinstance(source, NDArray):
        same = source._spec.dtype == dtype and source.context == (ctx or source.context)
        return source.copy() if same else dense.array(source, ctx, dtype)
    try:
        return from_memory(np.asarray(source), ctx or current_context(), dtype)
    except (TypeError, ValueError) as error:
        raise InvalidType(f"values must be array like object: {error}") from None


def _numpy(source) -> np.ndarray:
    return values_of(source) if isinstance(source, NDArray) else np.asarray(source)


def _is_shape(source: tuple) -> bool:
    return all(isinstance(n, (int, np.integer)) for n in source)


def csr_matrix(
    arg1: Any,
    shape: Sequence[int] | None = None,
    ctx: Context | None = None,
    dtype: DType | None = None,
) -> CSRNDArray:
    """A csr matrix.

    Args:
        arg1: a dense matrix; a CSRNDArray or a matrix of scipy.sparse; (rows, columns): an empty
            one; (data, indices, indptr), see CSRNDArray; (data, (row, column)): duplicates are
            added.
        shape: (rows, columns); default: as the indices need.
        ctx: device, default the current one. dtype: default that of the given array, else float32.
    Raises: ValueError if shapes do not fit.
    """
    if not isinstance(arg1, tuple):
        if isinstance(arg1, RowSparseNDArray):
            raise InvalidValue("Unexpected input type: RowSparseNDArray")
        if isinstance(arg1, CSRNDArray) or _is_scipy(arg1):
            _same_shape(arg1.shape, shape)
            found = array(arg1, ctx, dtype)
            assert isinstance(found, CSRNDArray)
            return found
        values = _dense(arg1, ctx, _dtype(arg1, dtype))
        _same_shape(values.shape, shape)
        stored = values.tostype("csr")
        assert isinstance(stored, CSRNDArray)
        return stored
    if len(arg1) == 2 and isinstance(arg1[1], tuple) and len(arg1[1]) == 2:
        return _from_coordinates(arg1[0], *arg1[1], shape, ctx, dtype)
    if len(arg1) == 2:
        _same_shape(arg1, shape)
        return empty("csr", arg1, ctx, dtype)
    if len(arg1) != 3:
        raise InvalidValue(f"Unexpected length of input tuple: {len(arg1)}")
    if any(isinstance(part, (int, np.integer)) for part in arg1):
        raise InvalidValue(
            f"csr_matrix: the tuple must be (data, indices, indptr), got {arg1}\n"
            "  fix: a csr array has two axes; csr_matrix((rows, columns)) makes an empty one"
        )
    data, indices, indptr = arg1
    data = _dense(data, ctx, _dtype(data, dtype))
    indices, indptr = (_dense(i, ctx, "int64") for i in (indices, indptr))
    if shape is None:
        if not indices.shape[0]:
            raise InvalidValue("invalid shape: the number of columns is not known")
        shape = indptr.shape[0] - 1, int(values_of(indices).max()) + 1
    if not data.ndim == indptr.ndim == indices.ndim == 1 or len(shape) != 2:
        raise InvalidValue(
            f"invalid shape: data, indices and indptr must have one axis and shape two, got"
            f" {data.shape}, {indices.shape}, {indptr.shape} and {shape}"
        )
    made = arrays.csr(shape, data, indptr, indices)
    made.check_format(full_check=False)
    return made


def _from_coordinates(data, row, column, shape, ctx, dtype) -> CSRNDArray:
    given = np.asarray(_numpy(data))
    name = dtype_name(dtype) if dtype is not None else dtype_name(given.dtype)
    row, column = (_numpy(i).astype(np.int64) for i in (row, column))
    if not given.shape == row.shape == column.shape or given.ndim != 1:
        raise InvalidValue(
            f"data, row and column must have one axis of equal size, got {given.shape}, {row.shape}"
            f" and {column.shape}"
        )
    if shape is None:
        if not row.size:
            raise InvalidValue("invalid shape: it cannot be inferred without elements")
        shape = int(row.max()) + 1, int(column.max()) + 1
    if row.size and (
        min(row.min(), column.min()) < 0 or row.max() >= shape[0] or column.max() >= shape[1]
    ):
        raise InvalidValue(f"row and column must be in the shape {tuple(shape)}")
    keys, at = np.unique(row * shape[1] + column, return_inverse=True)
    values = np.zeros(len(keys), given.dtype)
    np.add.at(values, at, given)
    return _of_numpy(
        values, keys % shape[1], pointers(keys // shape[1], shape[0]), shape, ctx, name
    )


def _of_numpy(data, indices, indptr, shape, ctx, dtype: str) -> CSRNDArray:
    ctx = ctx or current_context()
    places = (from_memory(np.asarray(i, np.int64), ctx) for i in (indptr, indices))
    return arrays.csr(tuple(map(int, shape)), from_memory(data, ctx, dtype), *places)


def row_sparse_array(
    arg1: Any,
    shape: Sequence[int] | None = None,
    ctx: Context | None = None,
    dtype: DType | None = None,
) -> RowSparseNDArray:
    """A row_sparse array.

    Args:
        arg1: a dense array; a RowSparseNDArray; (data, indices), see RowSparseNDArray; a tuple of
            sizes: an empty one of that shape.
        shape: default: as the indices need. ctx: device, default the current one.
        dtype: default that of the given array, else float32.
    Raises: ValueError if shapes do not fit.
    """
    if not isinstance(arg1, tuple):
        if isinstance(arg1, CSRNDArray):
            raise InvalidValue("Unexpected input type: CSRNDArray")
        if isinstance(arg1, RowSparseNDArray):
            _same_shape(arg1.shape, shape)
            found = array(arg1, ctx, dtype)
            assert isinstance(found, RowSparseNDArray)
            return found
        values = _dense(arg1, ctx, _dtype(arg1, dtype))
        _same_shape(values.shape, shape)
        stored = values.tostype("row_sparse")
        assert isinstance(stored, RowSparseNDArray)
        return stored
    if len(arg1) < 2:
        raise InvalidValue(f"Unexpected length of input tuple: {len(arg1)}")
    if len(arg1) > 2 or _is_shape(arg1):
        _same_shape(arg1, shape)
        return empty("row_sparse", arg1, ctx, dtype)
    data, indices = arg1
    data = _dense(data, ctx, _dtype(data, dtype))
    indices = _dense(indices, ctx, "int64")
    if shape is None:
        if not indices.shape[0]:
            raise InvalidValue("invalid shape: the number of rows is not known")
        shape = (int(values_of(indices)[-1]) + 1, *data.shape[1:])
    if data.ndim != len(shape) or indices.ndim != 1 or prod(shape[1:]) == 0:
        raise InvalidValue(
            f"invalid shape: data must have the axes of shape and indices one, got {data.shape},"
            f" {indices.shape} and {shape}"
        )
    if data.shape != (*indices.shape, *shape[1:]):
        raise InvalidValue(
            f"invalid shape: data must have shape {(*indices.shape, *shape[1:])}, got {data.shape}"
        )
    return arrays.row_sparse(shape, data, indices)


def array(
    source_array: Any, ctx: Context | None = None, dtype: DType | None = None
) -> BaseSparseNDArray:
    """A copy of a sparse array, or of a matrix of scipy.sparse. Raises ValueError for anything
    dense."""
    if isinstance(source_array, BaseSparseNDArray):
        found: Any = source_array.copyto(ctx or current_context())
        return found if dtype is None else found.astype(dtype, copy=False)
    if isinstance(source_array, NDArray):
        raise NotSparse(
            "Please use `tostype` to create RowSparseNDArray or CSRNDArray from an NDArray"
        )
    if _is_scipy(source_array):
        found = source_array.tocsr().sorted_indices()
        found.sum_duplicates()
        name = _dtype(source_array, dtype)
        return _of_numpy(found.data, found.indices, found.indptr, found.shape, ctx, name)
    if isinstance(source_array, (np.ndarray, np.generic)):
        raise InvalidValue(
            "Please use mx.nd.array to create an NDArray with source_array of type"
            f" {type(source_array)}"
        )
    raise InvalidValue(f"Unexpected source_array type: {type(source_array)}")


def zeros(
    stype: str,
    shape: int | Sequence[int],
    ctx: Context | None = None,
    dtype: DType | None = None,
    **kwargs: Any,
) -> Any:
    """Zeros in a storage type; a sparse one stores nothing."""
    if stype == "default":
        return dense.zeros(shape, ctx, dtype, **kwargs)
    if stype not in STYPES[1:]:
        raise InvalidValue(f"unknown storage type {stype!r}")
    shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if stype == "csr" and len(shape) != 2:
        raise InvalidValue(f"a csr array has two axes, got the shape {shape}")
    ctx, dtype = ctx or current_context(), dtype_name(dtype or "float32")
    none = from_memory(np.zeros(0, np.int64), ctx)
    if stype == "row_sparse":
        return arrays.row_sparse(shape, dense.empty((0, *shape[1:]), ctx, dtype), none)
    pointer = from_memory(np.zeros(shape[0] + 1, np.int64), ctx)
    return arrays.csr(shape, dense.empty((0,), ctx, dtype), pointer, none)


def empty(
    stype: str, shape: int | Sequence[int], ctx: Context | None = None, dtype: DType | None = None
) -> Any:
    """The same as zeros, of a sparse storage type."""
    if stype not in STYPES[1:]:
        raise InvalidValue(f"unknown stype : {stype}")
    return zeros(stype, shape, ctx, dtype)
