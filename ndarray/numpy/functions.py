"""The functions of mx.np that are operators: made from the records `_np_*` and `_npi_*` when they
are first used."""

from __future__ import annotations

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from .elements import *  # noqa: F403
from .products import dot, einsum, matmul, tensordot, trace  # noqa: F401
from .sets import *  # noqa: F403
from .statistics import *  # noqa: F403
from .statistics import derived
from .ufuncs import *  # noqa: F403

__getattr__, __dir__ = derive(__name__, derived, "_npi_", "_np_", shown="np", random=False)
