"""Binary functions of mx.np, np.add(x, 2), and Python's operators on its arrays, x + 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...engine._array import invoke1
from ...engine.error import InvalidType, ShapeError
from ...kernels import precision
from ...kernels.ops.np.arithmetic import PAIRS
from ...kernels.plan import Plan
from ...kernels.record import lookup
from ..fronts import Steps
from ..invoke import invoke
from ..launch import Plans, copy_into, run
from ..ndarray import NDArray, state
from ..numpy_mode import np_ufunc_legal_option
from ..tape import record, refuse_recorded
from .array import array, ndarray

Binary = Callable[[Any, Any], Any]


def binary(name: str) -> tuple[Binary, Binary]:
    """(x <op> other, other <op> x) of an array or Symbol x and any operand. NotImplemented for what
    is neither an array nor a number."""
    both, right, left = (lookup(f"_npi_{n}") for n in (name, f"{name}_scalar", f"r{name}_scalar"))
    pairs, on_right, on_left = Plans(sure=True), Plans(sure=True), Plans(sure=True)

    def forward(x: Any, other: Any) -> Any:
        """The shortest way through a plan; calls without one go by `made`."""
        if other.__class__ is ndarray and x.__class__ is ndarray:
            plan, scalars = pairs[x._spec, other._spec], ()
        elif other.__class__ in NUMBERS and x.__class__ is ndarray:
            plan, scalars = on_right[x._spec, other.__class__], (other,)
        else:
            plan = None
        if plan.__class__ is not Plan or precision.used:
            if plan.__class__ is Steps and not precision.used:
                return plan.call((x,) if scalars else (x, other), scalars, None)
            return made(x, other)
        out = invoke1(plan.handle, plan.out_spec, x, other)
        if state.recording:
            record(plan, (x,) if scalars else (x, other), scalars, (out,))
        return out

    def made(x: Any, other: Any) -> Any:
        other = operand(other)
        if other is NotImplemented:
            return other
        if other.__class__ in NUMBERS:
            return of_number(right, on_right, x, other)
        key = (x._spec, other._spec) if x.__class__ is other.__class__ is ndarray else None
        return invoke(both, (x, other), {}, None, None, pairs if key else None, key)

    def backward(x: Any, other: Any) -> Any:
        other = operand(other)
        if other.__class__ in NUMBERS:
            return of_number(left, on_left, x, other)
        return other if other is NotImplemented else invoke(both, (other, x), {})

    def of_number(op: Any, plans: Plans, x: Any, number: Any) -> Any:
        key = (x._spec, number.__class__) if x.__class__ is ndarray else None
        plan = plans[key] if key else None
        if plan.__class__ is Plan and not precision.used:
            return run(plan, (x,), (number,))
        attrs = {"scalar": number, "is_int": is_whole(number)}
        return invoke(op, (x,), attrs, None, None, plans if key else None, key)

    return forward, backward


NUMBERS = (float, int, bool)


def is_whole(number: Any) -> bool:
    return number.__class__ is not float


def operand(value: Any) -> Any:
    """What stands beside an array: an array or Symbol, or a number of Python. NotImplemented: it is
    neither."""
    if value.__class__ in NUMBERS or isinstance(value, NDArray) or hasattr(value, "_call_operator"):
        return value
    if getattr(value, "ndim", None) == 0:  # of NumPy
        return value.item()
    return (
        array(value)
        if hasattr(value, "__array__") or isinstance(value, (list, tuple))
        else NotImplemented
    )


def _in_place(forward: Binary) -> Binary:
    def method(self: NDArray, other: Any) -> Any:
        refuse_recorded(self, other)
        made = forward(self, other)
        if made is NotImplemented:
            return made
        copy_into(made, self)
        return self

    return method


OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "mod": "mod",
    "pow": "power",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
}
PAIRS_OF = {name: binary(name) for name in PAIRS}


def add_operators(cls: type, in_place: bool) -> None:
    """Gives a class of arrays or Symbols Python's operators."""
    for method, name in OPERATORS.items():
        forward, backward = PAIRS_OF[name]
        setattr(cls, f"__{method}__", forward)
        setattr(cls, f"__r{method}__", backward)
        if in_place:
            setattr(cls, f"__i{method}__", _in_place(forward))
    for method, name in COMPARISONS.items():
        setattr(cls, f"__{method}__", PAIRS_OF[name][0])
    setattr(cls, "__hash__", object.__hash__)


add_operators(ndarray, in_place=True)


def function(name: str) -> Callable[..., Any]:
    """np.add and its kin: of two operands, one of which may be a number."""
    forward, backward = PAIRS_OF[name]

    def call(x1: Any, x2: Any, out: Any = None, where: Any = True, **kwargs: Any) -> Any:
        first, second = operand(x1), operand(x2)
        if first is NotImplemented or second is NotImplemented:
            raise InvalidType(
                f"np.{name}: operands must be arrays or numbers, got {x1!r} and {x2!r}"
            )
        if first.__class__ in NUMBERS and second.__class__ in NUMBERS:
            first = array(first)
        made = backward(second, first) if first.__class__ in NUMBERS else forward(first, second)
        return written(made, out, where, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{lookup(f'_npi_{name}').doc} Either may be a number."
    return call


def written(made: Any, out: Any, where: Any, options: dict[str, Any]) -> Any:
    """The result of a ufunc with NumPy's keywords. where: elsewhere `out` stays. Raises TypeError
    for a keyword that ufuncs do not have."""
    for key, value in options.items():
        if key != "dtype" and not np_ufunc_legal_option(key, value):
            raise InvalidType(f"np: {key}={value!r} is no option of ufuncs\n  fix: leave it out")
    if options.get("dtype") is not None:
        made = made.astype(options["dtype"])
    if where is not True:
        other = out if out is not None else invoke(lookup("zeros_like"), (made,), {})
        made = invoke(lookup("_npi_where"), (array(where, "bool"), made, other), {})
    if out is None:
        return made
    if out.shape != made.shape:
        raise ShapeError("out", f"must have the result's shape {made.shape}, got {out.shape}")
    refuse_recorded(out, made)
    copy_into(made, out)
    return out
