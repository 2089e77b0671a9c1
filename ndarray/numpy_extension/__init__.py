"""mx.npx: what NumPy has not: neural operators, the switches of NumPy's semantics, files."""

from ...kernels.namespaces import derive
from ...kernels.ops import np as _records  # noqa: F401  (fills the registry)
from ...kernels.record import REGISTRY
from ..creation import waitall  # noqa: F401
from ..functions import operator_function
from ..numpy.array import operand
from ..numpy_mode import (  # noqa: F401
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

__getattr__, __dir__ = derive(
    __name__,
    lambda full, name: operator_function(REGISTRY[full], name, operand),
    "_npx_",
    shown="npx",
)
