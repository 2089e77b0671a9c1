"""nd.image: operators on images (height, width, channels)."""

from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "_image_")
