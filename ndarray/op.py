"""nd.op: every public operator."""

from typing import TYPE_CHECKING

from ..kernels.namespaces import derive
from .functions import function_of

if TYPE_CHECKING:
    from ._operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "", shown="nd.op")
