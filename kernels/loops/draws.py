"""The random numbers of a traced call: what stands for NumPy's Generator.

A number is a function of the seed, of the call and of its place: so each element of a loop draws
its own (cpu/draws.h), and one that is computed twice is the same both times.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..shapes import contiguous
from .arguments import Scalar
from .arrays import Array
from .nodes import Map, Node, Number, Place, Untraceable

MOST = 1 << 40  # numbers of one draw: each has 2^16 blocks of words, of 2^64
WEIGHTS = {"uniform": 25, "normal": 60, "exponential": 50, "gamma": 150, "poisson": 150}


class Generator:
    """Draws for a tracer. seed: the scalar of that index is the seed, the next one the call."""

    def __init__(self, tracer: Any, seed: int):
        self._tracer = tracer
        self._stream = [Number(Scalar(seed + i, "float64"), "float64") for i in range(2)]
        self._draws = 0

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"random.{name}")

    def _drawn(self, kind: str, size: Any, *parameters: Any) -> Array:
        t = self._tracer
        of: list[Node] = [t.cast(t.node(p), "float64") for p in parameters]
        if size is None:
            shape: tuple[int, ...] = max((x.shape for x in of), key=len, default=())
        else:
            shape = (size,) if hasattr(size, "__index__") else tuple(size)
        if prod(shape) > MOST or self._draws >= 63:
            raise Untraceable("too many random numbers")
        at = Place(shape, "int64", self._draws * MOST, contiguous(shape))
        self._draws += 1
        names = ", ".join(f"{{{i}}}" for i in range(3 + len(of)))
        made = Map(f"plk_draw_{kind}({names})", [*self._stream, at, *of], "float64")
        made.weight = WEIGHTS[kind]
        if made.shape != shape:
            raise Untraceable("parameters of another shape")
        return Array(t, made, weak=size is None and not shape)

    def random(self, size: Any = None) -> Array:
        return self._drawn("uniform", size)

    def uniform(self, low: Any, high: Any, size: Any = None) -> Array:
        return low + self._drawn("uniform", size) * (high - low)

    def standard_normal(self, size: Any = None) -> Array:
        return self._drawn("normal", size)

    def normal(self, loc: Any, scale: Any, size: Any = None) -> Array:
        return loc + self._drawn("normal", size) * scale

    def standard_exponential(self, size: Any = None) -> Array:
        return self._drawn("exponential", size)

    def standard_gamma(self, alpha: Any, size: Any = None) -> Array:
        return self._drawn("gamma", size, alpha)

    def poisson(self, lam: Any, size: Any = None) -> Array:
        return self._drawn("poisson", size, lam).astype("int64")
