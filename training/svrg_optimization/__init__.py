"""Stochastic variance reduced gradients. Source: Johnson and Zhang 2013, Accelerating stochastic
gradient descent using predictive variance reduction."""

from . import svrg_module, svrg_optimizer  # noqa: F401
from .svrg_module import SVRGModule  # noqa: F401
