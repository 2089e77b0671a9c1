"""sym: graphs. `sym.var("data")`, `sym.FullyConnected(...)`; modules are imported at first use."""

import importlib
from typing import TYPE_CHECKING

from ..engine.lazy import submodule

if TYPE_CHECKING:
    from . import _internal, attribute, contrib, executor, image, linalg, name, op, random, sparse
    from . import symbol as symbol
    from . import viz as viz
    from ._operators import *
    from .functions import *
else:

    def __getattr__(name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        found = submodule(__name__, name)
        if found is None:
            functions = importlib.import_module(".functions", __name__)
            own = name in functions.__all__
            found = getattr(functions, name) if own else functions.__getattr__(name)
        globals()[name] = found
        return found

    def __dir__():
        modules = ("contrib", "image", "linalg", "op", "random", "sparse")
        return sorted({*dir(importlib.import_module(".functions", __name__)), *modules})

    del TYPE_CHECKING  # no name of sym
