"""Random numbers whose parameters are arrays, one number for each element: what mx.np.random draws
beside transformed uniform, normal and exponential numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...engine.error import InvalidValue, OperatorError, ShapeError
from .. import special
from ..record import ANY, Array, Param, Type, operator, same_type, sample, uniform, values
from ..shapes import float_dtype
from .sampling import first_order

# ---- gamma ---------------------------------------------------------------------------------------


def _like_alpha(ins, **_):
    float_dtype("_standard_gamma", ins, ("alpha", "drawn"))
    return [ins[0]]


MOST_TERMS, LARGE = 1e4, 1e6


def _slope(xp: Any, alpha: Array, drawn: Array) -> Array:
    """dz/da where z moves with a so that P(a, z) stays: -(dP/da) / (dP/dz). 0 where z is not above
    0."""
    a, z = alpha.astype("float64"), drawn.astype("float64")
    short = (z > 0) & (a < LARGE) & (z - a < MOST_TERMS)
    series = _slope_by_series(xp, xp.where(short, a, 1.0), xp.where(short, z, 1.0))
    a, z = xp.where(short, 1.0, a), xp.where(short | (z <= 0), 1.0, z)
    # a normal number moved by Wilson and Hilferty's cube root
    root = xp.cbrt(z / a)
    near = root**3 + root**2 / (3 * a) - 1.5 * root**2 * (root - 1 + 1 / (9 * a))
    # far out: of the first term of the tail, z^(a - 1) e^-z / Gamma(a)
    tail = (xp.log(z) - special.polygamma(xp, a, 0)) / (1 - (a - 1) / z)
    rest = xp.where(z > 2 * a, tail, near)
    return xp.where(short, series, xp.where(drawn > 0, rest, 0.0))


def _slope_by_series(xp: Any, a: Array, z: Array) -> Array:
    """Of P(a, z) = z^a e^-z sum z^k / Gamma(a + k + 1)."""
    gap = xp.log(z) - special.polygamma(xp, a + 1, 0)
    term = 1 / a
    total = term * gap
    k = 0
    while True:
        k += 1
        term = term * z / (a + k)
        gap = gap - 1 / (a + k)
        step = term * gap
        total = total + step
        # both parts of the tail fall once k exceeds z - a
        if not xp.any((xp.abs(step) > 1e-17 * xp.abs(total)) | (k < z - a)):
            return -z * total


operator(
    "_standard_gamma",
    inputs=("alpha",),
    random=True,
    infer=_like_alpha,
    ref=lambda xp, alpha, rng: rng.standard_gamma(alpha.astype("float64")),
    grad=lambda F, dys, xs, ys: [dys[0] * F._gamma_slope(xs[0], ys[0])],
    samples=(sample(uniform((3,), 0.5, 4)), sample(uniform((2, 0), 0.5, 4))),
    doc=(
        "Gamma numbers of shape parameters alpha and scale 1. The gradient moves a number so that"
        " its quantile stays. Source: Figurnov et al. 2018, Implicit Reparameterization Gradients."
    ),
)
operator(
    "_gamma_slope",
    inputs=("alpha", "drawn"),
    infer=_like_alpha,
    ref=_slope,
    grad=first_order("_gamma_slope"),
    samples=(
        sample(values([0.3, 1.0, 4.0, 90.0]), values([0.02, 0.7, 6.0, 80.0])),
        sample(values([2.0, 2.0], "float64"), values([0.0, 30.0], "float64")),
    ),
    doc="The derivative of a gamma number by its shape parameter, at a fixed quantile.",
)

# ---- distributions that NumPy samples ------------------------------------------------------------


class Sampled(NamedTuple):
    """A method of NumPy's Generator. whole: parameters that are whole numbers. discrete: the
    results are."""

    inputs: int
    whole: tuple[int, ...] = ()
    discrete: bool = True


SAMPLED = {
    "binomial": Sampled(2, whole=(0,)),
    "geometric": Sampled(1),
    "hypergeometric": Sampled(3, whole=(0, 1, 2)),
    "integers": Sampled(2, whole=(0, 1)),
    "logseries": Sampled(1),
    "negative_binomial": Sampled(2),
    "noncentral_chisquare": Sampled(2, discrete=False),
    "noncentral_f": Sampled(3, discrete=False),
    "poisson": Sampled(1),
    "vonmises": Sampled(2, discrete=False),
    "wald": Sampled(2, discrete=False),
    "zipf": Sampled(1),
}


def _sampled_infer(ins, distribution):
    for t in ins[1:]:
        if t.shape != ins[0].shape:
            raise ShapeError(
                "_sampled", f"inputs must have equal shapes, got {[t.shape for t in ins]}"
            )
    return [Type(ins[0].shape, "int64" if SAMPLED[distribution].discrete else "float64")]


def _sampled_ref(xp, *arrays, distribution, rng):
    found = SAMPLED[distribution]
    given = [a.astype("int64") if i in found.whole else a for i, a in enumerate(arrays)]
    if distribution == "geometric" and xp.any((arrays[0] <= 0) | (arrays[0] > 1)):
        raise InvalidValue("p must be in (0, 1]")  # NumPy lets 0 through
    return getattr(rng, distribution)(*given)


def _sampled_grad(F, dys, xs, ys, distribution):
    if SAMPLED[distribution].discrete:
        return [None] * len(xs)
    return [F._no_gradient(x, operator=f"random.{distribution}") for x in xs]


def _refuse(xp, x, operator):
    if x.size:
        raise OperatorError(operator, "has no gradient by its parameters", fix="x.detach()")
    return x


operator(
    "_no_gradient",
    params=(Param("operator", "str"),),
    infer=same_type,
    ref=_refuse,
    samples=(sample((0,), operator="random.wald"),),
    doc="Stands for a gradient that there is not; computing it is an error.",
)
operator(
    "_sampled",
    inputs=("*parameters",),
    input_names=lambda distribution, **_: tuple(
        f"parameter{i}" for i in range(SAMPLED[distribution].inputs)
    ),
    params=(Param("distribution", tuple(SAMPLED)),),
    random=True,
    infer=_sampled_infer,
    ref=_sampled_ref,
    grad=_sampled_grad,
    samples=(
        sample(uniform((3,), 0.5, 4), distribution="poisson"),
        sample(uniform((2, 3), 1, 9), uniform((2, 3), 0.2, 0.8), distribution="binomial"),
        sample(uniform((3,), 0.5, 2), uniform((3,), 0.5, 2), distribution="wald"),
    ),
    doc="One number of a distribution of NumPy's Generator for each element of its parameters.",
)

# ---- places and counts ---------------------------------------------------------------------------


def probabilities(xp: Any, p: Array) -> Array:
    """p in float64, with sum 1. Raises InvalidValue where it is not near that."""
    p = p.astype("float64")
    total = p.sum(axis=-1, keepdims=True)
    if not xp.all(p >= 0) or not xp.all(xp.abs(total - 1) < 1e-3):
        raise InvalidValue(
            f"probabilities must not be negative and must have sum 1, got sum {total.ravel()[:3]}"
        )
    return p / total


def _choice_infer(ins, n, shape, replace, weighted):
    if weighted and ins[0].shape != (n,):
        raise ShapeError("random.choice", f"p must have shape ({n},), got {ins[0].shape}")
    wanted = 1
    for k in shape:
        if k < 0:
            raise ShapeError("random.choice", f"size must not be negative, got {shape}")
        wanted *= k
    if wanted and n < 1:
        raise OperatorError("random.choice", f"a must have at least one element, got {n}")
    if not replace and wanted > n:
        raise OperatorError(
            "random.choice",
            f"size must be at most the number of elements without replacement, got {wanted} of {n}",
            fix="replace=True",
        )
    return [Type(shape, "int64")]


def _choice_ref(xp, *p, n, shape, replace, weighted, rng):
    weights = probabilities(xp, p[0]) if weighted else None
    if not n:
        return xp.zeros(shape, "int64")
    return rng.choice(n, shape, replace=replace, p=weights)


operator(
    "_chosen",
    inputs=("p",),
    input_names=lambda weighted, **_: ("p",) if weighted else (),
    params=(
        Param("n", "int", limits=ANY),
        Param("shape", "shape", ()),
        Param("replace", "bool", True),
        Param("weighted", "bool", False),
    ),
    random=True,
    infer=_choice_infer,
    ref=_choice_ref,
    samples=(
        sample(n=5, shape=(2, 3)),
        sample(n=5, shape=(4,), replace=False),
        sample(values([0.2, 0.3, 0.5]), n=3, shape=(2,), replace=False, weighted=True),
    ),
    doc="Whole numbers in [0, n), with or without repeats, alike or with probabilities p.",
)


def _counts_infer(ins, n, shape):
    if n < 0:
        raise OperatorError("random.multinomial", f"n must be at least 0, got {n}")
    if not ins[0].shape or ins[0].shape[-1] < 1:
        raise ShapeError(
            "random.multinomial",
            f"pvals must have at least one class on its last axis, got shape {ins[0].shape}",
        )
    return [Type((*shape, *ins[0].shape), "int64")]


operator(
    "_multinomial_counts",
    inputs=("pvals",),
    params=(Param("n", "int"), Param("shape", "shape", ())),
    random=True,
    infer=_counts_infer,
    ref=lambda xp, pvals, n, shape, rng: rng.multinomial(
        n, probabilities(xp, pvals), (*shape, *pvals.shape[:-1])
    ),
    samples=(
        sample(values([0.2, 0.3, 0.5]), n=10),
        sample(values([[0.2, 0.8], [0.5, 0.5]]), n=4, shape=(3,)),
    ),
    doc="How often each class occurs in n draws; shape: in front of pvals's shape.",
)
