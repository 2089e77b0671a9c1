"""mx.optimizer: optimizers, which update weights from gradients."""

from ... import ndarray as _nd
from ...engine.base import py_str as _py_str
from ...ndarray.numpy_mode import is_np_array as _is_np_array
from . import contrib, optimizer  # noqa: F401
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
from .lamb import multi_lamb_update, multi_mp_lamb_update
from .optimizer import Optimizer, create, register  # noqa: F401
from .sgd import DCASGD, LARS, LBSGD, NAG, SGD, SGLD, Signum, Test, ccSGD  # noqa: F401
from .updater import Updater, get_updater  # noqa: F401

# MXNet keeps all of them in one file, which scripts import from: optimizer.optimizer.SGD
for _name, _thing in list(globals().items()):
    if isinstance(_thing, type):
        setattr(optimizer, _name, _thing)
for _name in ("array", "maximum", "multiply", "zeros"):
    setattr(optimizer, _name, getattr(_nd, _name))
vars(optimizer).update(
    get_updater=get_updater,
    normal=_nd.random.normal,
    multi_lamb_update=multi_lamb_update,
    multi_mp_lamb_update=multi_mp_lamb_update,
    is_np_array=_is_np_array,
    py_str=_py_str,
)
