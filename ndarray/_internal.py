"""nd._internal: operators whose names start with an underscore."""

from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "", "_")
