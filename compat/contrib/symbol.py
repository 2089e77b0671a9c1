"""mx.contrib.symbol: the functions of mx.sym.contrib under their older name."""

from typing import TYPE_CHECKING

from ... import symbol

if TYPE_CHECKING:
    from ...symbol.contrib import *
else:
    __getattr__ = lambda name: getattr(symbol.contrib, name)
    __dir__ = lambda: dir(symbol.contrib)
