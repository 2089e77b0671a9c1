"""nd.sparse: arrays in csr and row_sparse storage; the operators are those of nd, which dispatch on
the storage types of their inputs."""

from __future__ import annotations

import sys
from typing import Any

from ...engine import Context, current_context
from ...engine.base import (  # offered from here too, as MXNet does
    NotSupportedForSparseNDArray,
    c_array_buf,
    check_call,
)
from ...engine.error import MissingName
from ...kernels.record import REGISTRY
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


def add(lhs, rhs) -> Any:
    """lhs + rhs of arrays or numbers."""
    return _elementwise("elemwise_add", arithmetic.add, lhs, rhs)


def subtract(lhs, rhs) -> Any:
    """lhs - rhs of arrays or numbers."""
    return _elementwise("elemwise_sub", arithmetic.subtract, lhs, rhs)


def multiply(lhs, rhs) -> Any:
    """lhs * rhs of arrays or numbers."""
    return _elementwise("elemwise_mul", arithmetic.multiply, lhs, rhs)


def divide(lhs, rhs) -> Any:
    """lhs / rhs of arrays or numbers."""
    return _elementwise("elemwise_div", arithmetic.divide, lhs, rhs)


_OTHER_NAMES = {"gs_retain": "_sparse_retain", "retain": "_sparse_retain"}


def __getattr__(name: str):
    if name.startswith("__"):
        raise MissingName(f"module {__name__!r} has no function {name!r}")
    own = _OTHER_NAMES.get(name, "_sparse_" + name)
    if own not in REGISTRY:
        raise MissingName(f"module {__name__!r} has no function {name!r}")
    function = getattr(functions, own)
    setattr(sys.modules[__name__], name, function)
    return function


def __dir__():
    names = {n.removeprefix("_sparse_") for n in REGISTRY if n.startswith("_sparse_")}
    return sorted({*__all__, *names, "gs_retain"})
