"""mx.np: NumPy's interface on the engine. Arrays are `np.ndarray`; the operators behind the
functions are in kernels/ops/np."""

from ...kernels.namespaces import derive
from . import functions, random, standard  # noqa: F401
from .array import array, ndarray
from .dlpack import from_dlpack

__getattr__, __dir__ = derive(
    __name__, lambda full, name: getattr(functions, name), "_npi_", "_np_", shown="np"
)
