"""Random numbers of mx.np.random and npx.random.

A parameter is a number, which is an attribute, or an array, which is an input; arrays broadcast.
Numbers are drawn without parameters and transformed: so gradients go through the parameters. A
number outside a domain is refused at once; an element of an array gives NaN, or an error when it is
drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....engine.error import OperatorError, ShapeError
from ...front import DEFAULT, cast, dtype_of, floating, front, promoted, reshaped
from ...record import FLOATS, Array, Param, sample, uniform, values

SIZE, CTX = Param("size", "shape?", None), Param("ctx", "context", "")
FLOAT = Param("dtype", ("None", *FLOATS), None)
WHOLE = Param("dtype", "dtype?", None)
ANY, NOT_NEGATIVE, POSITIVE, FRACTION = "any", "at least 0", "greater than 0", "in [0, 1]"
INSIDE: dict[str, Callable[[float], bool]] = {
    ANY: lambda v: v == v,
    NOT_NEGATIVE: lambda v: v >= 0,
    POSITIVE: lambda v: v > 0,
    FRACTION: lambda v: 0 <= v <= 1,
}
Given = Any  # a number or an array


class Parameter(NamedTuple):
    name: str
    default: float | None = None  # None: it must be given
    domain: str = ANY


class Distribution(NamedTuple):
    """A row of DISTRIBUTIONS.

    make: (draws, *parameters) -> numbers. direct: (F, shape, ctx, dtype, *numbers) -> them in one
    operator, or None, where no parameter is an array. whole: the results are int64.
    """

    parameters: tuple[Parameter, ...]
    make: Callable[..., Array]
    ref: Callable[..., Any]  # (rng, size, *parameters)
    doc: str
    direct: Callable[..., Array | None] = lambda *_: None
    whole: bool = False
    operator: str = ""


class Draws(NamedTuple):
    """The standard numbers of one call, and what transforms are written with."""

    F: Any
    shape: tuple[int, ...]
    dtype: str  # float32 or float64
    ctx: str

    def uniform(self) -> Array:
        """In [0, 1)."""
        return self.F._random_uniform(shape=self.shape, dtype=self.dtype, ctx=self.ctx)

    def normal(self) -> Array:
        return self.F._random_normal(shape=self.shape, dtype=self.dtype, ctx=self.ctx)

    def exponential(self) -> Array:
        """Never 0: its logarithm is finite."""
        e = self.F._random_exponential(shape=self.shape, dtype=self.dtype, ctx=self.ctx)
        return self.F._maximum_scalar(e, scalar=self.least)

    @property
    def least(self) -> float:
        """Half the distance of two uniform numbers."""
        return 2.0**-25 if self.dtype == "float32" else 2.0**-54

    def full(self, x: Given, dtype: str = "") -> Array:
        """A parameter, an element for each number."""
        dtype = dtype or self.dtype
        if isinstance(x, (int, float)) or 0 in self.shape:
            value = x if isinstance(x, (int, float)) else 0
            return self.F._full(shape=self.shape, value=value, dtype=dtype, ctx=self.ctx)
        x = cast(self.F, x, dtype)
        return x if tuple(x.shape) == self.shape else self.F.broadcast_to(x, shape=self.shape)

    def gamma(self, alpha: Given) -> Array:
        return self.F._standard_gamma(self.full(alpha))

    def log_gamma(self, alpha: Given) -> Array:
        """Logarithms of gamma numbers, which are finite for small alpha too: one of alpha + 1 and a
        uniform number to the power 1 / alpha make one of alpha."""
        return self.F.log(self.gamma(alpha + 1)) - self.exponential() / alpha

    def sampled(self, distribution: str, *parameters: Given) -> Array:
        """Numbers of `_sampled`."""
        wide = [self.full(p, "float64") for p in parameters]
        return self.F._sampled(*wide, distribution=distribution)


def placed(z: Array, loc: Given, scale: Given) -> Array:
    """loc + scale z."""
    if not isinstance(scale, float) or scale != 1:
        z = z * scale
    return z if isinstance(loc, float) and loc == 0 else z + loc


def _exp(d: Draws, x: Given) -> Given:
    return math.exp(x) if isinstance(x, float) else d.F.exp(x)


def _sqrt(d: Draws, x: Given) -> Given:
    return math.sqrt(x) if isinstance(x, float) else d.F.sqrt(x)


def _logistic(d: Draws, loc: Given, scale: Given) -> Array:
    u = d.F._maximum_scalar(d.uniform(), scalar=d.least)
    return placed(d.F.log(u) - d.F.log(1 - u), loc, scale)


def _uniform(d: Draws, low: Given, high: Given) -> Array:
    return d.uniform() * (high - low) + low


def _beta(d: Draws, a: Given, b: Given) -> Array:
    return d.F.sigmoid(d.log_gamma(a) - d.log_gamma(b))


def _f(d: Draws, dfnum: Given, dfden: Given) -> Array:
    ratio = d.F.exp(d.log_gamma(dfnum / 2) - d.log_gamma(dfden / 2))
    return ratio * (dfden / dfnum)


def _student(d: Draws, df: Given) -> Array:
    return d.normal() * d.F.exp(d.log_gamma(df / 2) * -0.5) * _sqrt(d, df / 2)


def _triangular(d: Draws, left: Given, mode: Given, right: Given) -> Array:
    """The inverse of the distribution function."""
    u = d.uniform()
    below = (mode - left) / (right - left)
    tiny = 1e-30  # the square root's slope is finite on the side that is not taken

    def root(x: Array) -> Array:
        return d.F.sqrt(d.F._maximum_scalar(x, scalar=tiny))

    rising = root(u * ((right - left) * (mode - left))) + left
    falling = right - root((1 - u) * ((right - left) * (right - mode)))
    return d.F.where(d.F.broadcast_lesser(u, d.full(below)), rising, falling)


def _normal_number(F: Any, shape: Any, ctx: str, dtype: str, loc: float, scale: float) -> Array:
    return F._random_normal(shape=shape, ctx=ctx, dtype=dtype, loc=loc, scale=scale)


def _uniform_number(F: Any, shape: Any, ctx: str, dtype: str, low: float, high: float) -> Any:
    if low > high:  # as NumPy and MXNet: the same interval
        return None
    return F._random_uniform(shape=shape, ctx=ctx, dtype=dtype, low=low, high=high)


def _exponential_number(F: Any, shape: Any, ctx: str, dtype: str, scale: float) -> Any:
    if not scale:
        return F._zeros(shape=shape, ctx=ctx, dtype=dtype)
    return F._random_exponential(shape=shape, ctx=ctx, dtype=dtype, lam=1 / scale)


def _gamma_number(F: Any, shape: Any, ctx: str, dtype: str, alpha: float, scale: float) -> Array:
    return F._random_gamma(shape=shape, ctx=ctx, dtype=dtype, alpha=alpha, beta=scale)


LOC, SCALE = Parameter("loc", 0.0), Parameter("scale", 1.0, NOT_NEGATIVE)
A, DF = Parameter("a", None, POSITIVE), Parameter("df", None, POSITIVE)
P, LAM = Parameter("p", None, FRACTION), Parameter("lam", 1.0, NOT_NEGATIVE)


def _sampled(name: str, *parameters: Parameter, doc: str, whole: bool = True) -> Distribution:
    """A row whose numbers NumPy samples."""
    return Distribution(
        parameters,
        lambda d, *given: d.sampled(name, *given),
        lambda rng, size, *given: getattr(rng, name)(*given, size),
        doc,
        whole=whole,
    )


DISTRIBUTIONS = {
    "normal": Distribution(
        (LOC, SCALE),
        lambda d, loc, scale: placed(d.normal(), loc, scale),
        lambda rng, size, loc, scale: rng.normal(loc, scale, size),
        "Normal with mean loc and standard deviation scale.",
        direct=_normal_number,
        operator="_npi_normal",
    ),
    "uniform": Distribution(
        (Parameter("low", 0.0), Parameter("high", 1.0)),
        _uniform,
        lambda rng, size, low, high: low + (high - low) * rng.random(size),
        "Uniform in [low, high).",
        direct=_uniform_number,
        operator="_npi_uniform",
    ),
    "exponential": Distribution(
        (SCALE,),
        lambda d, scale: placed(d.exponential(), 0.0, scale),
        lambda rng, size, scale: rng.exponential(scale, size),
        "Exponential with mean scale.",
        direct=_exponential_number,
        operator="_npi_exponential",
    ),
    "gamma": Distribution(
        (Parameter("shape", None, POSITIVE), SCALE),
        lambda d, shape, scale: placed(d.gamma(shape), 0.0, scale),
        lambda rng, size, shape, scale: rng.gamma(shape, scale, size),
        "Gamma with a shape and a scale (mean shape * scale).",
        direct=_gamma_number,
        operator="_npi_gamma",
    ),
    "gumbel": Distribution(
        (LOC, SCALE),
        lambda d, loc, scale: placed(d.F.negative(d.F.log(d.exponential())), loc, scale),
        lambda rng, size, loc, scale: rng.gumbel(loc, scale, size),
        "Gumbel: the largest of many numbers.",
        operator="_npi_gumbel",
    ),
    "logistic": Distribution(
        (LOC, SCALE),
        _logistic,
        lambda rng, size, loc, scale: rng.logistic(loc, scale, size),
        "Logistic with mean loc.",
        operator="_npi_logistic",
    ),
    "rayleigh": Distribution(
        (SCALE,),
        lambda d, scale: placed(d.F.sqrt(d.exponential() * 2.0), 0.0, scale),
        lambda rng, size, scale: rng.rayleigh(scale, size),
        "Rayleigh: the length of a vector of two normal numbers of deviation scale.",
        operator="_npi_rayleigh",
    ),
    "weibull": Distribution(
        (A,),
        lambda d, a: d.exponential() ** (1 / a),
        lambda rng, size, a: rng.weibull(a, size),
        "Weibull with shape a and scale 1.",
        operator="_npi_weibull",
    ),
    "pareto": Distribution(
        (A,),
        lambda d, a: d.F.expm1(d.exponential() / a),
        lambda rng, size, a: rng.pareto(a, size),
        "Pareto II (Lomax) with shape a.",
        operator="_npi_pareto",
    ),
    "power": Distribution(
        (A,),
        lambda d, a: d.F.exp(d.exponential() * -1.0 / a),
        lambda rng, size, a: rng.power(a, size),
        "In [0, 1], with density a x^(a - 1).",
        operator="_npi_powerd",
    ),
    "laplace": Distribution(
        (LOC, SCALE),
        lambda d, loc, scale: placed(d.exponential() - d.exponential(), loc, scale),
        lambda rng, size, loc, scale: rng.laplace(loc, scale, size),
        "Laplace with mean loc.",
    ),
    "lognormal": Distribution(
        (Parameter("mean", 0.0), Parameter("sigma", 1.0, NOT_NEGATIVE)),
        lambda d, mean, sigma: d.F.exp(placed(d.normal(), mean, sigma)),
        lambda rng, size, mean, sigma: rng.lognormal(mean, sigma, size),
        "The exponential of a normal number.",
    ),
    "beta": Distribution(
        (Parameter("a", None, POSITIVE), Parameter("b", None, POSITIVE)),
        _beta,
        lambda rng, size, a, b: rng.beta(a, b, size),
        "Beta, in [0, 1], with mean a / (a + b).",
    ),
    "chisquare": Distribution(
        (DF,),
        lambda d, df: d.gamma(df / 2) * 2.0,
        lambda rng, size, df: rng.chisquare(df, size),
        "Chi-square with df degrees of freedom.",
    ),
    "f": Distribution(
        (Parameter("dfnum", None, POSITIVE), Parameter("dfden", None, POSITIVE)),
        _f,
        lambda rng, size, dfnum, dfden: rng.f(dfnum, dfden, size),
        "F with dfnum and dfden degrees of freedom.",
    ),
    "standard_t": Distribution(
        (DF,),
        _student,
        lambda rng, size, df: rng.standard_t(df, size),
        "Student's t with df degrees of freedom.",
    ),
    "standard_cauchy": Distribution(
        (),
        lambda d: d.F.tan((d.uniform() - 0.5) * math.pi),
        lambda rng, size: rng.standard_cauchy(size),
        "Cauchy with median 0.",
    ),
    "triangular": Distribution(
        (Parameter("left"), Parameter("mode"), Parameter("right")),
        _triangular,
        lambda rng, size, left, mode, right: rng.triangular(left, mode, right, size),
        "In [left, right], most often near mode.",
    ),
    "poisson": _sampled("poisson", LAM, doc="Poisson with mean lam."),
    "binomial": _sampled(
        "binomial", Parameter("n", None, NOT_NEGATIVE), P, doc="Successes in n trials."
    ),
    "geometric": _sampled("geometric", P, doc="Trials up to the first success."),
    "negative_binomial": _sampled(
        "negative_binomial",
        Parameter("n", None, POSITIVE),
        P,
        doc="Failures before n successes of probability p.",
    ),
    "hypergeometric": _sampled(
        "hypergeometric",
        Parameter("ngood", None, NOT_NEGATIVE),
        Parameter("nbad", None, NOT_NEGATIVE),
        Parameter("nsample", None, NOT_NEGATIVE),
        doc="How many of nsample things, taken from ngood and nbad, are good.",
    ),
    "logseries": _sampled("logseries", P, doc="The logarithmic series distribution."),
    "zipf": _sampled("zipf", Parameter("a", None, POSITIVE), doc="Zipf with exponent a > 1."),
    "noncentral_chisquare": _sampled(
        "noncentral_chisquare",
        DF,
        Parameter("nonc", None, NOT_NEGATIVE),
        doc="Noncentral chi-square. No gradient.",
        whole=False,
    ),
    "noncentral_f": _sampled(
        "noncentral_f",
        Parameter("dfnum", None, POSITIVE),
        Parameter("dfden", None, POSITIVE),
        Parameter("nonc", None, NOT_NEGATIVE),
        doc="Noncentral F. No gradient.",
        whole=False,
    ),
    "vonmises": _sampled(
        "vonmises",
        Parameter("mu"),
        Parameter("kappa", None, NOT_NEGATIVE),
        doc="Von Mises, in [-pi, pi]. No gradient.",
        whole=False,
    ),
    "wald": _sampled(
        "wald",
        Parameter("mean", None, POSITIVE),
        Parameter("scale", None, POSITIVE),
        doc="Wald, or inverse Gaussian. No gradient.",
        whole=False,
    ),
}


def operator_of(name: str) -> str:
    """The front of a distribution: MXNet's name where it has one."""
    return DISTRIBUTIONS[name].operator or f"_npi_random_{name}"


