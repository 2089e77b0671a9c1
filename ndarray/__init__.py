"""nd: imperative arrays. `nd.relu(x)`, `nd.zeros(shape)`; every operator record is a function here."""
from . import functions, methods  # noqa: F401
from .ndarray import NDArray  # noqa: F401


def __getattr__(name):
    return getattr(functions, name)


def __dir__():
    return dir(functions)
