"""Types and parameters of operators: dtypes, kinds of attributes, their limits, and how values that
callers and files give are read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..engine.error import (
    InvalidType,
    MXNetError,
    OperatorError,
    compose,
    did_you_mean,
    shown,
)
from .scalar import UnknownScalar, as_float
from .size import is_size


class _Required:
    """Stands in signatures where a default would."""

    def __repr__(self):
        return "<required>"


REQUIRED: Any = _Required()  # the default of a parameter that must be given

DTYPES = (
    "float32",
    "float64",
    "float16",
    "uint8",
    "int32",
    "int8",
    "int64",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
)  # index = MXNet's type flag
HALVES = ("float16", "bfloat16")  # stored in 16 bits, computed in float32
NATIVE_FLOATS = ("float32", "float64")  # in which C computes
FLOATS = (*NATIVE_FLOATS, *HALVES)
NATIVE_INTS = ("int32", "int64", "int8", "uint8")
NATIVE = (*NATIVE_FLOATS, *NATIVE_INTS)  # dtypes of generated C loops
NUMERIC = (*FLOATS, *NATIVE_INTS)  # and of CUDA kernels


class Type(NamedTuple):
    """Shape and dtype name of one array: what inference works on.

    layout: "" is row-major; only the layout pass makes others (layouts.py).
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = ""


Shape = tuple[int, ...]
Types = Sequence[Type]
Attrs = dict[str, Any]  # of a call: by name
# An array of NumPy or CuPy (`xp` is its module), an NDArray, or a value of a trace or graph (`F`
# has their operators): rules are written once for all of them
Array = Any


class Param(NamedTuple):
    """One attribute of an operator. `kind` is a key of PARSERS or a tuple of allowed strings."""

    name: str
    kind: str | tuple
    default: Any = REQUIRED
    # a number that may change from call to call: handed to the kernel, not part of the plan
    dynamic: bool = False
    doc: str = ""
    # the least and the most of a number, or of each in a shape; None: what LIMITS says
    limits: tuple[float, float] | None = None
    # MXNet has not got it: in signatures it stands after all of MXNet's, to be given by keyword
    keyword: bool = False


INT32 = (-(1 << 31), (1 << 31) - 1)
ANY = (-(1 << 63), (1 << 63) - 1)  # a seed, a label, a position: nothing has its size
# What has a parameter's size: arrays, whose bytes `infer` bounds; or work beyond them, and objects.
# These have limits of their own, so that a file of 300 bytes does not keep a machine busy.
LIMITS = {"int": INT32, "shape": ANY}
LARGE = (-(1 << 46), 1 << 46)  # sizes of an axis, and places on it: `infer` bounds the bytes
COUNT = (0, 1 << 16)  # of inputs, outputs, sections: each is an object
WEIGHTS = (0, 1 << 12)  # that one call updates: each is several inputs
FRACTION = (
    0,
    1,
)  # a probability; of a map: what a region covers decides how many samples are taken
REACH = (0, 1 << 20)  # of a window, in elements: what kernels go through for one output


def _literal(value):
    return ast.literal_eval(value) if isinstance(value, str) else value


def _whole(value: Any) -> Any:
    """An int that kernels can hold, or a Size. Raises OverflowError."""
    number = value if is_size(value) else value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError
    return number


def several(value: Any, n: int = 1) -> Any:
    """Numbers to go through, where one number stands for n of it."""
    is_number = not hasattr(value, "__iter__") or getattr(value, "ndim", None) == 0
    return (value,) * n if is_number else value


def _parse_shape(value):
    value = _literal(value)
    if value is None:
        raise TypeError
    return tuple(v if v is None else _whole(v) for v in several(value))


def _parse_int(value):
    value = _literal(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _whole(value)


def _parse_bool(value):
    if isinstance(value, str):
        return {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}[
            value
        ]
    return bool(value)


def dtype_name(value: Any) -> str:
    """The name in DTYPES of a dtype given as a name, a NumPy dtype or type, MXNet's type flag, or
    an array that has it; None is float32."""
    if isinstance(value, str) and value in DTYPES:
        return value
    if value is None:
        return "float32"
    if isinstance(value, (int, str)) and str(value).isdigit() and int(value) < len(DTYPES):
        return DTYPES[int(value)]
    import numpy as np

    if hasattr(value, "dtype") and not isinstance(value, type):
        value = value.dtype
    try:
        dtype = np.dtype(value)
        name = dtype.names[0] if dtype.names else dtype.name
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in DTYPES:
        rule = f"dtype: {value!r} is not supported, expected one of {', '.join(DTYPES)}"
        raise InvalidType(compose(rule, fix=did_you_mean(str(value), DTYPES)))
    return name


def _parse_pairs(value):
    """Numbers, or tuples of numbers: 1, (1, 2), ((1, 2), (0, 0))."""
    value = _literal(value)
    parts = tuple([v if hasattr(v, "__index__") else _parse_shape(v) for v in several(value)])
    return tuple([v if v.__class__ is tuple else _whole(v) for v in parts])


def _parse_context(value) -> str:
    """The text of a device: of a Context, or as files hold it ("gpu(1)"); "": the current one."""
    text = "" if value is None or str(value) == "None" else str(value)
    if text:
        from ..engine.device import named  # here: the build reads records before there is a core

        named(text)
    return text


def _optional(parse):
    def parse_optional(value):
        is_none = value is None or (isinstance(value, str) and value == "None")
        return None if is_none else parse(value)

    return parse_optional


PARSERS: dict[str, Callable] = {
    "int": _parse_int,
    "float": as_float,
    "bool": _parse_bool,
    "shape": _parse_shape,
    "pairs": _parse_pairs,
    "str": str,
    "context": _parse_context,
    "dtype": dtype_name,
    "floats": lambda v: tuple(as_float(x) for x in several(_literal(v))),
}
# what errors call a kind, where that is not its name
KIND_TEXT = {
    "pairs": "a whole number, or tuples of them",
    "shape": "an int or a tuple of ints",
    "floats": "a float or a tuple of floats",
}
PARSERS |= {kind + "?": _optional(parse) for kind, parse in PARSERS.items()}


def parse(p: Param, value: Any, op: str) -> Any:
    """The value of an operator's attribute as its parameter wants it. Raises OperatorError."""
    if type(value) is float and p.kind == "float" and p.limits is None:
        return value
    if isinstance(p.kind, tuple):
        if p.name == "dtype" and value is not None and not isinstance(value, str):
            value = dtype_name(value)
        value = "None" if value is None else str(value)
        if value not in p.kind:
            raise OperatorError(
                op,
                f"{p.name} must be one of {', '.join(p.kind)}, got {shown(value)}",
                fix=did_you_mean(value, p.kind),
            )
        return None if value == "None" else value
    try:
        found = PARSERS[p.kind](value)
    except (MXNetError, UnknownScalar):
        raise
    except Exception:
        kind = KIND_TEXT.get(p.kind.rstrip("?"), p.kind.rstrip("?"))
        kind += " or None" * p.kind.endswith("?")
        raise OperatorError(op, f"{p.name} must be {kind}, got {shown(value)}") from None
    if p.limits is not None and found is not None:
        low, high = p.limits
        for n in found if found.__class__ is tuple else (found,):
            if n is not None and not low <= n <= high:
                raise OperatorError(
                    op,
                    f"{p.name} must be between {low} and {high}, got {shown(value)}",
                )
    return found
