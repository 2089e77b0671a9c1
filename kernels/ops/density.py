"""Probability densities: `_random_pdf_*`, with gradients for samples and parameters.

Samples have the parameters' shape followed by more axes: several draws for each set of parameters.
"""

from __future__ import annotations

from math import log, pi
from typing import Any

from ...engine.error import DTypeError, ShapeError
from .. import special
from ..compose import vjp
from ..record import FLOATS, Array, Param, Type, ints, operator, sample, uniform, values
from ..shapes import same_dtype


class Numbers:
    """The operators that the densities use, on NumPy arrays, in float64."""

    def __init__(self, xp: Any):
        self.xp = xp

    def log(self, x: Array) -> Array:
        return self.xp.log(x)

    def exp(self, x: Array) -> Array:
        return self.xp.exp(x)

    def square(self, x: Array) -> Array:
        return x * x

    def gammaln(self, x: Array) -> Array:
        return special.gammaln(self.xp, x)

    def sum(self, x: Array, axis: int) -> Array:
        return x.sum(axis=axis)


def _normal(F, x, mu, sigma):
    return F.square((x - mu) / sigma) * -0.5 - F.log(sigma) - 0.5 * log(2 * pi)


def _gamma(F, x, alpha, beta):
    return alpha * F.log(beta) + (alpha - 1.0) * F.log(x) - beta * x - F.gammaln(alpha)


def _negative_binomial(F, x, k, p):
    ways = F.gammaln(x + k) - F.gammaln(x + 1.0) - F.gammaln(k)
    return ways + k * F.log(p) + x * F.log(1.0 - p)


def _generalized(F, x, mu, alpha):
    return _negative_binomial(F, x, 1.0 / alpha, 1.0 / (mu * alpha + 1.0))


def _dirichlet(F, x, alpha):
    spread = F.sum((alpha - 1.0) * F.log(x), axis=-1)
    return spread + F.gammaln(F.sum(alpha, axis=-1)) - F.sum(F.gammaln(alpha), axis=-1)


def _register(name, inputs, density, low=0.3, whole=False, doc=""):
    """density(F, sample, *parameters): the logarithm. whole: samples are whole numbers and have no
    gradient."""
    op = f"_random_pdf_{name}"
    vector = name == "dirichlet"
    names = ("sample", *inputs)

    def infer(ins, is_log):
        dtype = same_dtype(op, ins, names)
        if dtype not in FLOATS:
            raise DTypeError(op, f"needs floats, got {dtype}")
        x, first = ins[0].shape, ins[1].shape
        lead = first[: len(first) - vector]
        ends = not vector or (x[-1:] == first[-1:] and first)
        if any(t.shape != first for t in ins[2:]) or x[: len(lead)] != lead or not ends:
            raise ShapeError(
                op,
                "sample must have the parameters' shape followed by other axes, got "
                + ", ".join(f"{n} {t.shape}" for n, t in zip(names, ins)),
            )
        return [Type(x[: len(x) - vector], dtype)]

    def spread(reshape, x, given):
        """The parameters in a shape that broadcasts against the samples."""
        more = [1] * (len(x.shape) - len(given.shape))
        lead = tuple(given.shape)[: len(given.shape) - vector]
        return reshape(given, (*lead, *more, *tuple(given.shape)[len(lead) :]))

    def ref(xp, x, *given, is_log):
        wide, *parameters = (xp.asarray(a, "float64") for a in (x, *given))
        parameters = [spread(xp.reshape, x, a) for a in parameters]
        y = density(Numbers(xp), wide, *parameters) + xp.zeros(x.shape[: x.ndim - vector])
        return y if is_log else xp.exp(y)

    def composed(is_log):
        def compose(F, x, *given):
            view = lambda a, shape: F.reshape_to(a, shape=shape)
            y = density(F, x, *[spread(view, x, a) for a in given])
            shape = tuple(x.shape)[: len(x.shape) - vector]
            y = F.broadcast_to(y, shape=shape) if tuple(y.shape) != shape else y
            return y if is_log else F.exp(y)

        return compose

    def grad(F, dys, xs, ys, is_log):
        found = vjp(F, composed(is_log), xs, dys)
        return [None, *found[1:]] if whole else found

    def case(lead, more, **attrs):
        draws = [uniform((*lead, *([3] if vector else [])), low, 0.9) for _ in inputs]
        if name == "uniform":
            draws = [uniform(lead, -1, 0), uniform(lead, 1, 2)]
        shape = (*lead, *more, *([3] if vector else []))
        x = ints(shape, 0, 6) if whole else uniform(shape, 0.1, 0.9)
        return sample(x, *draws, **attrs)

    samples = [case((2,), (3,)), case((2, 2), (3, 2), is_log=True), case((3,), (), is_log=True)]
    if name == "poisson":
        samples.append(sample(values([0.0, 1.0, 2.5]), values([1.0, 2.0, 0.5])))
    operator(
        op,
        aliases=(f"random_pdf_{name}",),
        inputs=names,
        params=(Param("is_log", "bool", False),),
        infer=infer,
        ref=ref,
        grad=grad,
        samples=tuple(samples),
        doc=doc + " is_log: its logarithm. sample: the parameters' shape followed by other axes.",
    )


_register(
    "uniform",
    ("low", "high"),
    lambda F, x, low, high: F.log(high - low) * -1.0,
    doc="Density of the uniform distribution, 1 / (high - low) wherever the sample lies.",
)
_register("normal", ("mu", "sigma"), _normal, doc="Density of the normal distribution.")
_register("gamma", ("alpha", "beta"), _gamma, doc="Density of gamma: shape alpha, rate beta.")
_register(
    "exponential",
    ("lam",),
    lambda F, x, lam: F.log(lam) - lam * x,
    doc="Density of the exponential distribution with rate lam.",
)
_register(
    "poisson",
    ("lam",),
    lambda F, x, lam: x * F.log(lam) - F.gammaln(x + 1.0) - lam,
    whole=True,
    doc="Probability of whole numbers under Poisson's distribution with mean lam.",
)
_register(
    "negative_binomial",
    ("k", "p"),
    _negative_binomial,
    whole=True,
    doc="Probability of so many failures before k successes, each with probability p.",
)
_register(
    "generalized_negative_binomial",
    ("mu", "alpha"),
    _generalized,
    whole=True,
    doc="Probability under the negative binomial with mean mu and variance mu + alpha mu^2.",
)
_register(
    "dirichlet",
    ("alpha",),
    _dirichlet,
    doc="Density of Dirichlet's distribution over the last axis.",
)
