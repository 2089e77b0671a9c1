"""sym._internal: operators whose names start with an underscore."""

from typing import TYPE_CHECKING

from ..kernels.namespaces import derive
from .symbol import function_of

if TYPE_CHECKING:
    from ._operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "_", "", shown="sym._internal")
