"""contrib.data: samplers and texts."""

import importlib

from ....data.sampler import IntervalSampler  # noqa: F401


def __getattr__(name):
    if name not in ("sampler", "text"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__():
    return ["IntervalSampler", "sampler", "text"]
