"""Random numbers that are not one transformed number each: trials, choices, counts, vectors, and
whole numbers whose bounds are arrays."""

from __future__ import annotations

import math
from typing import Any

from ....engine.error import ShapeError
from ...front import DEFAULT, cast, dtype_of, floating, front, promoted, reshaped
from ...record import Array, Param, sample, uniform, values
from .random import (
    CTX,
    FLOAT,
    FRACTION,
    POSITIVE,
    SIZE,
    WHOLE,
    Draws,
    Parameter,
    check_number,
    drawn_shape,
    inside,
)

# ---- bernoulli -----------------------------------------------------------------------------------


def _bernoulli_rule(
    F: Any, *inputs: Array, prob: Any, logit: Any, size: Any, ctx: str, dtype: Any, is_logit: bool
) -> Array:
    given = inputs[0] if inputs else logit if is_logit else prob
    kind = dtype or DEFAULT
    shape = drawn_shape("random.bernoulli", size, [tuple(x.shape) for x in inputs])
    d = Draws(F, shape, "float32", ctx)
    if inputs:
        given = cast(F, given, "float32")
        p = F.sigmoid(given) if is_logit else given
    else:
        p = 1 / (1 + math.exp(-given)) if is_logit else float(given)
        check_number("random.bernoulli", Parameter("prob", None, FRACTION), p)
    return cast(F, F.broadcast_lesser(d.uniform(), d.full(p)), kind)


front(
    "_npi_bernoulli",
    _bernoulli_rule,
    inputs=("input1",),
    input_names=lambda prob, logit, **_: ("input1",) if prob is None and logit is None else (),
    params=(
        *(Param("prob", "float?", None), Param("logit", "float?", None), SIZE, CTX, WHOLE),
        Param("is_logit", "bool", False),
    ),
    random=True,
    ref=lambda xp, *x, prob, logit, size, ctx, dtype, is_logit, rng: (
        rng.random(size) < (prob if x == () else x[0])
    ),
    samples=(sample(size=(3, 4), prob=0.5),),
    doc="1 with probability prob, or sigmoid(logit), else 0.",
)

# ---- choices, counts, vectors --------------------------------------------------------------------


def _choice(
    F: Any, *inputs: Array, a: Any, size: Any, ctx: str, replace: bool, weighted: bool
) -> Array:
    source = inputs[0] if a is None else None
    n = a if source is None else source.shape[0]
    shape, weights = tuple(size or ()), inputs[-1:] if weighted else ()
    if not weighted and replace and n > 0:
        places = F._random_randint(low=0, high=n, shape=shape, ctx=ctx, dtype="int64")
    else:
        places = F._chosen(*weights, n=n, shape=shape, replace=replace, weighted=weighted)
    return places if source is None else F.take(source, places)


front(
    "_npi_choice",
    _choice,
    inputs=("input1", "input2"),
    input_names=lambda a, weighted, **_: ("input1", "input2")[: (a is None) + weighted],
    params=(
        *(Param("a", "int?", None), SIZE, CTX),
        *(Param("replace", "bool", True), Param("weighted", "bool", False)),
    ),
    random=True,
    ref=lambda xp, *inputs, a, size, ctx, replace, weighted, rng: rng.choice(
        inputs[0] if a is None else a, size, replace, inputs[-1] if weighted else None
    ),
    samples=(sample(a=5, size=(3,)), sample(values([1, 2, 3]), size=(2,), replace=False)),
    doc="Elements of an array's first axis, or whole numbers in [0, a), drawn at random.",
)


def _multinomial(F: Any, *inputs: Array, n: int, pvals: Any, size: Any) -> Array:
    if inputs:
        p = inputs[0]
    else:
        numbers = [F._full(shape=(1,), value=v, dtype="float64") for v in pvals]
        p = numbers[0] if len(numbers) == 1 else F.concat(*numbers, dim=0)
    return F._multinomial_counts(p, n=n, shape=tuple(size or ()))


