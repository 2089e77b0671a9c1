"""Pointwise operators: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...types import DTYPES
from ..run import RULES, Call, Rule, dtype_of, rule

FLOATS = ("float16", "bfloat16", "float32", "float64")


def unary(name: str, function: str, module: str = "np") -> None:
    def compute(c: Call, x: Any) -> Any:
        return getattr(c.np if module == "np" else c.nn, function)(x)

    RULES[name] = Rule(compute)


for _onnx, _np in {
    "Abs": "abs",
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "rint",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}.items():
    unary(_onnx, _np)
for _onnx, _nd in {
    "Erf": "erf",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Softsign": "softsign",
}.items():
    unary(_onnx, _nd, "nn")


def _pair(name: str, function: str) -> None:
    def compute(c: Call, a: Any, b: Any) -> Any:
        return getattr(c.np, function)(a, b)

    RULES[name] = Rule(compute, numbers=True)


for _onnx, _np in {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}.items():
    _pair(_onnx, _np)


def is_float(*xs: Any) -> bool:
    return any(not isinstance(x, (int, bool, float)) and dtype_of(x) in FLOATS for x in xs)


@rule("Div", numbers=True)
def div(c: Call, a: Any, b: Any) -> Any:
    if is_float(a, b):
        return c.np.divide(a, b)
    quotient = c.np.floor_divide(a, b)  # integers are cut towards zero
    dtype = dtype_of(b if isinstance(a, int) else a)
    if dtype.startswith("uint"):
        return quotient
    rest = c.np.subtract(a, c.np.multiply(quotient, b))
    up = c.np.logical_and(c.np.not_equal(rest, 0), c.np.less(quotient, 0))
    return c.np.add(quotient, up.astype(dtype))


@rule("Mod", numbers=True)
def mod(c: Call, a: Any, b: Any) -> Any:
    return c.np.fmod(a, b) if c("fmod", 0) else c.np.remainder(a, b)


@rule("Pow", numbers=True)
def power(c: Call, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)) and not isinstance(a, (int, float)):
        if b == 2:
            return c.np.multiply(a, a)
        if b == 0.5 and is_float(a):
            return c.np.sqrt(a)
        if is_float(a):
            return c.np.power(a, float(b))
    if isinstance(a, (int, float)):
        return c.np.power(a, b)
    dtype = dtype_of(a)
    if not isinstance(b, (int, float)) and dtype_of(b) != dtype:
        wide = dtype if dtype in FLOATS else "float64"
        return c.cast(c.np.power(c.cast(a, wide), c.cast(b, wide)), dtype)
    return c.cast(c.np.power(a, b), dtype)


def _many(name: str, function: str) -> None:
    def compute(c: Call, *xs: Any) -> Any:
        return functools.reduce(getattr(c.np, function), xs)

    RULES[name] = Rule(compute)


_many("Max", "maximum")
_many("Min", "minimum")
_many("Sum", "add")


@rule("Mean")
def mean(c: Call, *xs: Any) -> Any:
    return functools.reduce(c.np.add, xs) / len(xs)


@rule("BitShift")
def bit_shift(c: Call, x: Any, y: Any) -> Any:
    return c.np.left_shift(x, y) if c("direction") == "LEFT" else c.np.right_shift(x, y)


@rule("Where")
def where(c: Call, condition: Any, x: Any, y: Any) -> Any:
    return c.np.where(condition, x, y)


@rule("IsInf")
def is_inf(c: Call, x: Any) -> Any:
    if c("detect_negative", 1) and c("detect_positive", 1):
        return c.np.isinf(x)
    if c("detect_positive", 1):
        return c.np.equal(x, np.inf)
    if c("detect_negative", 1):
        return c.np.equal(x, -np.inf)
    return c.np.zeros(x.shape, dtype="bool")


@rule("Cast", "CastLike")
def cast(c: Call, x: Any, like: Any = None) -> Any:
    to = dtype_of(like) if like is not None else _dtype(c, c("to"))
    if is_float(x) and to == "bool":
        return c.np.not_equal(x, 0)
    return c.cast(x, to)


def _dtype(c: Call, code: int) -> str:
    if code not in DTYPES:
        raise c.fail(f"the dtype with code {code} is not supported")
    return DTYPES[code]


@rule("Identity", "OptionalGetElement", raw=True)
def identity(c: Call, x: Any) -> Any:
    return x


# ---- activations ---------------------------------------------------------------------------------


@rule("Clip", static=(1, 2))
def clip(c: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        low = low.item()
    if high is not None:
        high = high.item()
    if low is None and high is None:
        return x
    if is_float(x) and low is not None and high is not None:
        if low == 0 and high == 6:
            return c.nn.clip(x, a_min=0.0, a_max=6.0)
        return c.np.minimum(high, c.np.maximum(low, x)) if low > high else c.np.clip(x, low, high)
    if low is not None:
        x = c.np.maximum(x, low)
    return x if high is None else c.np.minimum(x, high)


@rule("LeakyRelu")
def leaky_relu(c: Call, x: Any) -> Any:
    return c.nn.LeakyReLU(x, act_type="leaky", slope=c("alpha", 0.01))


@rule("Elu")
def elu(c: Call, x: Any) -> Any:
    return c.nn.LeakyReLU(x, act_type="elu", slope=c("alpha", 1.0))


@rule("Selu")
def selu(c: Call, x: Any) -> Any:
    alpha, gamma = c("alpha", 1.67326319217681884765625), c("gamma", 1.05070102214813232421875)
    return c.nn.LeakyReLU(x, act_type="elu", slope=alpha) * gamma


@rule("PRelu")
def prelu(c: Call, x: Any, slope: Any) -> Any:
    return c.np.where(c.np.less(x, 0), x * slope, x)


@rule("HardSigmoid")
def hard_sigmoid(c: Call, x: Any) -> Any:
    return c.nn.hard_sigmoid(x, alpha=c("alpha", 0.2), beta=c("beta", 0.5))


@rule("HardSwish")
def hard_swish(c: Call, x: Any) -> Any:
    return x * c.nn.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@rule("Softplus")
def softplus(c: Call, x: Any) -> Any:
    return c.nn.Activation(x, act_type="softrelu")


@rule("Gelu")
def gelu(c: Call, x: Any) -> Any:
    if c("approximate", "none") == "tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + c.np.tanh(inner))
    return c.nn.LeakyReLU(x, act_type="gelu")


@rule("Mish")
def mish(c: Call, x: Any) -> Any:
    return x * c.np.tanh(c.nn.Activation(x, act_type="softrelu"))


@rule("ThresholdedRelu")
def thresholded_relu(c: Call, x: Any) -> Any:
    return c.np.where(c.np.greater(x, c("alpha", 1.0)), x, c.np.zeros_like(x))


def activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Any, Any], Any]:
    """(nn, x) -> y, for recurrent layers. Raises KeyError for an unknown name."""
    a, b = alpha, beta

    def given(value: float | None, default: float) -> float:
        return default if value is None else value

    return {
        "relu": lambda c, x: c.nn.relu(x),
        "tanh": lambda c, x: c.np.tanh(x),
        "sigmoid": lambda c, x: c.nn.sigmoid(x),
        "affine": lambda c, x: x * given(a, 1.0) + given(b, 0.0),
        "leakyrelu": lambda c, x: c.nn.LeakyReLU(x, act_type="leaky", slope=given(a, 0.01)),
        "thresholdedrelu": lambda c, x: c.np.where(c.np.greater(x, given(a, 1.0)), x, x * 0),
        "scaledtanh": lambda c, x: c.np.tanh(x * given(b, 1.0)) * given(a, 1.0),
        "hardsigmoid": lambda c, x: c.nn.hard_sigmoid(x, alpha=given(a, 0.2), beta=given(b, 0.5)),
        "elu": lambda c, x: c.nn.LeakyReLU(x, act_type="elu", slope=given(a, 1.0)),
        "softsign": lambda c, x: c.nn.softsign(x),
        "softplus": lambda c, x: c.nn.Activation(x, act_type="softrelu"),
    }[name.lower()]
