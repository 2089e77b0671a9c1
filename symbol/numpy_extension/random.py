"""sym.npx.random: bernoulli numbers, batches of normal and uniform ones, the seed."""

from ...engine import current_context  # noqa: F401 - MXNet shows it
from ...ndarray.numpy.random import seed
from ..numpy.random import OF_NPX, _random

bernoulli, normal_n, uniform_n = (getattr(_random, name) for name in OF_NPX)
__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]
