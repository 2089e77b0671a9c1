"""gluon: blocks, layers, losses, optimizers and training loops."""

from typing import TYPE_CHECKING

from ..engine import missing
from ..engine.lazy import submodule
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

if TYPE_CHECKING:
    from ..training import metric as metric
    from . import contrib, data, model_zoo, rnn
else:

    def __getattr__(name: str):
        found = parameter.tensor_types if name == "tensor_types" else submodule(__name__, name)
        if found is None:
            raise missing.attribute("gluon", name)
        return found

    def __dir__():
        names = {*globals(), "contrib", "data", "metric", "model_zoo", "rnn"}
        return sorted(names - {"TYPE_CHECKING", "submodule"})
