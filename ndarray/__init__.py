"""nd: imperative arrays. `nd.relu(x)`, `nd.zeros(shape)`; every operator record is a function
here."""

from typing import TYPE_CHECKING

from ..engine.lazy import submodule as _submodule
from ..kernels.namespaces import derive
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

if TYPE_CHECKING:
    from ._operators import *
    from .creation import *
    from .custom import Custom
else:
    from .functions import *

    _get, _names = derive(__name__, functions.function_of, "", shown="nd")

    def __getattr__(name: str):
        return _submodule(__name__, name) if name in ("np", "npx") else _get(name)

    def __dir__():
        return sorted({*globals(), *_names()})

    del TYPE_CHECKING, derive  # no names of nd
