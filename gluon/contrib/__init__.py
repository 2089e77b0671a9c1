"""gluon.contrib: layers and tools outside MXNet's core list."""

import importlib

from . import data, nn  # noqa: F401

# so that importing gluon.contrib is fast
_ON_FIRST_USE = ("cnn", "estimator", "rnn")


def __getattr__(name):
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__():
    return ["data", "nn", *_ON_FIRST_USE]
