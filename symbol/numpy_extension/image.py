"""mx.sym.npx.image: operators on images (height, width, channels)."""

from ...kernels.namespaces import derive
from ..numpy.symbol import symbols
from ..symbol import function_of

__getattr__, __dir__ = derive(
    __name__,
    lambda full, name: symbols(function_of(full, name)),
    "_npx__image_",
    "_image_",
    shown="sym.npx.image",
)
