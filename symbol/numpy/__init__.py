"""mx.sym.np: NumPy's functions on Symbols."""

from __future__ import annotations

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...ndarray.numpy.operators import add_operators
from ..symbol import Symbol, function_of


class _Symbol(Symbol):
    """A Symbol under NumPy's rules: what is computed from one is one."""

    __slots__ = ()
    __array_priority__ = 1001.0


add_operators(_Symbol, in_place=False)

from . import random  # noqa: E402, F401 - stands on _Symbol

__getattr__, __dir__ = derive(__name__, function_of, "_npi_", "_np_", shown="sym.np")
