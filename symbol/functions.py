"""The sym namespace: a function for every operator record, made when first used, and the functions
on top of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Number

from ..engine import missing
from ..engine.error import OperatorError, did_you_mean
from ..kernels.record import REGISTRY, dtype_name, lookup
from ..kernels.traits import Specialised
from .symbol import (  # noqa: F401
    Group,
    Symbol,
    Variable,
    apply,
    binary,
    load,
    load_json,
    symbol_function,
    tracing,
    var,
)

# what sym offers beside the operators
__all__ = [
    "Custom",
    "Group",
    "Symbol",
    "Variable",
    "arange",
    "eye",
    "full",
    "histogram",
    "hypot",
    "linspace",
    "load",
    "load_json",
    "maximum",
    "minimum",
    "ones",
    "pow",
    "power",
    "split_v2",
    "var",
    "zeros",
]


def _creation(op: str, given: dict, kwargs: dict) -> Symbol:
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    kwargs.pop("ctx", None)
    dtype = given.get("dtype")
    given["dtype"] = dtype_name("float32" if dtype is None else dtype)
    return apply(lookup(op), op, [], {**given, **kwargs}, name, attr)


def _shape(shape):
    return shape if isinstance(shape, int) else tuple(shape)


def zeros(shape, dtype=None, **kwargs) -> Symbol:
    """Zeros of a shape; a dimension of 0 is what its users need."""
    return _creation("_zeros", {"shape": _shape(shape), "dtype": dtype}, kwargs)


def ones(shape, dtype=None, **kwargs) -> Symbol:
    """Ones of a shape."""
    return _creation("_ones", {"shape": _shape(shape), "dtype": dtype}, kwargs)


def full(shape, val, dtype=None, **kwargs) -> Symbol:
    """`val` in every place of a shape."""
    return _creation("_full", {"shape": _shape(shape), "value": float(val), "dtype": dtype}, kwargs)


def arange(
    start, stop=None, step=1.0, repeat=1, infer_range=False, name=None, dtype=None
) -> Symbol:
    """start, start + step, ... below stop (from 0 to start when stop is None), each `repeat`
    times."""
    return _creation(
        "_arange",
        {
            "start": start,
            "stop": stop,
            "step": step,
            "repeat": repeat,
            "infer_range": infer_range,
            "dtype": dtype,
        },
        {"name": name},
    )


def linspace(start, stop, num, endpoint=True, name=None, dtype=None) -> Symbol:
    """`num` evenly spaced numbers from start to stop."""
    return _creation(
        "_linspace",
        {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": dtype},
        {"name": name},
    )


def eye(N, M=0, k=0, dtype=None, **kwargs) -> Symbol:
    """Ones on diagonal k of an (N, M) matrix (M = 0: N), zeros elsewhere."""
    return _creation("_eye", {"N": N, "M": M, "k": k, "dtype": dtype}, kwargs)


# name: (of two Symbols, with a number on the right, on the left, of two numbers)
_PAIRS: dict[str, tuple[str, str, str, Callable]] = {
    "maximum": ("_maximum", "_MaximumScalar", "_MaximumScalar", max),
    "minimum": ("_minimum", "_MinimumScalar", "_MinimumScalar", min),
    "power": ("_power", "_PowerScalar", "_RPowerScalar", lambda a, b: a**b),
    "hypot": ("_hypot", "_HypotScalar", "_HypotScalar", lambda a, b: (a * a + b * b) ** 0.5),
}


def _pair(name: str, a, b):
    both, right_scalar, left_scalar, of_numbers = _PAIRS[name]
    if isinstance(a, Number) and isinstance(b, Number):
        return of_numbers(a, b)
    return binary(both, f"broadcast_{name}", right_scalar, left_scalar, a, b)


def maximum(left, right):
    """The larger of two Symbols, or of a Symbol and a number."""
    return _pair("maximum", left, right)


def minimum(left, right):
    """The smaller of two Symbols, or of a Symbol and a number."""
    return _pair("minimum", left, right)


def hypot(left, right):
    """sqrt(left**2 + right**2) of two Symbols, or of a Symbol and a number."""
    return _pair("hypot", left, right)


def power(base, exp):
    """base**exp of two Symbols, or of a Symbol and a number."""
    return _pair("power", base, exp)


pow = power


def split_v2(ary, indices_or_sections, axis=0, squeeze_axis=False) -> Symbol:
    """Parts of an array along an axis: a number of equal ones, or cut before the given indices."""
    return ary.split_v2(indices_or_sections, axis, squeeze_axis)


def histogram(a, bins=10, range=None, **kwargs) -> Symbol:
    """(counts, edges) of values: `bins` equal bins over `range` (a pair), or the edges as a
    Symbol."""
    if isinstance(bins, Symbol):
        return apply(lookup("_histogram"), "_histogram", [a, bins], {}, **kwargs)
    if range is None:
        raise OperatorError(
            "histogram", "null range is not supported in symbol mode", fix="range=(low, high)"
        )
    return apply(
        lookup("_histogram"), "_histogram", [a], {"bin_cnt": bins, "range": tuple(range)}, **kwargs
    )


def Custom(*data, op_type=None, name=None, attr=None, **kwargs) -> Symbol:
    """The custom operator registered as op_type (mx.operator.register). data: its inputs; those
    left out become variables. kwargs: parameters of its CustomOpProp, as text, and inputs by
    name."""
    given = {k: v for k, v in kwargs.items() if not isinstance(v, Symbol)}
    inputs = {k: v for k, v in kwargs.items() if isinstance(v, Symbol)}
    given = {"op_type": op_type, **given} if op_type is not None else given
    special = lookup("Custom").trait(Specialised)
    assert special is not None
    op = special.make(given)
    return custom_symbol(op, "custom", data, given, {**inputs, "name": name, "attr": attr})


def custom_symbol(op, hint: str, data, given: dict, kwargs: dict) -> Symbol:
    """A Symbol of an operator in Python. kwargs: inputs by name, name, attr."""
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    values = list(data) + [None] * (len(op.inputs) - len(data))
    for key, value in kwargs.items():
        if key not in op.inputs:
            raise OperatorError(
                op.name, f"has no input {key!r}, its inputs are {', '.join(op.inputs)}"
            )
        values[op.inputs.index(key)] = value
    while values and values[-1] is None:
        values.pop()
    return apply(op, hint, values, given, name, attr)


def _instead(name: str) -> str | None:
    if name in ("array", "from_numpy", "from_dlpack"):
        return (
            "only nd makes arrays: give it as an input, or keep it with self.params.get_constant()"
        )
    return did_you_mean(name, __dir__())


def __getattr__(name: str):
    op = REGISTRY.get(name)
    if op is None:
        rule = f"module 'sym' has no function {name!r}"
        raise missing.attribute("sym", name, rule, lambda: _instead(name))
    function = symbol_function(op, name)
    setattr(sys.modules[__name__], name, function)
    return function


def __dir__():
    return sorted({*__all__, *(n for n in REGISTRY if not n.startswith("_"))})
