"""nd.op: every public operator."""

from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "")
