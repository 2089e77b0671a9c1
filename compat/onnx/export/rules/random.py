"""Operators that draw random numbers: other numbers than plait's, of the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph, Unmapped
from ..rule import rule
from ..tensors import Tensor
from ..write import code_of


def _drawn(g: Graph, kind: str, **attrs: float) -> Tensor:
    shape, dtype = g.outs[0].shape, g.outs[0].dtype
    made = [int(n) for n in shape]
    given: dict[str, Any] = attrs | {"dtype_": code_of(dtype), "shape_": made}
    return g.op(kind, dtype=dtype, shape=shape, **given)


@rule("_random_uniform", "_random_uniform_like")
def uniform(g: Graph, *like: Tensor, low: float, high: float, **_: Any) -> Tensor:
    return _drawn(g, "RandomUniform", low=low, high=high)


@rule("_random_normal", "_random_normal_like")
def normal(g: Graph, *like: Tensor, loc: float, scale: float, **_: Any) -> Tensor:
    return _drawn(g, "RandomNormal", mean=loc, scale=scale)


@rule("_random_exponential", "_random_exponential_like")
def exponential(g: Graph, *like: Tensor, lam: float, **_: Any) -> Tensor:
    return -g.Log(1.0 - _drawn(g, "RandomUniform", low=0.0, high=1.0)) / lam


@rule("_random_randint")
def randint(g: Graph, *, low: int, high: int, **_: Any) -> Tensor:
    shape, dtype = g.outs[0].shape, g.outs[0].dtype
    g.outs = [g.outs[0]._replace(dtype=np.dtype("float64"))]
    return g.cast(
        g.Floor(_drawn(g, "RandomUniform", low=float(low), high=float(high))), dtype
    ).again(shape)


@rule("Dropout")
def dropout(g: Graph, x: Tensor, *, p: float, mode: str, axes: Any, **_: Any) -> Any:
    if mode != "always" or p == 0:
        return x
    if p >= 1:
        return x * 0.0
    if axes:
        raise Unmapped("dropout in prediction of whole axes")
    return g.Dropout(x, np.float32(p), np.bool_(True))
