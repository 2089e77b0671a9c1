"""mx.np: NumPy's interface on the engine. Arrays are `np.ndarray`; the operators behind the
functions are in kernels/ops/np."""

from collections.abc import Callable
from typing import Any

from ...kernels.namespaces import derive as _derive
from . import fft, linalg, random  # noqa: F401
from . import functions as _functions
from .array import *  # noqa: F403
from .compositions import *  # noqa: F403
from .creation import *  # noqa: F403
from .dlpack import from_dlpack  # noqa: F401
from .dtypes import *  # noqa: F403
from .dtypes import bool, float16, float32, float64, int8, int32, int64, uint8  # noqa: A004, F401
from .fallback import GONE as _GONE
from .fallback import NAMES as _NAMES
from .fallback import REPLACED as _REPLACED
from .fallback import NumpyFallback  # noqa: F401
from .fallback import named as _fallback
from .official import *  # noqa: F403
from .products import einsum_path  # noqa: F401
from .selection import *  # noqa: F403
from .shapes import *  # noqa: F403

_front, _fronts = _derive(
    __name__,
    lambda full, name: getattr(_functions, name),
    *("_npi_", "_np_"),
    shown="np",
    fixes={name: f"np.linalg.{name}" for name in linalg.ELSEWHERE},
    shows=_functions.is_function,
)


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in vars(_functions):
        globals()[name] = found = getattr(_functions, name)
        return found
    try:
        return _front(name)
    except AttributeError as error:
        found = _fallback(name)
        if found is None:
            raise error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    public = [n for n in globals() if not n.startswith("_")]
    return sorted({*public, *_fronts(), *_NAMES, *_GONE, *_REPLACED})


from . import methods as _methods  # noqa: E402, F401
from . import protocols as _protocols  # noqa: E402, F401
from . import standard as _standard  # noqa: E402, F401
