"""npx.random: bernoulli numbers, batches of normal and uniform ones, the seed."""

from typing import Any

from ...engine import missing as _missing
from ..numpy.random import OF_NPX as _NAMES
from ..numpy.random import _random
from ..random import seed as _seed

bernoulli, normal_n, uniform_n = (getattr(_random, name) for name in _NAMES)


def seed(seed: int, ctx: Any = "all") -> None:
    """Restarts the random streams, as mx.random.seed."""
    _seed(seed, ctx)


def __getattr__(name: str) -> Any:
    raise _missing.attribute("npx.random", name)


__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]
