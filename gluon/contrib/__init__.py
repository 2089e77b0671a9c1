"""gluon.contrib: layers and tools outside MXNet's core list."""

from typing import TYPE_CHECKING

from ...engine import missing
from ...engine.lazy import submodule
from . import data, nn
from .int8 import Int8Dense, quantize_weights

__all__ = ["Int8Dense", "data", "nn", "quantize_weights"]

if TYPE_CHECKING:
    from . import cnn, estimator, rnn
else:

    def __getattr__(name: str):
        found = submodule(__name__, name)
        if found is None:
            raise missing.attribute("gluon.contrib", name)
        return found

    def __dir__():
        return ["Int8Dense", "cnn", "data", "estimator", "nn", "quantize_weights", "rnn"]
