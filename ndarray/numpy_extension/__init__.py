"""mx.npx: what NumPy has not: neural operators, the switches of NumPy's semantics, files."""

from typing import Any

from ...engine import (  # noqa: F401
    Context,
    cpu,
    cpu_pinned,
    current_context,
    gpu,
    gpu_memory_info,
    num_gpus,
)
from ...engine.lazy import submodule
from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...kernels.record import REGISTRY
from ..contrib import cond, foreach, while_loop  # noqa: F401
from ..creation import waitall  # noqa: F401
from ..functions import operator_function
from ..numpy.array import operand
from ..numpy_mode import (  # noqa: F401
    get_cuda_compute_capability,
    is_np_array,
    is_np_shape,
    np_array,
    np_shape,
    reset_np,
    set_np,
    use_np,
    use_np_array,
    use_np_shape,
)
from . import random  # noqa: F401
from .files import load, save  # noqa: F401

_operator, __dir__ = derive(
    __name__,
    lambda full, name: operator_function(REGISTRY[full], name, operand),
    "_npx_",
    shown="npx",
)


def __getattr__(name: str) -> Any:
    return submodule(__name__, name) if name in ("image", "random") else _operator(name)
