"""nd.linalg: linear algebra."""

from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "_linalg_", "linalg_")
