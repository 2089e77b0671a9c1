"""mx.sym.np: NumPy's functions on Symbols. What is an operator is made from its record, as all of
sym; the other functions are those of mx.np, which take Symbols where they take arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...kernels.record import REGISTRY
from ...ndarray import numpy
from ...ndarray.functions import __name__ as DERIVED  # the module of functions made of records
from ..symbol import function_of
from . import linalg, random  # noqa: F401
from .symbol import _Symbol, symbols  # noqa: F401  (_Symbol: MXNet's place)


def _made(full: str, name: str) -> Callable[..., Any]:
    """The functions of mx.np know numbers and lists beside Symbols; those that make arrays of
    nothing are the records'."""
    own = getattr(numpy, name)
    if own.__module__ == DERIVED or not REGISTRY[full].inputs:
        return symbols(function_of(full, name))
    return own


_derived, __dir__ = derive(
    __name__, _made, "_npi_", "_np_", shown="sym.np", shows=numpy.functions.is_function
)


def __getattr__(name: str) -> Any:
    try:
        return _derived(name)
    except AttributeError:
        if name.startswith("__") or not hasattr(numpy, name):
            raise
    return getattr(numpy, name)
