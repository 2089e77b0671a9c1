"""mx.image: single images read, cut, resized and changed at random; iterators over image files."""

from . import detection, image  # noqa: F401
from . import detection as det  # noqa: F401
from .detection import *  # noqa: F403
from .image import *  # noqa: F403
