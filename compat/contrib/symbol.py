"""mx.contrib.symbol: the functions of mx.sym.contrib under their older name."""

from ... import symbol


def __getattr__(name):
    return getattr(symbol.contrib, name)


def __dir__():
    return dir(symbol.contrib)
