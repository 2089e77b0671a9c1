"""mx.contrib: mixed precision, text, TensorBoard, data iterators, old autograd, namespaces."""

import importlib

from ...engine import missing

_PACKAGE = __package__.partition(".")[0]
# so that importing mx.contrib is fast; other names of mx.contrib: its own modules
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
        raise missing.attribute("contrib", name)
    return importlib.import_module(f"{_PACKAGE}.contrib.{_ON_FIRST_USE[name]}")


def __dir__():
    return sorted({*globals(), *_ON_FIRST_USE})
