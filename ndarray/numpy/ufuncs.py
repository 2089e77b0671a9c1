"""Functions of each element, np.add(x, 2), np.exp(x, out=y, where=mask), with the keywords of
NumPy's ufuncs. Numbers alone give NumPy's numbers, arrays and Symbols what they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ...engine.error import InvalidType, ShapeError
from ...kernels import precision
from ...kernels.ops.np.arithmetic import PAIRS
from ...kernels.ops.np.unary import FUNCTIONS
from ...kernels.plan import Plan
from ...kernels.record import Operator, lookup
from ..fronts import Steps
from ..invoke import invoke
from ..launch import Plans, copy_into, run
from ..ndarray import NDArray
from ..numpy_mode import np_ufunc_legal_option
from ..tape import refuse_recorded
from . import operators
from .array import array, ndarray
from .operators import COMPARISONS, NUMBERS, PAIRS_OF, comparable, into, is_whole


def applied(
    op: Operator,
    inputs: Sequence[Any],
    attrs: dict[str, Any],
    out: Any,
    where: Any,
    options: dict[str, Any],
) -> Any:
    """An operator under a ufunc's keywords. where: elsewhere `out` stays, or it is 0. dtype: the
    operands are cast to it. Raises TypeError for a keyword that ufuncs do not have."""
    dtype = options.pop("dtype", None)
    for key, value in options.items():
        if not np_ufunc_legal_option(key, value):
            raise InvalidType(f"np: {key}={value!r} is no option of ufuncs\n  fix: leave it out")
    if dtype is not None:
        inputs = [x.astype(dtype) for x in inputs]
    target = out[0] if isinstance(out, tuple) else out
    if target is None and where is True:
        return invoke(op, inputs, attrs)
    if where is True:
        refuse_recorded(target)
        return into(op, inputs, attrs, target)
    made = invoke(op, inputs, attrs)
    other = target if target is not None else invoke(lookup("zeros_like"), (made,), {})
    condition = where if isinstance(where, NDArray) else array(where, "bool")
    made = invoke(lookup("_npi_where"), (condition, made, other), {})
    if target is None:
        return made
    if target.shape != made.shape:
        rule = f"must have the result's shape {made.shape}, got {target.shape}"
        raise ShapeError("out", rule)
    refuse_recorded(target, made)
    copy_into(made, target)
    return target


def _takes(plan: Plan, out: Any) -> bool:
    """Can a plan write into `out` as it is?"""
    return getattr(out, "_spec", None) is plan.out_spec


def operand(x: Any, name: str) -> Any:
    """As operators.operand. Raises TypeError for what is neither an array nor a number."""
    found = operators.operand(x)
    if found is NotImplemented:
        raise InvalidType(f"np.{name}: operands must be arrays or numbers, got {x!r}")
    return found


def _named(call: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


def of_two(name: str) -> Callable[..., Any]:
    """np.add and its kin: of two operands, one of which may be a number."""
    (forward, backward), ref = PAIRS_OF[name], PAIRS[name].ref
    both, right, left = (lookup(f"_npi_{n}") for n in (name, f"{name}_scalar", f"r{name}_scalar"))
    compares = name in COMPARISONS.values()

    def call(x1: Any, x2: Any, out: Any = None, where: Any = True, **kwargs: Any) -> Any:
        first, second = operand(x1, name), operand(x2, name)
        plain = out is None and where is True and not kwargs
        if second.__class__ in NUMBERS:
            if first.__class__ in NUMBERS:
                if plain:
                    return ref(x1, x2)
                first = array(first)
            if plain:
                return forward(first, second)
            second = comparable(first, second) if compares else second
            attrs = {"scalar": second, "is_int": is_whole(second)}
            return applied(right, (first,), attrs, out, where, kwargs)
        if first.__class__ in NUMBERS:
            if plain:
                return backward(second, first)
            first = comparable(second, first) if compares else first
            attrs = {"scalar": first, "is_int": is_whole(first)}
            return applied(left, (second,), attrs, out, where, kwargs)
        return (
            forward(first, second)
            if plain
            else applied(both, (first, second), {}, out, where, kwargs)
        )

    return _named(call, name, f"{both.doc} Either may be a number.")


def of_one(name: str) -> Callable[..., Any]:
    """np.exp and its kin."""
    op, ref, plans = lookup(f"_npi_{name}"), FUNCTIONS[name], Plans()

    def call(x: Any, out: Any = None, where: Any = True, **kwargs: Any) -> Any:
        if x.__class__ is ndarray and where is True and not kwargs:
            plan = plans[x._spec]
            if not precision.used:
                if plan.__class__ is Plan and (out is None or _takes(plan, out)):
                    return run(plan, (x,), (), out)
                if plan.__class__ is Steps and out is None:
                    return plan.call((x,), (), None)
            if out is None:
                return invoke(op, (x,), {}, None, None, plans, x._spec)
        given = operand(x, name)
        if given.__class__ in NUMBERS:
            if out is None and where is True and not kwargs:
                with contextlib.suppress(TypeError):  # NumPy has no such function of a bool
                    return ref(x)
            given = array(given)
        return applied(op, (given,), {}, out, where, kwargs)

    return _named(call, name, op.doc)


def logaddexp2(x1: Any, x2: Any, out: Any = None, where: Any = True, **kwargs: Any) -> Any:
    """log2(2^x1 + 2^x2), without overflow."""
    xs = [array(x) if x.__class__ in NUMBERS else x for x in map(_plain, (x1, x2))]
    return applied(lookup("_npi_logaddexp2"), xs, {}, out, where, kwargs)


def _plain(x: Any) -> Any:
    return operand(x, "logaddexp2")


ALIASES = {alias: name for name, pair in PAIRS.items() for alias in pair.aliases}
for _name in PAIRS:
    globals()[_name] = of_two(_name)
for _name in FUNCTIONS:
    globals()[_name] = of_one(_name)
for _alias, _name in ALIASES.items():
    globals()[_alias] = globals()[_name]
__all__ = ["logaddexp2", *PAIRS, *FUNCTIONS, *ALIASES]
