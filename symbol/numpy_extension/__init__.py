"""mx.sym.npx: npx's operators on Symbols; its switches and loops are those of npx."""

from __future__ import annotations

from typing import Any

from ...engine.lazy import submodule
from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...ndarray import numpy_extension
from ..numpy.symbol import symbols
from ..symbol import function_of

_derived, __dir__ = derive(
    __name__, lambda full, name: symbols(function_of(full, name)), "_npx_", shown="sym.npx"
)


def __getattr__(name: str) -> Any:
    if name in ("image", "random"):
        return submodule(__name__, name)
    try:
        return _derived(name)
    except AttributeError:
        if name.startswith("__") or not hasattr(numpy_extension, name):
            raise
    return getattr(numpy_extension, name)
