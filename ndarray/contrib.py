"""nd.contrib: operators that MXNet calls contributed."""

from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "_contrib_")
