"""sym.linalg: linear algebra."""

from typing import TYPE_CHECKING

from ..kernels.namespaces import derive
from .symbol import function_of

if TYPE_CHECKING:
    from ._linalg_operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "_linalg_", shown="sym.linalg")
