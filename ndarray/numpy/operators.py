"""Python's operators on arrays of mx.np and on their Symbols: x + 2, x // y, x &= mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine._array import invoke1
from ...engine.error import DTypeError, ShapeError
from ...kernels import precision
from ...kernels.ops.np.arithmetic import PAIRS
from ...kernels.plan import Plan, infer
from ...kernels.record import Operator, lookup
from ...kernels.spec import NUMPY_DTYPES
from ..fronts import Steps
from ..invoke import invoke
from ..launch import Plans, copy_into, run
from ..ndarray import NDArray, state
from ..tape import record, refuse_recorded
from .array import array, ndarray

Binary = Callable[[Any, Any], Any]


def binary(name: str) -> tuple[Binary, Binary]:
    """(x <op> other, other <op> x) of an array or Symbol x and any operand. NotImplemented for what
    is neither an array nor a number."""
    both, right, left = (lookup(f"_npi_{n}") for n in (name, f"{name}_scalar", f"r{name}_scalar"))
    pairs = Plans(sure=True)
    on_right: dict[type, Plans] = {kind: Plans(sure=True) for kind in NUMBERS}
    on_left: dict[type, Plans] = {kind: Plans(sure=True) for kind in NUMBERS}
    floats, wholes = on_right[float], on_right[int]
    compares = name in COMPARISONS.values()
    low, high = (0, 127) if compares else (-EXACT, EXACT)  # numbers of every dtype; all that fit

    def forward(x: Any, other: Any) -> Any:
        """The shortest way through a plan; calls without one go by `made`."""
        kind = other.__class__
        if x.__class__ is not ndarray:
            return made(x, other)
        if kind is ndarray:
            plan = pairs[x._spec, other._spec]
        elif kind is float:
            plan = floats[x._spec]
        elif kind is int and low <= other <= high:
            plan = wholes[x._spec]
        else:
            return made(x, other)
        if plan.__class__ is Plan and not precision.used:
            out = invoke1(plan.handle, plan.out_spec, x, other)
            if state.recording:
                pair = kind is ndarray
                record(plan, (x, other) if pair else (x,), () if pair else (other,), (out,))
            return out
        if plan.__class__ is Steps and not precision.used:
            return plan.call((x, other)) if kind is ndarray else plan.call((x,), (other,))
        return made(x, other)

    def made(x: Any, other: Any) -> Any:
        if other is None and name in ("equal", "not_equal"):
            return _everywhere(x, name == "not_equal")
        other = operand(other, x)
        if other is NotImplemented:
            return other
        if other.__class__ in NUMBERS:
            return of_number(right, on_right, x, other)
        key = (x._spec, other._spec) if x.__class__ is other.__class__ is ndarray else None
        return invoke(both, (x, other), {}, None, None, pairs if key else None, key)

    def backward(x: Any, other: Any) -> Any:
        other = operand(other, x)
        if other.__class__ in NUMBERS:
            return of_number(left, on_left, x, other)
        return other if other is NotImplemented else invoke(both, (other, x), {})

    def of_number(op: Any, by_kind: dict[type, Plans], x: Any, number: Any) -> Any:
        number = comparable(x, number) if compares else number
        plans, key = by_kind[number.__class__], x._spec if x.__class__ is ndarray else None
        plan = plans[key] if key is not None else None
        if plan is not None and not precision.used:
            return (
                run(plan, (x,), (number,)) if plan.__class__ is Plan else plan.call((x,), (number,))
            )
        attrs = {"scalar": number, "is_int": is_whole(number)}
        return invoke(op, (x,), attrs, None, None, plans if key is not None else None, key)

    return forward, backward


NUMBERS = (float, int, bool)
EXACT = 1 << 53  # kernels get numbers as doubles, which hold whole numbers up to here


def is_whole(number: Any) -> bool:
    return number.__class__ is not float


def comparable(x: Any, number: Any) -> Any:
    """A number to compare an array with: an infinity for one beyond the array's whole numbers."""
    kind = NUMPY_DTYPES[x._spec.dtype] if isinstance(x, NDArray) else None
    if kind is None or kind.kind not in "iu" or number.__class__ is not int:
        return number
    info = onp.iinfo(kind)
    return number if info.min <= number <= info.max else math.copysign(math.inf, number)


def _everywhere(x: Any, value: bool) -> Any:
    """What a comparison with None gives: no element equals it."""
    attrs = {"shape": x.shape, "value": float(value), "dtype": "bool"}
    return invoke(lookup("_full"), (), attrs, None, x._spec.device).as_np_ndarray()


def operand(value: Any, beside: Any = None) -> Any:
    """What stands beside an array: an array or Symbol, or a number of Python. NotImplemented: it is
    neither. A bool beside an array is a bool, not a number; a whole number that no double holds is
    an array of the dtype beside it."""
    if value.__class__ is bool and isinstance(beside, NDArray):
        return array(onp.bool_(value), ctx=beside.context)
    if value.__class__ is int and not -EXACT <= value <= EXACT and isinstance(beside, NDArray):
        kind = NUMPY_DTYPES[beside._spec.dtype]
        if kind.kind in "iu" and onp.iinfo(kind).min <= value <= onp.iinfo(kind).max:
            return array(onp.asarray(value, kind), ctx=beside.context)
        return float(value)
    if value.__class__ in NUMBERS or isinstance(value, NDArray) or hasattr(value, "_call_operator"):
        return value
    if getattr(value, "ndim", None) == 0:  # of NumPy
        return operand(value.item(), beside)
    return (
        array(value)
        if hasattr(value, "__array__") or isinstance(value, (list, tuple))
        else NotImplemented
    )


