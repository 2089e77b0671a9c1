"""mx.image: reading, cropping, resizing and random augmentation of single images; iterators over
image files."""

from . import detection, image  # noqa: F401
from . import detection as det  # noqa: F401
from .detection import *  # noqa: F403
from .image import *  # noqa: F403