def check_number(op: str, parameter: Parameter, value: float) -> None:
    if not INSIDE[parameter.domain](value):
        domain = parameter.domain if parameter.domain != ANY else "a number"
        raise OperatorError(op, f"{parameter.name} must be {domain}, got {value}")


def drawn_shape(op: str, size: tuple[int, ...] | None, shapes: list[tuple[int, ...]]) -> Any:
    """The shape of a result: size, or that of the parameters, which must broadcast to it."""
    try:
        common = np.broadcast_shapes(*shapes)
        if size is None or np.broadcast_shapes(common, size) == tuple(size):
            found = tuple(common if size is None else size)
            if all(n >= 0 for n in found):
                return found
    except ValueError:
        pass
    raise ShapeError(
        op,
        f"size must be a shape to which the parameters broadcast, got size {size} and parameters"
        f" of shapes {shapes}",
    )


def _valid(F: Any, x: Array, domain: str) -> Array:
    """x, NaN where it is outside the domain."""
    outside = {NOT_NEGATIVE: "_lesser_scalar", POSITIVE: "_lesser_equal_scalar"}.get(domain)
    if outside is None:
        return x
    nan = F._full(shape=tuple(x.shape), value=math.nan, dtype=dtype_of(x))
    return F.where(getattr(F, outside)(x, scalar=0.0), nan, x)


