"""Random numbers: `_random_*` (parameters are numbers), `_random_*_like`, `_sample_*` (parameters
are arrays), sampling of classes, shuffling. `rng` is the stream of one call, so a seed gives the
same numbers on any machine."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..record import ANY, Param, Type, operator, same_type, sample, uniform, values
from ..shapes import same_dtype


class Distribution(NamedTuple):
    """draw(xp, rng, size, *parameters); parameters are (name, kind, default, lowest allowed
    value)."""

    parameters: tuple
    draw: object
    doc: str


def _uniform(xp, rng, size, low, high):
    return low + rng.random(size) * (high - low)


def _poisson(xp, rng, size, lam):
    # beyond 2^53 and below 0 there is nothing to draw
    return rng.poisson(xp.clip(xp.nan_to_num(lam), 0, 2.0**53), size)


def _gamma(xp, rng, size, alpha):
    return rng.standard_gamma(xp.clip(xp.nan_to_num(alpha), 0, 2.0**53), size)


def _negative_binomial(xp, rng, size, k, p):
    return _poisson(xp, rng, None, _gamma(xp, rng, size, k) * ((1 - p) / xp.maximum(p, 1e-30)))


def _generalized_negative_binomial(xp, rng, size, mu, alpha):
    safe = xp.where(xp.asarray(alpha) > 0, alpha, 1)
    spread = _gamma(xp, rng, size, 1 / safe) * (safe * mu)
    return _poisson(xp, rng, None, xp.where(xp.asarray(alpha) > 0, spread, mu))


def _float(name, default, low=None):
    return name, "float", default, low


DISTRIBUTIONS = {
    "uniform": Distribution(
        (_float("low", 0.0), _float("high", 1.0)), _uniform, "Uniform in [low, high)."
    ),
    "normal": Distribution(
        (_float("loc", 0.0), _float("scale", 1.0, 0)),
        lambda xp, rng, size, loc, scale: loc + scale * rng.standard_normal(size),
        "Normal with mean loc and standard deviation scale.",
    ),
    "exponential": Distribution(
        (_float("lam", 1.0, 0),),
        lambda xp, rng, size, lam: rng.standard_exponential(size) / lam,
        "Exponential with rate lam (mean 1 / lam).",
    ),
    "gamma": Distribution(
        (_float("alpha", 1.0, 0), _float("beta", 1.0, 0)),
        lambda xp, rng, size, alpha, beta: _gamma(xp, rng, size, alpha) * beta,
        "Gamma with shape alpha and scale beta (mean alpha * beta).",
    ),
    "poisson": Distribution((_float("lam", 1.0, 0),), _poisson, "Poisson with mean lam."),
    "negative_binomial": Distribution(
        (("k", "int", 1, 0), _float("p", 1.0, 0)),
        _negative_binomial,
        "Number of failures before k successes, each with probability p.",
    ),
    "generalized_negative_binomial": Distribution(
        (_float("mu", 1.0, 0), _float("alpha", 1.0, 0)),
        _generalized_negative_binomial,
        "Negative binomial with mean mu and variance mu + alpha mu^2.",
    ),
}
ARRAY_NAMES = {"normal": ("mu", "sigma")}  # _sample_normal calls its parameters so

_FLOAT_DTYPE = Param("dtype", ("None", "float16", "float32", "float64"), None)
_SHAPE, _CTX = Param("shape", "shape?", None), Param("ctx", "context", "")


def _check_parameters(op, distribution, given):
    for name, _, _, low in distribution.parameters:
        if low is not None and not given[name] >= low:
            raise OperatorError(op, f"{name} must be at least {low}, got {given[name]}")
    if not given.get("low", 0) <= given.get("high", 0) and "low" in given:
        raise OperatorError(
            op, f"low must be at most high, got low={given['low']} and high={given['high']}"
        )
    if distribution.draw is _negative_binomial and given["p"] > 1:
        raise OperatorError(op, f"p must be in [0, 1], got {given['p']}")


def _positive_shape(op, shape):
    shape = (1,) if shape is None else shape
    if any(n < 0 for n in shape):
        raise ShapeError(op, f"shape must not be negative, got {shape}")
    return shape


def _register(name, distribution):
    names = [p[0] for p in distribution.parameters]
    params = tuple(Param(n, kind, default) for n, kind, default, _ in distribution.parameters)
    op, like = f"_random_{name}", f"_random_{name}_like"

    def infer(ins, shape, ctx, dtype, **given):
        _check_parameters(op, distribution, given)
        return [Type(_positive_shape(op, shape), dtype or "float32")]

    def infer_like(ins, **given):
        _check_parameters(like, distribution, given)
        return [ins[0]]

    def ref(xp, *, shape, ctx, dtype, rng, **given):
        return distribution.draw(
            xp, rng, (1,) if shape is None else shape, *(given[n] for n in names)
        )

    def ref_like(xp, x, *, rng, **given):
        return distribution.draw(xp, rng, x.shape, *(given[n] for n in names))

    aliases = (f"random_{name}",) + ((name,) if name in ("uniform", "normal") else ())
    operator(
        op,
        aliases=aliases,
        inputs=(),
        params=(*params, _SHAPE, _CTX, _FLOAT_DTYPE),
        random=True,
        infer=infer,
        ref=ref,
        samples=(sample(shape=(3, 4)), sample(shape=(2, 0)), sample(shape=(5,), dtype="float64")),
        doc=distribution.doc + " shape: default (1,).",
    )
    operator(
        like,
        params=params,
        random=True,
        infer=infer_like,
        ref=ref_like,
        samples=(sample((3, 4)),),
        doc=distribution.doc + " Shape and dtype are those of data.",
    )
    _register_arrays(name, distribution)


def _register_arrays(name, distribution):
    op = f"_sample_{name}"
    inputs = ARRAY_NAMES.get(name, tuple(p[0] for p in distribution.parameters))

    def infer(ins, shape, dtype):
        for t, n in zip(ins, inputs):
            if t.shape != ins[0].shape:
                raise ShapeError(
                    op,
                    f"parameters must have equal shapes, got {inputs[0]} {ins[0].shape} and {n}"
                    f" {t.shape}",
                )
        same_dtype(op, ins, inputs)
        return [
            Type(
                (*ins[0].shape, *_positive_shape(op, shape or ())),
                dtype or "float32",
            )
        ]

    def ref(xp, *arrays, shape, dtype, rng):
        tail = tuple(shape or ())
        wide = [xp.asarray(a, "float64").reshape((*a.shape, *[1] * len(tail))) for a in arrays]
        return distribution.draw(xp, rng, (*arrays[0].shape, *tail), *wide)

    positive = {"p": (0.2, 0.8), "low": (-2, 0)}
    draws = lambda *s: [uniform(s, *positive.get(n, (0.5, 2))) for n in inputs]
    operator(
        op,
        aliases=(f"sample_{name}",),
        inputs=inputs,
        params=(Param("shape", "shape", ()), _FLOAT_DTYPE),
        random=True,
        infer=infer,
        ref=ref,
        samples=(
            sample(*draws(3)),
            sample(*draws(2, 3), shape=(4, 2)),
            sample(*draws(2), dtype="float64"),
        ),
        doc=distribution.doc
        + " The parameters are arrays of shape s; the result has shape s + shape.",
    )


for _name, _distribution in DISTRIBUTIONS.items():
    _register(_name, _distribution)


def _randint_infer(ins, low, high, shape, ctx, dtype):
    if low >= high:
        raise OperatorError(
            "_random_randint", f"low must be smaller than high, got low={low} and high={high}"
        )
    if dtype != "int64" and not -(2**31) <= low <= high <= 2**31:
        raise OperatorError(
            "_random_randint",
            f"low and high must fit int32, got low={low} and high={high}",
            fix="set dtype='int64'",
        )
    return [Type(_positive_shape("_random_randint", shape), dtype or "int32")]


operator(
    "_random_randint",
    aliases=("_npi_random_randint", "random_randint"),
    inputs=(),
    random=True,
    params=(
        Param("low", "int", limits=ANY),
        Param("high", "int", limits=ANY),
        _SHAPE,
        _CTX,
        Param("dtype", ("None", "int32", "int64"), None),
    ),
    infer=_randint_infer,
    ref=lambda xp, *, low, high, shape, ctx, dtype, rng: rng.integers(
        low, high, (1,) if shape is None else shape
    ),
    samples=(
        sample(low=-2, high=5, shape=(3, 4)),
        sample(low=0, high=2**40, shape=(3,), dtype="int64"),
    ),
    doc="Whole numbers in [low, high). shape: default (1,).",
)


# Classes from probabilities


def _multinomial_infer(ins, shape, get_prob, dtype):
    x = ins[0]
    if not x.shape or x.shape[-1] < 1:
        raise ShapeError(
            "_sample_multinomial",
            f"data must have at least one class on its last axis, got {x.shape}",
        )
    out = (*x.shape[:-1], *_positive_shape("_sample_multinomial", shape)) or (1,)
    return [Type(out, dtype)] + ([Type(out, x.dtype)] if get_prob else [])


def _multinomial_ref(xp, x, *, shape, get_prob, dtype, rng):
    n, k = prod(x.shape[:-1]), prod(shape or ())
    p = x.reshape(n, x.shape[-1]).astype("float64")
    edges = xp.cumsum(p, axis=1)
    u = rng.random((n, k)) * edges[:, -1:]
    index = xp.minimum((u[:, :, None] >= edges[:, None, :]).sum(axis=2), p.shape[1] - 1)
    out = (*x.shape[:-1], *(shape or ())) or (1,)
    if not get_prob:
        return index.reshape(out)
    return index.reshape(out), xp.log(xp.take_along_axis(p, index, axis=1)).reshape(out)


def _multinomial_grad(F, dys, xs, ys, shape, get_prob, dtype):
    x = xs[0]
    if not get_prob:
        return [None]
    n, k, classes = prod(x.shape[:-1]), prod(shape or ()), x.shape[-1]
    chosen = F.one_hot(F.reshape_to(ys[0], shape=(n, k)), depth=classes, dtype=x.dtype)
    total = F.sum(F.broadcast_mul(chosen, F.reshape_to(dys[1], shape=(n, k, 1))), axis=1)
    safe = F.broadcast_maximum(x, F._full(shape=x.shape, value=1e-20, dtype=x.dtype))
    return [F.reshape_to(total, shape=x.shape) / safe]


operator(
    "_sample_multinomial",
    aliases=("sample_multinomial",),
    params=(
        Param("shape", "shape", ()),
        Param("get_prob", "bool", False),
        Param("dtype", ("float16", "float32", "float64", "int32", "uint8"), "int32"),
    ),
    n_outputs=lambda get_prob, **_: 2 if get_prob else 1,
    random=True,
    infer=_multinomial_infer,
    ref=_multinomial_ref,
    grad=_multinomial_grad,
    samples=(
        sample(values([0.2, 0.3, 0.5])),
        sample(values([[0.2, 0.8], [1, 0]]), shape=(3,)),
        sample(values([[0.2, 0.8], [0.5, 0.5]]), shape=(3, 2), get_prob=True),
        sample(values([0.5, 0.5]), shape=(4,), dtype="float32"),
    ),
    doc=(
        "Class numbers drawn with the probabilities on data's last axis: shape data.shape[:-1] +"
        " shape. get_prob adds the logarithms of their probabilities, which have a gradient."
    ),
)


def _shuffle_infer(ins):
    if not ins[0].shape:
        raise ShapeError("_shuffle", "data must have at least 1 dimension, got ()")
    return same_type(ins)


operator(
    "_shuffle",
    aliases=("_npi_shuffle", "shuffle"),
    random=True,
    infer=_shuffle_infer,
    ref=lambda xp, x, *, rng: x[rng.permutation(x.shape[0])],
    samples=(sample((5,)), sample((4, 3)), sample((0, 2))),
    doc="data with its first axis in random order.",
)


# Classes by rank, drawn without repeats: how sampled softmax chooses its negatives


def _zipfian_infer(ins, range_max, shape):
    shape = _positive_shape(_ZIPFIAN, shape)
    if len(shape) != 2:
        raise ShapeError(_ZIPFIAN, f"shape must be (batch, samples), got {shape}")
    if shape[1] > range_max:
        raise OperatorError(
            _ZIPFIAN, f"range_max must be at least the number of samples, got {range_max}, {shape}"
        )
    return [Type(shape, "int64"), Type(shape[:1], "int64")]


def _zipfian_ref(xp, *, range_max, shape, rng):
    batch, n = shape
    found, tries = xp.zeros(shape, "int64"), xp.zeros(batch, "int64")
    for row in range(batch):
        drawn = xp.zeros(0, "int64")
        kept = drawn
        while len(kept) < n:
            more = xp.exp(rng.random(2 * n + 16) * xp.log(range_max + 1.0)) - 1
            drawn = xp.concatenate([drawn, xp.minimum(more.astype("int64"), range_max - 1)])
            first = xp.sort(xp.unique(drawn, return_index=True)[1])[:n]
            kept = drawn[first]
        found[row] = kept
        tries[row] = first[-1] + 1 if n else 0
    return found, tries


_ZIPFIAN = "_sample_unique_zipfian"

operator(
    _ZIPFIAN,
    inputs=(),
    n_outputs=2,
    output_names=("output0", "output1"),
    params=(Param("range_max", "int", limits=ANY), Param("shape", "shape?", None)),
    random=True,
    infer=_zipfian_infer,
    ref=_zipfian_ref,
    samples=(sample(range_max=100, shape=(2, 5)), sample(range_max=3, shape=(2, 3))),
    doc=(
        "Rows of different classes in [0, range_max), class k drawn with a probability proportional"
        " to log((k + 2) / (k + 1)), and how many draws each row took. shape: (batch, samples)."
    ),
)
