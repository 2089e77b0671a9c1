"""npx.random: bernoulli numbers, batches of normal and uniform ones, the seed."""

from ..numpy.random import OF_NPX, _random
from ..random import seed

bernoulli, normal_n, uniform_n = (getattr(_random, name) for name in OF_NPX)
__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]
