"""mx.contrib: mixed precision, text, TensorBoard, data iterators, old autograd, namespaces."""

import importlib

from ...engine import missing

# so that importing mx.contrib stays quick; other names of mx.contrib: its own modules
_ON_FIRST_USE = {
    "amp": "amp",
    "autograd": "autograd",
    "io": "io",
    "nd": "ndarray",
    "ndarray": "ndarray",
    "sym": "symbol",
    "symbol": "symbol",
    "svrg_optimization": "svrg_optimization",
    "tensorboard": "tensorboard",
    "text": "text",
}


def __getattr__(name):
    if name not in _ON_FIRST_USE:
        raise missing.attribute(__name__, name)
    return importlib.import_module(f".{_ON_FIRST_USE[name]}", __name__)


def __dir__():
    return sorted({*globals(), *_ON_FIRST_USE})
