"""Python's operators on arrays: x + y, 2 - x, x += y. They take the shortest way through a plan;
calls without one go by `invoke`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine._array import invoke1
from ..engine.error import InvalidType, MXNetError
from ..kernels import precision
from ..kernels.plan import Plan
from ..kernels.record import lookup
from .invoke import call_known
from .launch import Plans, run
from .ndarray import NDArray, state
from .tape import record, refuse_recorded

NUMBERS = (float, int)


def binary_method(both: str, right: str) -> Callable:
    """The method for `array <op> array` and `array <op> number`."""
    op, scalar_op = lookup(both), lookup(right)
    pairs, singles = Plans(sure=True), Plans(sure=True)

    def method(self, other):
        if isinstance(other, NDArray):
            key = self._spec, other._spec
            plan = pairs[(precision.number(), key) if precision.used else key]
            if plan.__class__ is not Plan:  # None, or casts and the call
                return call_known(op, (self, other), {}, pairs, key)
            out = invoke1(plan.handle, plan.out_spec, self, other)
            if state.recording:
                record(plan, (self, other), (), (out,))
            return out
        key = self._spec
        plan = singles[(precision.number(), key) if precision.used else key]
        try:
            if plan.__class__ is not Plan:
                value = as_number(other)
                attrs = {"scalar": value}
                return call_known(scalar_op, (self,), attrs, singles, key, (value,))
            out = invoke1(plan.handle, plan.out_spec, self, other)
        except TypeError as error:
            if isinstance(error, MXNetError):
                raise
            return not_a_number(self, other, op)
        if state.recording:
            record(plan, (self,), (other,), (out,))
        return out

    return method


def scalar_method(left: str) -> Callable:
    """The reflected method: number <op> array."""
    op = lookup(left)
    plans = Plans(sure=True)

    def method(self, other):
        key = self._spec
        plan = plans[(precision.number(), key) if precision.used else key]
        if plan.__class__ is Plan and other.__class__ in NUMBERS:
            out = invoke1(plan.handle, plan.out_spec, self, other)
            if state.recording:
                record(plan, (self,), (other,), (out,))
            return out
        try:
            value = as_number(other)
        except TypeError as error:
            if isinstance(error, MXNetError):
                raise
            return not_a_number(self, other, op)
        return call_known(op, (self,), {"scalar": value}, plans, key, (value,))

    return method


def in_place_method(both: str, right: str) -> Callable:
    """The method for `array <op>= array` and `array <op>= number`."""
    op, scalar_op = lookup(both), lookup(right)
    pairs, singles = Plans(), Plans()

    def method(self, other):
        if isinstance(other, NDArray):
            refuse_recorded(self, other)
            key = self._spec, other._spec
            plan = pairs[(precision.number(), key) if precision.used else key]
            if plan.__class__ is not Plan:  # None, or casts and the call
                return call_known(op, (self, other), {}, pairs, key, (), self)
            return run(plan, (self, other), (), self)
        try:
            value = as_number(other)
        except TypeError:
            return not_a_number(self, other, op)
        refuse_recorded(self)
        key = self._spec
        plan = singles[(precision.number(), key) if precision.used else key]
        if plan.__class__ is not Plan:
            attrs = {"scalar": value}
            return call_known(scalar_op, (self,), attrs, singles, key, (value,), self)
        return run(plan, (self,), (value,), self)

    return method


def as_number(value: Any) -> float:
    """A scalar operand. Raises TypeError, also for NumPy arrays of one element and numbers in
    strings."""
    if isinstance(value, (str, bytes, np.ndarray)):
        raise TypeError("not a number")
    return float(value)


def not_a_number(self: NDArray, other: Any, op: Any) -> Any:
    """NotImplemented, or TypeError where Python's own answer would mislead: NumPy arrays, and x ==
    [1, 2]."""
    compares = "equal" in op.name and other is not None
    if compares or hasattr(other, "__array__") or isinstance(other, (list, tuple)):
        raise InvalidType(
            f"{op.name}: cannot mix NDArray and {type(other).__name__}\n  fix: convert it with"
            " nd.array(x)"
        )
    return NotImplemented
