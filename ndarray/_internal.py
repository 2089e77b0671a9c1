"""nd._internal: operators whose names start with an underscore."""

from .decode import _cvimdecode, _cvimread, _imdecode  # noqa: F401
from .namespaces import derive

__getattr__, __dir__ = derive(__name__, "", "_")
