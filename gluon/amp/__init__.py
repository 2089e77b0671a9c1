"""mx.contrib.amp: automatic mixed precision."""

from . import amp, loss_scaler  # noqa: F401
from .amp import *  # noqa: F403
from .amp import __all__
