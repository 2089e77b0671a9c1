"""mx.optimizer: how weights follow gradients."""

from . import optimizer  # noqa: F401
from .adaptive import (  # noqa: F401
    FTML,
    LAMB,
    AdaDelta,
    AdaGrad,
    Adam,
    Adamax,
    Ftrl,
    GroupAdaGrad,
    Nadam,
    RMSProp,
)
from .optimizer import Optimizer, create, register  # noqa: F401
from .sgd import DCASGD, LARS, LBSGD, NAG, SGD, SGLD, Signum, Test, ccSGD  # noqa: F401
from .updater import Updater, get_updater  # noqa: F401
