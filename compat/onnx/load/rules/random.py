"""Random numbers: of plait's generator, so mx.random.seed decides them; the attribute seed is not
used."""

from __future__ import annotations

from typing import Any

from ...types import DTYPES
from ..run import Call, dtype_of, rule
from .pointwise import is_float
from .shape import checked


def _dtype(c: Call, x: Any = None) -> str:
    if c("dtype"):
        return DTYPES[c("dtype")]
    return dtype_of(x) if x is not None and is_float(x) else "float32"


def _uniform(c: Call, shape: Any, dtype: str, low: float = 0.0, high: float = 1.0) -> Any:
    made = c.np.random.uniform(low, high, size=shape)
    return c.cast(made, dtype)


def _normal(c: Call, shape: Any, dtype: str) -> Any:
    return c.cast(c.np.random.normal(c("mean", 0.0), c("scale", 1.0), size=shape), dtype)


@rule("RandomUniform", random=True)
def random_uniform(c: Call) -> Any:
    return _uniform(c, checked(c, c("shape")), _dtype(c), c("low", 0.0), c("high", 1.0))


@rule("RandomUniformLike", random=True)
def random_uniform_like(c: Call, x: Any) -> Any:
    return _uniform(c, tuple(x.shape), _dtype(c, x), c("low", 0.0), c("high", 1.0))


@rule("RandomNormal", random=True)
def random_normal(c: Call) -> Any:
    return _normal(c, checked(c, c("shape")), _dtype(c))


@rule("RandomNormalLike", random=True)
def random_normal_like(c: Call, x: Any) -> Any:
    return _normal(c, tuple(x.shape), _dtype(c, x))


@rule("Bernoulli", random=True)
def bernoulli(c: Call, x: Any) -> Any:
    drawn = _uniform(c, tuple(x.shape), "float64")
    dtype = DTYPES[c("dtype")] if c("dtype") else dtype_of(x)
    return c.np.less(drawn, x.astype("float64")).astype(dtype)
