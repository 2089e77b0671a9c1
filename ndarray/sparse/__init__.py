"""nd.sparse: arrays in csr and row_sparse storage; the operators are those of nd, which dispatch on
the storage types of their inputs."""

from __future__ import annotations

import sys
from typing import Any

from ...engine import Context, current_context  # noqa: F401
from ...engine.base import (  # noqa: F401 - offered from here too, as MXNet does
    NotSupportedForSparseNDArray,
    c_array_buf,
    check_call,
)
from ...engine.error import MissingName
from ...kernels.record import REGISTRY
from .. import arithmetic, functions
from ..invoke import SPARSE
from ..ndarray import NDArray  # noqa: F401
from . import cast, elementwise, products, reduce, storage, update  # noqa: F401
from .creation import array, csr_matrix, empty, row_sparse_array, zeros  # noqa: F401
from .sparse_array import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, _elementwise  # noqa: F401
from .storage import StorageFallback  # noqa: F401

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
    return sorted({n for n in globals() if not n.startswith("_")} | names | {"gs_retain"})
