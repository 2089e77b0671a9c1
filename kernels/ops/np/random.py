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
from ...front import DEFAULT, cast, dtype_of, floating, front, promoted
from ...record import FLOATS, Array, Param, sample

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


def inside(F: Any, x: Array, domain: str) -> Array:
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
                    v if given[p.name] is not None else inside(F, cast(F, v, work), p.domain)
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
