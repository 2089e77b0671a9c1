"""What mx.np leaves to official NumPy: functions called on copies, whose results become arrays
again. The one place that does this. It says so once for each function."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as onp

from ...engine import current_context
from ...engine.error import InvalidType, InvalidValue, MXNetError, compose
from ...kernels.record import DTYPES
from ..launch import copy_into
from ..ndarray import NDArray, from_memory, state
from .array import fresh, is_symbol

# functions that have no operator here: of the module numpy
NAMES = frozenset(
    "frexp histogram2d histogramdd packbits piecewise polydiv polyfit roots sort_complex unpackbits"
    " vectorize".split()
)
# functions that NumPy 2 has under another name or not at all
REPLACED = {
    "in1d": lambda ar1, ar2, *more, **options: onp.isin(onp.ravel(ar1), ar2, *more, **options),
    "trapz": onp.trapezoid,
    "msort": lambda a: onp.sort(a, axis=0),
}
GONE = ("mirr", "npv", "ppmt", "pv", "rate")  # of NumPy, since 1.20


class NumpyFallback(UserWarning):
    """A function ran in NumPy, on copies of its arguments."""


_said: set[str] = set()


def say(name: str) -> None:
    """Warns of a function once in the life of the process."""
    if name not in _said:
        _said.add(name)
        warnings.warn(
            f"np.{name} runs in NumPy, on copies of its arguments: on the CPU, without gradients",
            NumpyFallback,
            stacklevel=4,
        )


@functools.cache
def fallback(name: str) -> Callable[..., Any]:
    """np.name as official NumPy has it. Raises AttributeError for a name that NumPy has not."""
    official: Any = REPLACED.get(name) or functools.reduce(getattr, name.split("."), onp)

    def call(*args: Any, **kwargs: Any) -> Any:
        return run(name, official, args, kwargs)

    if not isinstance(official, onp.ufunc):
        functools.update_wrapper(call, official)
    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__module__ = __package__
    call.__doc__ = f"NumPy's {name}, run on copies of the arguments: without gradients."
    call.is_fallback = True  # type: ignore[attr-defined]
    return call


def run(name: str, official: Callable[..., Any], args: Iterable, kwargs: dict[str, Any]) -> Any:
    """Calls a function of NumPy on copies. Raises ValueError where gradients are asked for, and
    TypeError for Symbols."""
    arrays: list[NDArray] = []
    out = kwargs.pop("out", None)
    given = [_out(a, arrays) for a in args]
    options = {key: _out(value, arrays) for key, value in kwargs.items()}
    if state.recording and any([a._tape is not None for a in arrays]):
        rule = f"np.{name} has no gradient: it runs in NumPy, but autograd records its arguments"
        raise InvalidValue(compose(rule, fix="x.detach(), or `with autograd.pause():`"))
    say(name)
    device = arrays[0].context if arrays else current_context()
    made = _back(official(*given, **options), device)
    if out is None:
        return made
    target = out[0] if isinstance(out, tuple) else out
    copy_into(made, target)
    return target


def _out(value: Any, arrays: list) -> Any:
    """An argument for NumPy: arrays, also those in sequences, become NumPy's, and are noted."""
    if isinstance(value, NDArray):
        arrays.append(value)
        return value.asnumpy()
    if is_symbol(value):
        raise InvalidType("np: a function that runs in NumPy cannot be part of a Symbol")
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)([_out(v, arrays) for v in value])
    if callable(value) and getattr(value, "__module__", "") == __package__:
        return getattr(onp, value.__name__, value)  # np.sum as an argument: NumPy's
    return value


def _back(value: Any, device: Any) -> Any:
    """NumPy's result: arrays of dtypes that we have become ours."""
    if isinstance(value, (onp.ndarray, onp.generic)) and not isinstance(value, onp.bool_):
        return (
            fresh(from_memory(onp.asarray(value), device)) if value.dtype.name in DTYPES else value
        )
    if isinstance(value, onp.bool_):
        return bool(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)([_back(v, device) for v in value])
    return value


def gone(name: str) -> Callable[..., Any]:
    """A function that NumPy no longer has."""

    def call(*args: Any, **kwargs: Any) -> Any:
        rule = f"np.{name}: NumPy removed it in 1.20, and plait does not have it"
        raise MXNetError(compose(rule, fix=f"numpy_financial.{name}, on x.asnumpy()"))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Removed from NumPy; see the package numpy_financial."
    return call


def named(name: str) -> Callable[..., Any] | None:
    """The function of mx.np that runs in NumPy, or None."""
    if name in GONE:
        return gone(name)
    return fallback(name) if name in NAMES or name in REPLACED else None


__all__ = ["NumpyFallback"]
