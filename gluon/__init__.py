"""gluon: blocks, layers, losses, optimizers and training loops."""
from . import loss, nn, utils  # noqa: F401
from .block import Block  # noqa: F401
from .hybrid import HybridBlock  # noqa: F401
from .parameter import Constant, DeferredInitializationError, Parameter  # noqa: F401
from .parameter_dict import ParameterDict  # noqa: F401
from .trainer import Trainer  # noqa: F401
from .symbol_block import SymbolBlock  # noqa: F401
