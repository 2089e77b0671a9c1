"""Activations: the one declaration of each, from which come the references and loops of operators,
the C header of products and batch normalisations, and its CUDA counterpart (cpu/generate.py).

Texts are expressions as in pointwise.py, of x and of an activation's own numbers low and high.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Act(NamedTuple):
    """What a call applies: the name in ACTIVATIONS, and the numbers."""

    name: str
    low: float = 0.0
    high: float = 0.0


class Activation(NamedTuple):
    """value, slope: (xp, x, low, high) -> array, references of the texts. factor: (F, x, y) -> the
    slope in operators, from functions that give the input and the output: what is not called need
    not be kept."""

    text: str
    value: Callable
    slope_text: str = ""
    slope: Any = None
    factor: Any = None

    @property
    def has_numbers(self) -> bool:
        return "low" in self.text

    def renamed(self, text: str, **names: str) -> str:
        """One of the texts with other names for x, low and high."""
        return re.sub(r"\b(x|low|high)\b", lambda m: names.get(m[0], m[0]), text)


def sigmoid(xp: Any, x: Any) -> Any:
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, e) / (1 + e)


def erf(xp: Any, x: Any) -> Any:
    """Error function to 1e-15: Taylor series near 0, Laplace's continued fraction beyond."""
    x = x.astype("float64")
    a = xp.abs(x)
    small, big = xp.minimum(a, 2.5), xp.maximum(a, 2.5)
    term, total = small, small
    for n in range(1, 60):
        term = term * (2 * small * small) / (2 * n + 1)
        total = total + term
    near = total * xp.exp(-small * small) * (2 / math.sqrt(math.pi))
    fraction = big
    for n in range(60, 0, -1):
        fraction = big + n / 2 / fraction
    far = 1 - xp.exp(-big * big) / fraction / math.sqrt(math.pi)
    return xp.where(xp.isnan(x), x, xp.sign(x) * xp.where(a < 2.5, near, far))


def _gelu_slope(xp, x, low=0.0, high=0.0):
    density = xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return (erf(xp, x / math.sqrt(2)) * 0.5 + 0.5).astype(x.dtype) + x * density


def _sigmoid_slope(xp, x, low=0.0, high=0.0):
    s = sigmoid(xp, x)
    return s * (1 - s)


def _silu_slope(xp, x, low=0.0, high=0.0):
    s = sigmoid(xp, x)
    return s + x * s * (1 - s)


# the order gives the numbers in C and CUDA
ACTIVATIONS = {
    "relu": Activation(
        "x <= 0 ? 0 : x",
        lambda xp, x, low=0, high=0: xp.maximum(x, 0),
        "x > 0 ? 1 : 0",
        lambda xp, x, low=0, high=0: x > 0,
        lambda F, x, y: y() > 0,
    ),
    "sigmoid": Activation(
        "sigmoid(x)",
        lambda xp, x, low=0, high=0: sigmoid(xp, x),
        "sigmoid(x) * (1 - sigmoid(x))",
        _sigmoid_slope,
        lambda F, x, y: y() * (1.0 - y()),
    ),
    "tanh": Activation(
        "tanh(x)",
        lambda xp, x, low=0, high=0: xp.tanh(x),
        factor=lambda F, x, y: 1.0 - F.square(y()),
    ),
    "softrelu": Activation(
        "softplus(x)",
        lambda xp, x, low=0, high=0: xp.logaddexp(x, xp.zeros((), x.dtype)),
        factor=lambda F, x, y: 1.0 - F.exp(-y()),
    ),
    "softsign": Activation(
        "x / (1 + fabs(x))",
        lambda xp, x, low=0, high=0: x / (1 + xp.abs(x)),
        factor=lambda F, x, y: 1.0 / F.square(F.abs(x()) + 1.0),
    ),
    "gelu": Activation(
        "x * 0.5 * (1 + erf(x * 0.7071067811865476))",
        lambda xp, x, low=0, high=0: x * 0.5 * (1 + erf(xp, x / math.sqrt(2))).astype(x.dtype),
        "erf(x * 0.7071067811865475) * 0.5 + 0.5 + x * exp(x * x * -0.5) * 0.3989422804014327",
        _gelu_slope,
    ),
    "silu": Activation(
        "x * sigmoid(x)",
        lambda xp, x, low=0, high=0: x * sigmoid(xp, x),
        "sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x))",
        _silu_slope,
    ),
    "clip": Activation(
        "x > high ? high : (x < low ? low : x)",
        lambda xp, x, low, high: xp.where(x > high, high, xp.where(x < low, low, x)),
        "x >= low && x <= high ? 1 : 0",
        lambda xp, x, low, high: (x >= low) & (x <= high),
    ),
    "leaky": Activation(
        "x > 0 ? x : low * x",
        lambda xp, x, low, high=0: xp.where(x > 0, x, low * x),
        "x > 0 ? 1 : low",
        lambda xp, x, low, high=0: (x > 0) * (1 - low) + low,
    ),
}
NUMBERS: dict[str | None, int] = {None: 0, **{name: i for i, name in enumerate(ACTIVATIONS, 1)}}
# what a product can apply to its result on the way to memory: the activations without numbers
OF_PRODUCTS = tuple(name for name, a in ACTIVATIONS.items() if not a.has_numbers)
# whose slope it can multiply by
SLOPES = ("relu", "gelu")
# what follows a batch normalisation while training, beside relu
OF_NORMS = ("clip", "leaky", "sigmoid", "silu")
