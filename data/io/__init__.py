"""mx.io: iterators that give batches to Module and to loops of one's own."""

from .io import *  # noqa: F403
from .io import __all__  # noqa: F401
