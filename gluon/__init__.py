"""gluon: blocks, layers, losses, optimizers and training loops."""

import importlib

from . import block, loss, nn, parameter, utils  # noqa: F401
from .block import Block  # noqa: F401
from .hybrid import HybridBlock  # noqa: F401
from .parameter import Constant, DeferredInitializationError, Parameter  # noqa: F401
from .parameter_dict import ParameterDict  # noqa: F401
from .symbol_block import SymbolBlock  # noqa: F401
from .trainer import Trainer  # noqa: F401

# MXNet has these classes in fewer modules: scripts import gluon.block.HybridBlock
vars(block).update(HybridBlock=HybridBlock, SymbolBlock=SymbolBlock)
vars(parameter).update(ParameterDict=ParameterDict)

# so that importing gluon is fast
_ON_FIRST_USE = ("contrib", "data", "metric", "model_zoo", "rnn")


def __getattr__(name):
    if name == "tensor_types":
        return parameter.tensor_types
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__package__.rpartition('.')[0]}.gluon.{name}")


def __dir__():
    return sorted({*globals(), *_ON_FIRST_USE} - {"importlib"})
