"""Special functions in float64, written against the array API: erf, erfc, erfinv, gammaln, gamma,
polygamma, Bessel's I.

Relative error about 1e-13. They are references and fallbacks; the C kernels have versions of their
own, which loops made from references call (`xp.special`).
"""

from __future__ import annotations

import functools
import math
from typing import Any

SQRT_PI = math.sqrt(math.pi)
# B(2k) / (2k (2k - 1)): the terms of Stirling's series
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)  # B(2), B(4), ...
SHIFT = 12  # the asymptotic series are used from here on


def _chebyshev(f, low: float, high: float, n: int) -> tuple[float, ...]:
    """Coefficients of f on [low, high], from its values at the n Chebyshev nodes."""
    nodes = [math.cos(math.pi * (k + 0.5) / n) for k in range(n)]
    fs = [f(0.5 * (high - low) * t + 0.5 * (high + low)) for t in nodes]
    return tuple(
        (1 if j == 0 else 2)
        / n
        * math.fsum(fs[k] * math.cos(math.pi * j * (k + 0.5) / n) for k in range(n))
        for j in range(n)
    )


def _clenshaw(coefficients, t):
    """The Chebyshev series at t in [-1, 1]."""
    b1 = b2 = 0.0
    for c in reversed(coefficients[1:]):
        b1, b2 = 2 * t * b1 - b2 + c, b1
    return t * b1 - b2 + coefficients[0]


@functools.cache
def _erf_series():
    # erf(x) / x in x^2 on [0, 1]; log(erfc(x) / t) + x^2 in t = 2 / (2 + x) for x in [0, 26]
    near = _chebyshev(lambda u: math.erf(math.sqrt(u)) / math.sqrt(u), 0.0, 1.0, 20)
    far = _chebyshev(
        lambda t: math.log(math.erfc(2 / t - 2) / t) + (2 / t - 2) ** 2, 2 / 28, 1.0, 40
    )
    return near, far


def _erfc_positive(xp, x):
    x = xp.minimum(x, 27.0)  # erfc(27) < 1e-318
    t = 2 / (2 + x)
    low = 2 / 28
    s = _clenshaw(_erf_series()[1], xp.maximum((2 * t - 1 - low) / (1 - low), -1.0))
    return t * xp.exp(s - x * x)


def erf(xp: Any, x: Any) -> Any:
    """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x. Any shape; float64."""
    x = x.astype(xp.float64)
    a = xp.abs(x)
    near = x * _clenshaw(_erf_series()[0], 2 * xp.minimum(a, 1.0) ** 2 - 1)
    return xp.where(a <= 1, near, xp.sign(x) * (1 - _erfc_positive(xp, a)))


def erfinv(xp: Any, x: Any) -> Any:
    """The inverse of erf. Any shape; float64; +-inf at +-1, NaN outside [-1, 1]."""
    x = x.astype(xp.float64)
    a = xp.abs(x)
    inside = a < 1
    p = xp.where(inside, a, 0.0)
    # Source of the start (within 0.2 %): Winitzki 2008, "A handy approximation for the error
    # function".
    log = xp.log1p(-p * p)
    half = 2 / (math.pi * 0.147) + log / 2
    y = xp.sqrt(xp.maximum(xp.sqrt(half * half - log / 0.147) - half, 0.0))
    for _ in range(3):  # Halley's method on erf(y) - p
        error = xp.where(p < 0.5, erf(xp, y) - p, (1 - p) - _erfc_positive(xp, y))
        step = error * SQRT_PI / 2 * xp.exp(y * y)
        y = y - step / (1 + y * step)
    y = xp.where(inside, y, xp.where(a == 1, xp.inf, xp.nan))
    return xp.where(x < 0, -y, xp.where(x == 0, x, y))


def _stirling(xp, x):
    """log gamma for x >= SHIFT."""
    u, series = 1 / (x * x), 0.0
    for c in reversed(STIRLING):
        series = series * u + c
    return (x - 0.5) * xp.log(x) - x + 0.5 * math.log(2 * math.pi) + series / x


def _shifted(xp, x):
    """(x moved up to at least SHIFT, the product of the factors passed on the way)."""
    product = xp.ones_like(x)
    for _ in range(SHIFT):
        low = x < SHIFT
        product = xp.where(low, product * x, product)
        x = xp.where(low, x + 1, x)
    return x, product


