"""nd.sparse: arrays in csr and row_sparse storage; the operators are those of nd, which dispatch on
the storage types of their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...engine import Context, current_context
from ...engine.base import (  # offered from here too, as MXNet does
    NotSupportedForSparseNDArray,
    c_array_buf,
    check_call,
)
from ...kernels.namespaces import derive
from .. import arithmetic, functions
from ..invoke import SPARSE
from ..ndarray import NDArray
from . import cast, elementwise, products, reduce, storage, update
from .creation import array, csr_matrix, empty, row_sparse_array, zeros
from .sparse_array import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, _elementwise
from .storage import StorageFallback

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "Context",
    "NDArray",
    "NotSupportedForSparseNDArray",
    "RowSparseNDArray",
    "StorageFallback",
    "add",
    "array",
    "c_array_buf",
    "check_call",
    "csr_matrix",
    "current_context",
    "divide",
    "empty",
    "multiply",
    "row_sparse_array",
    "subtract",
    "zeros",
]
SPARSE.update(call=storage.call, array=array, empty=empty, zeros=zeros)


def add(lhs: Any, rhs: Any) -> Any:
    """lhs + rhs of arrays or numbers."""
    return _elementwise("elemwise_add", arithmetic.add, lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Any:
    """lhs - rhs of arrays or numbers."""
    return _elementwise("elemwise_sub", arithmetic.subtract, lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Any:
    """lhs * rhs of arrays or numbers."""
    return _elementwise("elemwise_mul", arithmetic.multiply, lhs, rhs)


def divide(lhs: Any, rhs: Any) -> Any:
    """lhs / rhs of arrays or numbers."""
    return _elementwise("elemwise_div", arithmetic.divide, lhs, rhs)


if TYPE_CHECKING:
    from .._sparse_operators import *
else:
    __getattr__, __dir__ = derive(
        __name__,
        functions.function_of,
        "_sparse_",
        shown="nd.sparse",
        others={"gs_retain": "_sparse_retain"},
    )
