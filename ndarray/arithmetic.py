"""nd.add, nd.maximum, nd.greater ...: binary functions of NDArrays and numbers, in either order."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

from ..engine.error import InvalidType
from ..kernels.record import lookup
from .invoke import invoke
from .ndarray import NDArray
from .operators import as_number

# name: (operator of two arrays, of array and number, of number and array, of two numbers)
TABLE = {
    "add": ("broadcast_add", "_plus_scalar", "_plus_scalar", python.add),
    "subtract": ("broadcast_sub", "_minus_scalar", "_rminus_scalar", python.sub),
    "multiply": ("broadcast_mul", "_mul_scalar", "_mul_scalar", python.mul),
    "divide": ("broadcast_div", "_div_scalar", "_rdiv_scalar", python.truediv),
    "true_divide": ("broadcast_div", "_div_scalar", "_rdiv_scalar", python.truediv),
    "modulo": ("broadcast_mod", "_mod_scalar", "_rmod_scalar", python.mod),
    "power": ("broadcast_power", "_power_scalar", "_rpower_scalar", python.pow),
    "maximum": ("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", max),
    "minimum": ("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", min),
    "hypot": (
        "broadcast_hypot",
        "_hypot_scalar",
        "_hypot_scalar",
        lambda a, b: (a * a + b * b) ** 0.5,
    ),
    "equal": ("broadcast_equal", "_equal_scalar", "_equal_scalar", python.eq),
    "not_equal": ("broadcast_not_equal", "_not_equal_scalar", "_not_equal_scalar", python.ne),
    "greater": ("broadcast_greater", "_greater_scalar", "_lesser_scalar", python.gt),
    "greater_equal": (
        "broadcast_greater_equal",
        "_greater_equal_scalar",
        "_lesser_equal_scalar",
        python.ge,
    ),
    "lesser": ("broadcast_lesser", "_lesser_scalar", "_greater_scalar", python.lt),
    "lesser_equal": (
        "broadcast_lesser_equal",
        "_lesser_equal_scalar",
        "_greater_equal_scalar",
        python.le,
    ),
    "logical_and": (
        "broadcast_logical_and",
        "_logical_and_scalar",
        "_logical_and_scalar",
        lambda a, b: bool(a and b),
    ),
    "logical_or": (
        "broadcast_logical_or",
        "_logical_or_scalar",
        "_logical_or_scalar",
        lambda a, b: bool(a or b),
    ),
    "logical_xor": (
        "broadcast_logical_xor",
        "_logical_xor_scalar",
        "_logical_xor_scalar",
        lambda a, b: bool(a) != bool(b),
    ),
}
__all__ = list(TABLE)


def _number(name: str, value) -> float:
    try:
        return as_number(value)
    except (TypeError, ValueError):
        fix = (
            "\n  fix: nd.array(x)"
            if hasattr(value, "__array__") or isinstance(value, (list, tuple))
            else ""
        )
        raise InvalidType(
            f"{name}: operands must be NDArrays or numbers, got {type(value).__name__}{fix}"
        ) from None


def _function(name: str, both: str, right: str, left: str, numbers):
    def call(lhs, rhs):
        if isinstance(lhs, NDArray):
            if isinstance(rhs, NDArray):
                return invoke(lookup(both), (lhs, rhs), {})
            return invoke(lookup(right), (lhs,), {"scalar": _number(name, rhs)})
        if isinstance(rhs, NDArray):
            return invoke(lookup(left), (rhs,), {"scalar": _number(name, lhs)})
        _number(name, lhs), _number(name, rhs)
        result = numbers(lhs, rhs)
        return int(result) if isinstance(result, bool) else result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"{name} of two operands, each an NDArray or a number; arrays broadcast. See the operator"
        f" {both}."
    )
    return call


_functions = {name: _function(name, *row) for name, row in TABLE.items()}
globals().update(_functions)
add: Callable[..., Any]  # these and the others of TABLE
subtract: Callable[..., Any]
multiply: Callable[..., Any]
divide: Callable[..., Any]
_power = _functions["power"]


def power(base: Any, exp: Any) -> Any:
    """base**exp, each an NDArray or a number; arrays broadcast."""
    return _power(base, exp)
