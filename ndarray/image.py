"""nd.image: operators on images (height, width, channels)."""

from typing import TYPE_CHECKING

from ..kernels.namespaces import derive
from .functions import function_of

if TYPE_CHECKING:
    from ._image_operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "_image_", shown="nd.image")
