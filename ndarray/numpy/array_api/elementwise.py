"""Elementwise functions of the array API standard: those of mx.np under the standard's names and
promotion. Each row of the tables is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....engine.error import InvalidType
from ....kernels.record import Array
from ...ndarray import NDArray
from .creation import asarray
from .dtypes import SCALARS, is_kind, joined, name_of, scalar_dtype
from .operators import of_np

# name -> mx.np's, and the kinds of dtypes that it takes ("" any)
UNARY = {
    **{name: (name, "numeric") for name in ("abs", "negative", "sign", "square")},
    **{
        name: (name, "real floating")
        for name in ("cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal")
    },
    **{name: (name, "real floating") for name in ("signbit", "sin", "sinh", "sqrt", "tan", "tanh")},
    **{
        name: (f"arc{name[1:]}", "real floating")
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh")
    },
    "logical_not": ("logical_not", "bool"),
    "bitwise_invert": ("bitwise_not", ""),
}
BINARY = {
    **{
        name: (name, "numeric")
        for name in (
            *("add", "floor_divide", "greater", "greater_equal", "less", "less_equal", "maximum"),
            *("minimum", "multiply", "remainder", "subtract"),
        )
    },
    **{name: (name, "real floating") for name in ("copysign", "hypot", "logaddexp", "nextafter")},
    **{name: (name, "bool") for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: (name, "") for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "atan2": ("arctan2", "real floating"),
    "bitwise_left_shift": ("left_shift", "integral"),
    "bitwise_right_shift": ("right_shift", "integral"),
    "divide": ("true_divide", "real floating"),
    "equal": ("equal", ""),
    "not_equal": ("not_equal", ""),
    "pow": ("power", "numeric"),
}
# what changes floats alone: integers and bools are what they are
ROUND = {"ceil": "ceil", "floor": "floor", "round": "rint", "trunc": "trunc"}
# name -> what is True of all whole numbers
TESTS = {"isfinite": True, "isinf": False, "isnan": False}


def met(name: str, kind: str, *xs: Any) -> list[Array]:
    """Operands as arrays of their common dtype. Raises TypeError for dtypes of another kind, and
    where no operand is an array."""
    names = [name_of(x) for x in xs if type(x) not in SCALARS]
    if not names:
        raise InvalidType(f"{name}: at least one operand must be an array")
    dtype = joined(*names)
    check_kind(name, kind, dtype)
    device = next(x.context for x in xs if isinstance(x, NDArray))
    found = []
    for x in xs:
        if type(x) in SCALARS:
            x = asarray(x, dtype=scalar_dtype(x, dtype), device=device)
        found.append(x if name_of(x) == dtype else x.astype(dtype))
    return found


def check_kind(name: str, kind: str, dtype: str) -> None:
    if kind and not is_kind(dtype, kind):
        raise InvalidType(f"{name}: takes {kind} dtypes, got {dtype}\n  fix: xp.astype(x, dtype)")


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of the array API standard, elementwise."
    return function


def _unary(name: str, of: str, kind: str) -> Callable[..., Array]:
    def function(x: Array, /) -> Array:
        check_kind(name, kind, name_of(x))
        return of_np(of)(x)

    return _named(function, name)


def _binary(name: str, of: str, kind: str) -> Callable[..., Array]:
    def function(x1: Any, x2: Any, /) -> Array:
        return of_np(of)(*met(name, kind, x1, x2))

    return _named(function, name)


def _rounding(name: str, of: str) -> Callable[..., Array]:
    def function(x: Array, /) -> Array:
        check_kind(name, "numeric", name_of(x))
        return of_np(of)(x) if "float" in name_of(x) else x.copy()

    return _named(function, name)


def _test(name: str, of_whole: bool) -> Callable[..., Array]:
    def function(x: Array, /) -> Array:
        if "float" in name_of(x):
            return of_np(name)(x)
        found = x == x
        return found if of_whole else of_np("logical_not")(found)

    return _named(function, name)


def positive(x: Array, /) -> Array:
    """A copy of x."""
    return x.copy()


def conj(x: Array, /) -> Array:
    """x: plait has no complex dtypes."""
    return x.copy()


real = conj


def imag(x: Array, /) -> Array:
    """Zeros: plait has no complex dtypes."""
    return of_np("zeros_like")(x)


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """x, but at least min and at most max (numbers or arrays); x's dtype."""
    for bound, name in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            one, other = met("clip", "numeric", x, bound)
            if name_of(one) != name_of(x):
                raise InvalidType(f"clip: bounds must promote to {name_of(x)}")
            x = of_np(name)(one, other)
    return x.copy() if min is None and max is None else x


MADE = {
    **{name: _unary(name, *row) for name, row in UNARY.items()},
    **{name: _binary(name, *row) for name, row in BINARY.items()},
    **{name: _rounding(name, of) for name, of in ROUND.items()},
    **{name: _test(name, of_whole) for name, of_whole in TESTS.items()},
    **{"clip": clip, "conj": conj, "imag": imag, "positive": positive, "real": real},
}
