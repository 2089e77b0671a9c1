"""nd: imperative arrays. `nd.relu(x)`, `nd.zeros(shape)`; every operator record is a function
here."""

from . import (
    _internal,
    contrib,
    functions,
    image,
    linalg,
    methods,
    op,
    random,
    sparse,
)  # noqa: F401
from .arithmetic import *  # noqa: F403
from .cached_op import CachedOp  # noqa: F401
from .decode import imdecode  # noqa: F401
from .function import Function  # noqa: F401
from .interop import from_dlpack, from_numpy, to_dlpack_for_read, to_dlpack_for_write  # noqa: F401
from .keys import (  # noqa: F401
    get_indexing_dispatch_code,
    get_oshape_of_gather_nd_op,
    indexing_key_expand_implicit_axes,
)
from .ndarray import NDArray  # noqa: F401
from .serialization import load, load_frombuffer, save, save_tobuffer  # noqa: F401


def __getattr__(name):
    known = name in functions.__all__ or name in functions.REGISTRY
    value = getattr(functions, name) if known else functions.__getattr__(name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *dir(functions)})
