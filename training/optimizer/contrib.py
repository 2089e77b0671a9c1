"""optimizer.contrib: optimizers outside MXNet's core list."""

from ...ndarray.functions import zeros
from ...ndarray.ndarray import NDArray
from .adaptive import GroupAdaGrad
from .optimizer import Optimizer, register

__all__ = ["GroupAdaGrad", "NDArray", "Optimizer", "register", "zeros"]
