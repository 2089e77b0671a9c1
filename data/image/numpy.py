"""mx.npx.image: all of mx.image, and the operators on images (height, width, channels)."""

from __future__ import annotations

from ...kernels.namespaces import derive
from ...kernels.record import REGISTRY
from ...ndarray.functions import operator_function
from .detection import *  # noqa: F403
from .image import *  # noqa: F403

__getattr__, __dir__ = derive(
    __name__,
    lambda full, name: operator_function(REGISTRY[full], name),
    "_npx__image_",
    "_image_",
    shown="npx.image",
)
