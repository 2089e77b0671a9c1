"""npx.random: bernoulli numbers, batches of normal and uniform ones, the seed."""

from ..numpy.random import OF_NPX as _NAMES
from ..numpy.random import _random, seed

bernoulli, normal_n, uniform_n = (getattr(_random, name) for name in _NAMES)
__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]