# ---- in place ------------------------------------------------------------------------------------


def into(
    op: Operator,
    inputs: Sequence[NDArray],
    attrs: dict[str, Any],
    out: NDArray,
    plans: Plans | None = None,
    key: Any = None,
) -> NDArray:
    """Calls an operator of one result and writes that into an array: directly where it has the
    result's type. Raises DTypeError for floats into whole numbers, and what NumPy refuses too."""
    (made,) = infer(op, op.parse(attrs), [x._spec.type for x in inputs])
    if tuple(made.shape) != out.shape:
        raise ShapeError(op.name, f"out must have the result's shape {made.shape}, got {out.shape}")
    dtype = out._spec.dtype
    if made.dtype == dtype:
        return invoke(op, inputs, attrs, out, None, plans, key)
    if not onp.can_cast(NUMPY_DTYPES[made.dtype], NUMPY_DTYPES[dtype], "same_kind"):
        rule = f"a result of {made.dtype} does not go into an array of {dtype}"
        raise DTypeError(op.name, rule, fix=f"x.astype({made.dtype!r}), or a new array")
    copy_into(invoke(op, inputs, attrs), out)
    return out


def in_place(name: str) -> Binary:
    """The method for `x <op>= other`: writes into x's memory."""
    both, right = lookup(f"_npi_{name}"), lookup(f"_npi_{name}_scalar")
    plans = Plans()

    def method(x: Any, other: Any) -> Any:
        inputs: tuple = (x,)
        scalars: tuple = ()
        if other.__class__ is ndarray:
            plan, inputs = plans[x._spec, other._spec], (x, other)
        elif other.__class__ in NUMBERS and -EXACT <= other <= EXACT:
            plan, scalars = plans[x._spec, other.__class__], (other,)
        else:
            plan = None
        if plan is None or precision.used:
            return made(x, other)
        if state.recording:
            refuse_recorded(x, other)
        if plan.__class__ is Steps:
            return plan.call(inputs, scalars, x)
        return run(plan, inputs, scalars, x)

    def made(x: Any, other: Any) -> Any:
        other = operand(other, x)
        if other is NotImplemented:
            return other
        refuse_recorded(x, other)
        if other.__class__ in NUMBERS:
            attrs = {"scalar": other, "is_int": is_whole(other)}
            return into(right, (x,), attrs, x, plans, (x._spec, other.__class__))
        return into(both, (x, other), {}, x, plans, (x._spec, other._spec))

    return method


# ---- all of them ---------------------------------------------------------------------------------

OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "mod",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
}
OF_ONE = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "bitwise_not"}
PAIRS_OF = {name: binary(name) for name in PAIRS}


def _of_one(name: str) -> Callable[[Any], Any]:
    op, plans = lookup(f"_npi_{name}"), Plans(sure=True)

    def method(x: Any) -> Any:
        if x.__class__ is not ndarray:
            return invoke(op, (x,), {})
        plan = plans[x._spec]
        if plan.__class__ is Plan and not precision.used:
            return run(plan, (x,))
        return invoke(op, (x,), {}, None, None, plans, x._spec)

    return method


def _matmul(x: Any, other: Any) -> Any:
    other = operand(other, x)
    return other if other is NotImplemented else invoke(lookup("_npi_matmul"), (x, other), {})


def _rmatmul(x: Any, other: Any) -> Any:
    other = operand(other, x)
    return other if other is NotImplemented else invoke(lookup("_npi_matmul"), (other, x), {})


def _imatmul(x: Any, other: Any) -> Any:
    other = operand(other, x)
    refuse_recorded(x, other)
    return other if other is NotImplemented else into(lookup("_npi_matmul"), (x, other), {}, x)


def _divmod(x: Any, other: Any) -> Any:
    return PAIRS_OF["floor_divide"][0](x, other), PAIRS_OF["mod"][0](x, other)


def _rdivmod(x: Any, other: Any) -> Any:
    return PAIRS_OF["floor_divide"][1](x, other), PAIRS_OF["mod"][1](x, other)


def _round(x: Any, decimals: int | None = None) -> Any:
    return invoke(lookup("_npi_around"), (x,), {"decimals": decimals or 0})


OTHERS = {
    "matmul": _matmul,
    "rmatmul": _rmatmul,
    "divmod": _divmod,
    "rdivmod": _rdivmod,
    "round": _round,
}


def add_operators(cls: type, writes: bool) -> None:
    """Gives a class of arrays or Symbols Python's operators. writes: those in place, too."""
    for method, name in OPERATORS.items():
        forward, backward = PAIRS_OF[name]
        setattr(cls, f"__{method}__", forward)
        setattr(cls, f"__r{method}__", backward)
        if writes:
            setattr(cls, f"__i{method}__", in_place(name))
    for method, name in COMPARISONS.items():
        setattr(cls, f"__{method}__", PAIRS_OF[name][0])
    for method, name in OF_ONE.items():
        setattr(cls, f"__{method}__", _of_one(name))
    for method, function in OTHERS.items():
        setattr(cls, f"__{method}__", function)
    if writes:
        setattr(cls, "__imatmul__", _imatmul)
    setattr(cls, "__hash__", object.__hash__)


add_operators(ndarray, writes=True)
