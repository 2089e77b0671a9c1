"""gluon.contrib: layers and tools outside MXNet's core list."""

from typing import TYPE_CHECKING

from ...engine import missing
from ...engine.lazy import submodule
from . import data, nn

if TYPE_CHECKING:
    from . import cnn, estimator, rnn
else:

    def __getattr__(name: str):
        found = submodule(__name__, name)
        if found is None:
            raise missing.attribute("gluon.contrib", name)
        return found

    def __dir__():
        return ["cnn", "data", "estimator", "nn", "rnn"]
