"""The functions of mx.np that are operators: made from the records `_np_*` and `_npi_*` when they
are first used."""

from __future__ import annotations

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...kernels.record import REGISTRY
from .elements import *  # noqa: F403
from .linalg import ELSEWHERE
from .products import dot, einsum, matmul, tensordot, trace  # noqa: F401
from .sets import *  # noqa: F403
from .statistics import *  # noqa: F403
from .statistics import derived
from .ufuncs import *  # noqa: F403


def is_function(full: str) -> bool:
    """Is `_npi_x` the function np.x? Not what np.random and np.linalg have, nor forms of functions
    for numbers."""
    name = full.removeprefix("_npi_").removeprefix("_np_")
    is_form = name.endswith(("scalar", "_rcond", "_int_axes"))
    return not is_form and name not in ELSEWHERE and not REGISTRY[full].random


__getattr__, __dir__ = derive(__name__, derived, "_npi_", "_np_", shown="np", shows=is_function)