def _sin_pi(xp, x):
    r = x - 2 * xp.round(x / 2)
    return xp.sin(math.pi * xp.where(r > 0.5, 1 - r, xp.where(r < -0.5, -1 - r, r)))


def gammaln(xp: Any, x: Any) -> Any:
    """log |gamma(x)|. Any shape; float64; inf at 0, -1, -2, ... and +-inf."""
    if hasattr(xp, "special"):
        return xp.special("lgamma", x)
    x = x.astype(xp.float64)
    low = x < 0.5
    z, product = _shifted(xp, xp.where(low, 1 - x, x))
    positive = _stirling(xp, z) - xp.log(product)
    reflected = math.log(math.pi) - xp.log(xp.abs(_sin_pi(xp, x))) - positive
    pole = low & (x == xp.floor(x)) | (xp.abs(x) == xp.inf)
    return xp.where(pole, xp.inf, xp.where(low, reflected, positive))


def gamma(xp: Any, x: Any) -> Any:
    """The gamma function. Any shape; float64; NaN at -1, -2, ... and -inf, +-inf at +-0."""
    x = x.astype(xp.float64)
    low = x < 0.5
    z, product = _shifted(xp, xp.where(low, 1 - x, x))
    positive = xp.exp(_stirling(xp, z)) / product
    whole = (x == xp.floor(x)) & (x > 0) & (x < 20)
    positive = xp.where(z == xp.inf, xp.inf, xp.where(whole, xp.round(positive), positive))
    reflected = math.pi / (_sin_pi(xp, x) * positive)
    pole = low & (x == xp.floor(x))
    return xp.where(pole, xp.where(x == 0, 1 / x, xp.nan), xp.where(low, reflected, positive))


def polygamma(xp: Any, x: Any, n: int) -> Any:
    """The n-th derivative of the digamma function. Any shape; float64; NaN or inf at 0, -1, -2,
    ..."""
    if hasattr(xp, "special") and n < 2:
        return xp.special(("digamma", "trigamma")[n], x)
    x = x.astype(xp.float64)
    if n == 0:
        low = x < 0.5
        z = xp.where(low, 1 - x, x)
        total = 0.0
        for _ in range(SHIFT):
            below = z < SHIFT
            total = total - xp.where(below, 1 / z, 0.0)
            z = xp.where(below, z + 1, z)
        u, series = 1 / (z * z), 0.0
        for k, b in reversed(tuple(enumerate(BERNOULLI, 1))):
            series = series * u + b / (2 * k)
        total = total + xp.log(z) - 0.5 / z - series * u
        tangent = xp.where(low, xp.tan(math.pi * (x - xp.round(x))), 1.0)
        return xp.where(low, total - math.pi / tangent, total)
    # The Hurwitz zeta function of n + 1 by the Euler-Maclaurin formula, after enough direct terms.
    lowest = float(xp.min(xp.where(xp.isfinite(x), x, 0.0))) if x.size else 0.0
    terms, s = SHIFT + min(max(0, math.ceil(-lowest)), 1000), n + 1
    total = xp.zeros_like(x)
    for k in range(terms):
        total = total + (x + k) ** -s
    z = x + terms
    total = total + z ** (1 - s) / (s - 1) + 0.5 * z**-s
    factor = float(s)
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b / math.factorial(2 * k) * factor * z ** (1 - s - 2 * k)
        factor *= (s + 2 * k - 1) * (s + 2 * k)
    return (-1) ** (n + 1) * math.factorial(n) * total


def bessel_i(xp: Any, x: Any, order: int) -> Any:
    """The modified Bessel function of the first kind. Any shape; float64.

    The trapezoidal rule on the integral over a period: its error falls faster than any power.
    """
    x = x.astype(xp.float64)
    largest = float(xp.max(xp.fmin(xp.abs(x), 750.0))) if x.size else 0  # fmin: NaN counts as 750
    nodes = 64 + 16 * math.ceil(math.sqrt(largest))
    total = xp.zeros_like(x)
    for k in range(nodes):
        angle = 2 * math.pi * k / nodes
        total = total + xp.exp(x * math.cos(angle) - xp.abs(x)) * math.cos(order * angle)
    return total / nodes * xp.exp(xp.abs(x))
