"""Attention of new tokens over a cache of keys and values: what a decoder needs that makes one
token after the other."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...engine.error import IndexOutOfRange, OperatorError, ShapeError, compose
from ..record import Attrs, Param, Type, Types, operator, sample, values
from ..shapes import same_dtype

NAME = "_contrib_cached_attention"


class Sizes(NamedTuple):
    """kept_heads: of keys and values; heads / kept_heads queries share one."""

    batch: int
    n_new: int
    heads: int
    kept_heads: int
    length: int
    dim: int
    dim_v: int
    n_positions: int
    scale: float


def sizes_of(ins: Types, attrs: Attrs) -> Sizes:
    """The sizes of a call. Raises ShapeError."""
    queries, keys, values, key_cache, value_cache, position = (t.shape for t in ins)
    caches = f"key_cache {key_cache} and value_cache {value_cache}"
    if len(key_cache) != 4 or len(value_cache) != 4 or key_cache[:3] != value_cache[:3]:
        raise ShapeError(
            NAME,
            "key_cache and value_cache must be (batch, heads, length, size) with the same batch,"
            f" heads and length, got {caches}",
        )
    batch, kept_heads, length, dim = key_cache
    dim_v = value_cache[3]
    n_new = queries[1] if len(queries) == 3 else -1
    expected = ((batch, n_new, kept_heads * dim), (batch, n_new, kept_heads * dim_v))
    if (keys, values) != expected or queries[0] != batch:
        raise ShapeError(
            NAME,
            "queries, keys and values must be (batch, new tokens, heads * size), keys and values"
            f" with the caches' heads, got {queries}, {keys} and {values} for {caches}",
        )
    if not dim or not kept_heads or queries[2] % (dim * kept_heads):
        raise ShapeError(
            NAME,
            "queries must have a multiple of the cache's heads, each of its size, got"
            f" {queries} for {caches}",
        )
    if n_new > length:
        raise ShapeError(NAME, f"{n_new} new tokens must fit into the caches, got {caches}")
    if position not in ((1,), (batch,)):
        raise ShapeError(NAME, f"position must have shape (1,) or ({batch},), got {position}")
    scale = dim**-0.5 if attrs["scale"] is None else attrs["scale"]
    heads = queries[2] // dim
    return Sizes(batch, n_new, heads, kept_heads, length, dim, dim_v, position[0], scale)


def _infer(ins: Types, **attrs: Any) -> list[Type]:
    names = ("queries", "keys", "values", "key_cache", "value_cache")
    s, dtype = sizes_of(ins, attrs), same_dtype(NAME, ins[:5], names)
    return [Type((s.batch, s.n_new, s.heads * s.dim_v), dtype)]


def _ref(xp, queries, keys, values, key_cache, value_cache, position, **attrs):
    given = (queries, keys, values, key_cache, value_cache, position)
    s = sizes_of([Type(a.shape, str(a.dtype)) for a in given], attrs)
    caches = [key_cache.copy(), value_cache.copy()]
    y = xp.zeros((s.batch, s.n_new, s.heads, s.dim_v), queries.dtype)
    for b in range(s.batch):
        at = int(position[b % s.n_positions])
        if not 0 <= at <= s.length - s.n_new:
            raise IndexOutOfRange(
                compose(
                    "cached_attention: position must be in [0, length - new tokens] ="
                    f" [0, {s.length - s.n_new}], got {at}",
                    fix="caches of shape (batch, heads, length, size) with a greater length",
                )
            )
        for cache, new in zip(caches, (keys, values)):
            new = new[b].reshape(s.n_new, s.kept_heads, cache.shape[3])
            cache[b, :, at : at + s.n_new] = xp.swapaxes(new, 0, 1)
        for i in range(s.n_new):
            q = queries[b, i].reshape(s.kept_heads, s.heads // s.kept_heads, s.dim)
            k, v = (c[b, :, : at + i + 1] for c in caches)
            scores = q @ xp.swapaxes(k, 1, 2) * s.scale
            e = xp.exp(scores - scores.max(axis=-1, keepdims=True))
            y[b, i] = (e / e.sum(axis=-1, keepdims=True) @ v).reshape(s.heads, s.dim_v)
    return y.reshape(s.batch, s.n_new, s.heads * s.dim_v), *caches


def no_gradient(F: Any, dys: Any, xs: Any, ys: Any, **attrs: Any) -> NoReturn:
    raise OperatorError(
        NAME,
        "has no gradient: later calls write the caches",
        fix="train on whole sequences, with softmax(q . k^T) . v and the same weights",
    )


def _draw(*shape: int) -> tuple:
    return values(np.random.default_rng(len(shape)).normal(size=shape).round(3).tolist())


_SAMPLES = (
    # batch, new tokens, heads, kept heads, length, size of keys, of values, positions
    ((1, 1, 2, 2, 5, 4, 4), [3]),
    ((2, 3, 2, 2, 6, 4, 3), [1, 3]),
    ((2, 18, 4, 2, 40, 3, 5), [7]),
    ((1, 4, 3, 1, 4, 2, 2), [0]),
)

operator(
    NAME,
    inputs=("queries", "keys", "values", "key_cache", "value_cache", "position"),
    params=(Param("scale", "float?", None, doc="of the scores; default: size of a key ** -0.5"),),
    mutates=("key_cache", "value_cache"),
    infer=_infer,
    ref=_ref,
    grad=no_gradient,
    samples=tuple(
        sample(
            _draw(b, t, h * d),
            _draw(b, t, kept * d),
            _draw(b, t, kept * e),
            _draw(b, kept, length, d),
            _draw(b, kept, length, e),
            values(at, "int32"),
        )
        for (b, t, h, kept, length, d, e), at in _SAMPLES
    ),
    doc=(
        "Attention of new tokens on all tokens so far. keys and values (batch, new tokens, heads *"
        " size) are written into the caches (batch, heads, length, size) at `position`, in place;"
        " then each query sees the tokens up to its own. position: how many tokens the caches hold"
        " already, one number or one for each of the batch; an array, so that a hybridized step"
        " runs at any position without a new trace. queries may have a multiple of the caches'"
        " heads, of which adjacent ones share keys (Ainslie et al. 2023, arXiv:2305.13245). Result"
        " (batch, new tokens, heads * size of a value). It has no gradient."
    ),
)