front(
    "_npi_multinomial",
    _multinomial,
    inputs=("a",),
    input_names=lambda pvals, **_: ("a",) if pvals is None else (),
    params=(Param("n", "int"), Param("pvals", "floats?", None), SIZE),
    random=True,
    ref=lambda xp, *a, n, pvals, size, rng: rng.multinomial(n, a[0] if a else pvals, size),
    samples=(sample(n=10, pvals=(0.25, 0.75)), sample(values([0.25, 0.75]), n=4, size=(3,))),
    doc="How often each class of probabilities pvals occurs in n draws.",
)


def _dirichlet(F: Any, alpha: Array, size: Any, ctx: str, dtype: Any) -> Array:
    kind = dtype or floating(dtype_of(alpha))
    if not alpha.shape:
        raise ShapeError("random.dirichlet", "alpha must have at least one axis, got shape ()")
    work = "float64" if kind == "float64" else "float32"
    a = inside(F, cast(F, alpha, work), POSITIVE)
    d = Draws(F, (*(size or ()), *alpha.shape), work, ctx)
    return cast(F, F.softmax(d.log_gamma(a), axis=-1), kind)


front(
    "_npi_random_dirichlet",
    _dirichlet,
    inputs=("alpha",),
    params=(SIZE, CTX, FLOAT),
    random=True,
    ref=lambda xp, alpha, size, ctx, dtype, rng: rng.dirichlet(alpha, size),
    samples=(sample(uniform((3,), 0.5, 2), size=(4,)),),
    doc="Probabilities drawn from a Dirichlet distribution of parameters alpha (last axis).",
)


def _multivariate_normal(F: Any, mean: Array, cov: Array, size: Any, ctx: str, dtype: Any) -> Array:
    shown, m, c = "random.multivariate_normal", tuple(mean.shape), tuple(cov.shape)
    if not m or len(c) < 2 or c[-2:] != (m[-1], m[-1]):
        raise ShapeError(shown, f"mean must be (..., n) and cov (..., n, n), got {m} and {c}")
    kind = dtype or floating(promoted(dtype_of(mean), dtype_of(cov)))
    work = "float64" if kind == "float64" else "float32"
    batch = (*(size or ()), *drawn_shape(shown, None, [m[:-1], c[:-2]]))
    z = Draws(F, (*batch, m[-1]), work, ctx).normal()
    root = F._linalg_potrf(cast(F, cov, work))
    if len(c) == 2:
        flat = F.dot(reshaped(F, z, (math.prod(batch), m[-1])), root, transpose_b=True)
        moved = reshaped(F, flat, (*batch, m[-1]))
    else:
        rows = reshaped(F, z, (*batch, 1, m[-1]))
        moved = F.sum(F.broadcast_mul(root, rows), axis=-1)
    return cast(F, moved + cast(F, mean, work), kind)


front(
    "_npi_random_multivariate_normal",
    _multivariate_normal,
    inputs=("mean", "cov"),
    params=(SIZE, CTX, FLOAT),
    random=True,
    ref=lambda xp, mean, cov, size, ctx, dtype, rng: rng.multivariate_normal(mean, cov, size),
    samples=(sample((2,), values([[2.0, 0.5], [0.5, 1.0]]), size=(4,)),),
    doc="Normal vectors of a mean and a positive definite covariance; both may be batches.",
)


def _between(F: Any, low: Array, high: Array, size: Any, ctx: str, dtype: Any) -> Array:
    shape = drawn_shape("random.randint", size, [tuple(low.shape), tuple(high.shape)])
    made = Draws(F, shape, "float64", ctx).sampled("integers", low, high)
    return cast(F, made, dtype or "int64")


front(
    "_npi_random_between",
    _between,
    inputs=("low", "high"),
    params=(SIZE, CTX, WHOLE),
    random=True,
    ref=lambda xp, low, high, size, ctx, dtype, rng: rng.integers(low, high, size),
    samples=(sample(values([0, 5]), values([3, 9])),),
    doc="Whole numbers in [low, high), whose bounds are arrays.",
)
