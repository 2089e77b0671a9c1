"""mx.contrib.ndarray: the functions of mx.nd.contrib under their older name."""

from ...ndarray import contrib


def __getattr__(name):
    return getattr(contrib, name)


def __dir__():
    return dir(contrib)