def _register(name: str, found: Distribution, batched: bool = False) -> None:
    """batched: size stands in front of the parameters' shape."""
    op = f"{operator_of(name)}_n" if batched else operator_of(name)
    shown, names = f"random.{name}", [p.name for p in found.parameters]

    def rule(F: Any, *inputs: Array, size: Any, ctx: str, dtype: Any, **given: Any) -> Array:
        rest = iter(inputs)
        of = [given[n] if given[n] is not None else next(rest) for n in names]
        for p, value in zip(found.parameters, of):
            if given[p.name] is not None:
                check_number(shown, p, value)
        kind = dtype or ("int64" if found.whole else DEFAULT)
        if inputs and not dtype and not found.whole:
            kind = floating(promoted(*[dtype_of(x) for x in inputs]))
        work = "float64" if kind == "float64" else "float32"
        shapes = [tuple(x.shape) for x in inputs]
        if batched:
            size = (*(size or ()), *drawn_shape(shown, None, shapes))
        shape = drawn_shape(shown, size, shapes)
        made = None if inputs else found.direct(F, shape, ctx, work, *of)
        if made is None:
            if not found.whole:
                of = [
                    v if given[p.name] is not None else _valid(F, cast(F, v, work), p.domain)
                    for p, v in zip(found.parameters, of)
                ]
            made = found.make(Draws(F, shape, work, ctx), *of)
        return cast(F, made, kind)

    def ref(
        xp: Any, *inputs: Array, size: Any, ctx: str, dtype: Any, rng: Any, **given: Any
    ) -> Any:
        rest = iter(inputs)
        of = [given[n] if given[n] is not None else next(rest) for n in names]
        shape = np.broadcast_shapes(*[x.shape for x in inputs])
        size = (*(size or ()), *shape) if batched else shape if size is None else size
        return found.ref(rng, size, *of)

    fixed = {p.name: 2.5 for p in found.parameters if p.default is None}
    fixed |= {n: v for n, v in {"p": 0.3, "left": 1, "mode": 2, "right": 3}.items() if n in fixed}
    front(
        op,
        rule,
        inputs=tuple(f"input{i + 1}" for i in range(len(names))),
        input_names=lambda **given: tuple(
            f"input{i + 1}" for i in range(sum(given[n] is None for n in names))
        ),
        params=(
            *(Param(p.name, "float?", None) for p in found.parameters),
            *(SIZE, CTX, WHOLE if found.whole else FLOAT),
        ),
        random=True,
        ref=ref,
        samples=(sample(size=(3, 4), **{p.name: p.default for p in found.parameters} | fixed),),
        doc=f"{found.doc} A parameter that is None is an input; they broadcast.",
    )


for _name, _found in DISTRIBUTIONS.items():
    _register(_name, _found)
for _name in ("normal", "uniform"):
    _register(_name, DISTRIBUTIONS[_name], batched=True)

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
    a = _valid(F, cast(F, alpha, work), POSITIVE)
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
