"""mx.io: iterators that produce batches for Module and for custom training loops."""

from .io import *  # noqa: F403
from .io import __all__  # noqa: F401
