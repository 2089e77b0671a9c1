"""sym.sparse: operators that know storage types."""

from typing import TYPE_CHECKING

from ..kernels.namespaces import derive
from .symbol import function_of

if TYPE_CHECKING:
    from ._sparse_operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "_sparse_", shown="sym.sparse")
