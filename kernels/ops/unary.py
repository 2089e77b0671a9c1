"""Unary math: one array in, one of the same shape out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...engine.error import OperatorError
from .. import special
from ..activations import ACTIVATIONS, Act
from ..pointwise import pointwise
from ..record import (
    REQUIRED,
    Array,
    Param,
    Ref,
    elementwise,
    operator,
    sample,
)
from ..traits import Activates, Involution

LN2, LN10 = math.log(2.0), math.log(10.0)


def unary(
    name: str, text: str, ref: Ref, grad: Callable[..., Array] | None = None, **fields: Any
) -> None:
    """A pointwise operator of one array whose MXNet alias for sparse arrays is _sparse_<name>."""
    fields.setdefault("aliases", (f"_sparse_{name}",))
    pointwise(name, text, ref=ref, grad=grad, **fields)


# ---- powers, exponentials, logarithms ------------------------------------------------------------
unary(
    "exp", "exp(x)", lambda xp, x: xp.exp(x), lambda F, dy, x, y: dy * y, doc="e to the power of x."
)
unary(
    "_exp2",
    "exp2(x)",
    lambda xp, x: xp.exp2(x),
    lambda F, dy, x, y: dy * y * LN2,
    aliases=(),
    doc="2 to the power of x.",
)
unary(
    "expm1",
    "expm1(x)",
    lambda xp, x: xp.expm1(x),
    lambda F, dy, x, y: dy * (y + 1),
    doc="exp(x) - 1, exact near 0.",
)
unary(
    "log",
    "log(x)",
    lambda xp, x: xp.log(x),
    lambda F, dy, x, y: dy / x,
    domain=(0.1, 5),
    doc="Natural logarithm.",
)
unary(
    "log2",
    "log2(x)",
    lambda xp, x: xp.log2(x),
    lambda F, dy, x, y: dy / (x * LN2),
    domain=(0.1, 5),
    doc="Logarithm to base 2.",
)
unary(
    "log10",
    "log10(x)",
    lambda xp, x: xp.log10(x),
    lambda F, dy, x, y: dy / (x * LN10),
    domain=(0.1, 5),
    doc="Logarithm to base 10.",
)
unary(
    "log1p",
    "log1p(x)",
    lambda xp, x: xp.log1p(x),
    lambda F, dy, x, y: dy / (x + 1),
    domain=(-0.9, 3),
    doc="log(1 + x), exact near 0.",
)
unary(
    "square",
    "x * x",
    lambda xp, x: x * x,
    lambda F, dy, x, y: dy * x * 2,
    dtypes="all",
    doc="x times x.",
)
unary(
    "sqrt",
    "sqrt(x)",
    lambda xp, x: xp.sqrt(x),
    lambda F, dy, x, y: dy * 0.5 / y,
    domain=(0.1, 5),
    doc="Square root; NaN below 0.",
)
unary(
    "rsqrt",
    "1 / sqrt(x)",
    lambda xp, x: 1 / xp.sqrt(x),
    lambda F, dy, x, y: dy * -0.5 * (y * y * y),
    domain=(0.1, 5),
    doc="1 / sqrt(x).",
)
unary(
    "cbrt",
    "cbrt(x)",
    lambda xp, x: xp.cbrt(x),
    lambda F, dy, x, y: dy / (y * y * 3),
    domain=(0.1, 5),
    doc="Cube root, of negative numbers too.",
)
unary(
    "rcbrt",
    "1 / cbrt(x)",
    lambda xp, x: 1 / xp.cbrt(x),
    lambda F, dy, x, y: dy * (y * y * y * y) / -3,
    aliases=(),
    domain=(-4, -0.2),
    doc="1 / cbrt(x).",
)
unary(
    "reciprocal",
    "1 / x",
    lambda xp, x: 1 / x,
    lambda F, dy, x, y: -(dy * y * y),
    aliases=(),
    domain=(0.2, 3),
    doc="1 / x.",
)

# ---- trigonometry --------------------------------------------------------------------------------
unary(
    "sin",
    "sin(x)",
    lambda xp, x: xp.sin(x),
    lambda F, dy, x, y: dy * F.cos(x),
    doc="Sine of x in radians.",
)
unary(
    "cos",
    "cos(x)",
    lambda xp, x: xp.cos(x),
    lambda F, dy, x, y: -(dy * F.sin(x)),
    doc="Cosine of x in radians.",
)
unary(
    "tan",
    "tan(x)",
    lambda xp, x: xp.tan(x),
    lambda F, dy, x, y: dy * (y * y + 1),
    domain=(-1.2, 1.2),
    doc="Tangent of x in radians.",
)
unary(
    "arcsin",
    "asin(x)",
    lambda xp, x: xp.arcsin(x),
    lambda F, dy, x, y: dy * F.rsqrt(1 - x * x),
    domain=(-0.9, 0.9),
    doc="Inverse sine, in radians.",
)
unary(
    "arccos",
    "acos(x)",
    lambda xp, x: xp.arccos(x),
    lambda F, dy, x, y: -(dy * F.rsqrt(1 - x * x)),
    domain=(-0.9, 0.9),
    doc="Inverse cosine, in radians.",
)
unary(
    "arctan",
    "atan(x)",
    lambda xp, x: xp.arctan(x),
    lambda F, dy, x, y: dy / (x * x + 1),
    doc="Inverse tangent, in radians.",
)
unary(
    "sinh",
    "sinh(x)",
    lambda xp, x: xp.sinh(x),
    lambda F, dy, x, y: dy * F.cosh(x),
    doc="Hyperbolic sine.",
)
unary(
    "cosh",
    "cosh(x)",
    lambda xp, x: xp.cosh(x),
    lambda F, dy, x, y: dy * F.sinh(x),
    doc="Hyperbolic cosine.",
)
unary(
    "tanh",
    "tanh(x)",
    lambda xp, x: xp.tanh(x),
    lambda F, dy, x, y: dy * (1 - y * y),
    traits=(Activates(lambda: Act("tanh")),),
    doc="Hyperbolic tangent.",
)
unary(
    "arcsinh",
    "asinh(x)",
    lambda xp, x: xp.arcsinh(x),
    lambda F, dy, x, y: dy * F.rsqrt(x * x + 1),
    doc="Inverse hyperbolic sine.",
)
unary(
    "arccosh",
    "acosh(x)",
    lambda xp, x: xp.arccosh(x),
    lambda F, dy, x, y: dy * F.rsqrt(x * x - 1),
    domain=(1.1, 5),
    doc="Inverse hyperbolic cosine; NaN below 1.",
)
unary(
    "arctanh",
    "atanh(x)",
    lambda xp, x: xp.arctanh(x),
    lambda F, dy, x, y: dy / (1 - x * x),
    domain=(-0.9, 0.9),
    doc="Inverse hyperbolic tangent.",
)
unary(
    "degrees",
    "x * 57.29577951308232",
    lambda xp, x: x * (180 / math.pi),
    lambda F, dy, x, y: F.degrees(dy),
    doc="Radians to degrees.",
)
unary(
    "radians",
    "x * 0.017453292519943295",
    lambda xp, x: x * (math.pi / 180),
    lambda F, dy, x, y: F.radians(dy),
    doc="Degrees to radians.",
)


# ---- sign, rounding, logic: gradients are zero but for abs and negative --------------------------
def _rint(xp, x):
    low = xp.floor(x)
    return xp.where(x - low <= 0.5, low, low + 1)


unary(
    "abs",
    "x > 0 ? x : 0 - x",
    lambda xp, x: xp.abs(x),
    lambda F, dy, x, y: dy * F.sign(x),
    dtypes="all",
    doc="Absolute value.",
)
unary(
    "negative",
    "-x",
    lambda xp, x: -x,
    lambda F, dy, x, y: -dy,
    dtypes="all",
    traits=(Involution(),),
    doc="-x.",
)
unary(
    "sign",
    "(x > 0) - (x < 0)",
    lambda xp, x: (x > 0) * 1.0 - (x < 0) * 1.0,
    dtypes="all",
    doc="1, 0 or -1 by the sign of x; 0 for NaN.",
)
unary(
    "round",
    "round(x)",
    lambda xp, x: xp.trunc(x) + xp.sign(x) * (xp.abs(x - xp.trunc(x)) >= 0.5),
    doc="Nearest whole number, halves away from 0.",
)
unary(
    "rint",
    "x - floor(x) <= 0.5 ? floor(x) : floor(x) + 1",
    _rint,
    doc="Nearest whole number, halves down.",
)
unary("floor", "floor(x)", lambda xp, x: xp.floor(x), doc="Largest whole number not above x.")
unary("ceil", "ceil(x)", lambda xp, x: xp.ceil(x), doc="Smallest whole number not below x.")
unary("trunc", "trunc(x)", lambda xp, x: xp.trunc(x), doc="x without its fraction.")
unary("fix", "trunc(x)", lambda xp, x: xp.trunc(x), doc="Nearest whole number towards 0.")
unary(
    "logical_not",
    "x == 0",
    lambda xp, x: x == 0,
    dtypes="all",
    truth=True,
    aliases=(),
    doc="1 where x is 0, else 0.",
)


# ---- special functions ---------------------------------------------------------------------------
unary(
    "erf",
    "erf(x)",
    special.erf,
    lambda F, dy, x, y: dy * F.exp(-(x * x)) * (2 / special.SQRT_PI),
    doc="Error function. Source: DLMF 7.2.1.",
)
unary(
    "erfinv",
    "erfinv(x)",
    special.erfinv,
    lambda F, dy, x, y: dy * F.exp(y * y) * (special.SQRT_PI / 2),
    domain=(-0.9, 0.9),
    doc="Inverse of erf; +-inf at +-1, NaN beyond.",
)
unary(
    "gamma",
    "gamma(x)",
    special.gamma,
    lambda F, dy, x, y: dy * y * F._polygamma(x, n=0),
    domain=(0.5, 4),
    aliases=("_sparse_gamma",),
    doc="Gamma function. Source: DLMF 5.2.1.",
)
unary(
    "gammaln",
    "gammaln(x)",
    special.gammaln,
    lambda F, dy, x, y: dy * F._polygamma(x, n=0),
    domain=(0.5, 4),
    aliases=("_sparse_gammaln",),
    doc="Logarithm of |gamma(x)|.",
)


def _polygamma_infer(ins, n):
    if not 0 <= n <= 100:
        raise OperatorError("_polygamma", f"n must be in [0, 100], got {n}")
    return [ins[0]]


operator(
    "_polygamma",
    infer=_polygamma_infer,
    fill=elementwise,
    params=(Param("n", "int", 0),),
    ref=lambda xp, x, n: special.polygamma(xp, x, n),
    grad=lambda F, dys, xs, ys, n: [dys[0] * F._polygamma(xs[0], n=n + 1)],
    samples=(
        sample(("uniform", (3, 4), 0.5, 4.0)),
        sample(("uniform", (2, 3), -2.8, -2.2), n=0),
        sample(("uniform", (2, 3), 0.5, 4.0), n=2),
    ),
    doc="The n-th derivative of the digamma function. Source: DLMF 5.15.",
)


def _bessel_infer(ins, order):
    if not 0 <= order <= 50:
        raise OperatorError("_bessel_i", f"order must be in [0, 50], got {order}")
    return [ins[0]]


operator(
    "_bessel_i",
    infer=_bessel_infer,
    fill=elementwise,
    params=(Param("order", "int", 0),),
    ref=lambda xp, x, order: special.bessel_i(xp, x, order),
    grad=lambda F, dys, xs, ys, order: [
        dys[0]
        * (F._bessel_i(xs[0], order=abs(order - 1)) + F._bessel_i(xs[0], order=order + 1))
        * 0.5
    ],
    samples=(sample((3, 4)), sample((2, 3), order=1), sample((2,), order=3)),
    doc="The modified Bessel function of the first kind. Source: DLMF 10.32.3.",
)

# ---- activations ---------------------------------------------------------------------------------
unary(
    "relu",
    ACTIVATIONS["relu"].text,
    ACTIVATIONS["relu"].value,
    lambda F, dy, x, y: dy * (y > 0),
    dtypes="all",
    traits=(Activates(lambda: Act("relu")),),
    doc="max(x, 0); NaN stays NaN. Source: Nair and Hinton 2010.",
)
unary(
    "sigmoid",
    "1 / (1 + exp(-x))",
    lambda xp, x: 1 / (1 + xp.exp(-x)),
    lambda F, dy, x, y: dy * (y * (1 - y)),
    traits=(Activates(lambda: Act("sigmoid")),),
    doc="1 / (1 + exp(-x)).",
)
unary(
    "softsign",
    "x / (1 + fabs(x))",
    lambda xp, x: x / (1 + xp.abs(x)),
    aliases=(),
    grad=lambda F, dy, x, y: dy / F.square(F.abs(x) + 1),
    traits=(Activates(lambda: Act("softsign")),),
    doc="x / (1 + |x|).",
)


def _hard_sigmoid(xp, x, alpha, beta):
    return xp.clip(alpha * x + beta, 0, 1)


def _smooth_l1(xp, x, scalar):
    a, s2 = xp.abs(x), scalar * scalar
    return xp.where(a * s2 > 1, a - 0.5 / s2 if s2 else a, 0.5 * s2 * x * x)


pointwise(
    "hard_sigmoid",
    "alpha * x + beta > 1 ? 1 : (alpha * x + beta < 0 ? 0 : alpha * x + beta)",
    ref=_hard_sigmoid,
    params={"alpha": 0.2, "beta": 0.5},
    grad=lambda F, dy, x, y, alpha, beta: dy * ((y > 0) * (y < 1)) * alpha,
    domain=(-5, 5),
    doc="alpha * x + beta, kept in [0, 1].",
)
pointwise(
    "smooth_l1",
    "fabs(x) * (scalar * scalar) > 1 ? fabs(x) - 0.5 / (scalar * scalar) "
    ": 0.5 * (scalar * scalar) * x * x",
    ref=_smooth_l1,
    params={"scalar": 1.0},
    grad=lambda F, dy, x, y, scalar: dy * F.clip(x * (scalar * scalar), a_min=-1.0, a_max=1.0),
    doc=(
        "0.5 (s x)^2 where |x| < 1 / s^2, else |x| - 0.5 / s^2, s = scalar. Source: Girshick 2015,"
        " Fast R-CNN."
    ),
)
CLIP = ACTIVATIONS["clip"]
pointwise(
    "clip",
    CLIP.renamed(CLIP.text, low="a_min", high="a_max"),
    params={"a_min": REQUIRED, "a_max": REQUIRED},
    ref=lambda xp, x, a_min, a_max: CLIP.value(xp, x, a_min, a_max),
    traits=(Activates(lambda a_min, a_max: Act("clip", a_min, a_max)),),
    grad=lambda F, dy, x, y, a_min, a_max: dy * ((x >= a_min) * (x <= a_max)),
    aliases=("_sparse_clip",),
    samples=(sample((3, 4), a_min=-0.5, a_max=0.7), sample((5,), a_min=0, a_max=9)),
    doc="x, or the nearer of a_min and a_max outside of them; NaN stays NaN.",
)
