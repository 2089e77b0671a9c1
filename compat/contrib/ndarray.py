"""mx.contrib.ndarray: the functions of mx.nd.contrib under their older name."""

from typing import TYPE_CHECKING

from ...ndarray import contrib

if TYPE_CHECKING:
    from ...ndarray.contrib import *
else:
    __getattr__ = lambda name: getattr(contrib, name)
    __dir__ = lambda: dir(contrib)
