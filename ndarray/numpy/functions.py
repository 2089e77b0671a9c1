"""The functions of mx.np that are operators: made from the records `_np_*` and `_npi_*` when they
are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...kernels.record import REGISTRY
from ..functions import operator_function
from .array import operand
from .products import dot, einsum, matmul, tensordot, trace  # noqa: F401
from .ufuncs import *  # noqa: F403


def _made(full: str, name: str) -> Callable[..., Any]:
    return operator_function(REGISTRY[full], name, operand)


__getattr__, __dir__ = derive(__name__, _made, "_npi_", "_np_", shown="np", random=False)
