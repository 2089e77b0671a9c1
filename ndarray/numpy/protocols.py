"""Official NumPy's functions on arrays of mx.np: plait's where it has them, else NumPy's
on copies."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as onp

from ..ndarray import NDArray
from ..tape import refuse_recorded
from .array import array, method, ndarray
from .fallback import run

REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_NO_VALUE = getattr(onp, "_NoValue", None)  # what NumPy gives for an absent initial value
ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}
RENAMED = {
    "conjugate": "positive",
    "divide": "true_divide",
    "pow": "power",
    "svd": "svd_of_numpy",
}


@functools.cache
def ours(module: str, name: str) -> Callable[..., Any] | None:
    """plait's function for one of NumPy's; None where there is none, or it would go to NumPy."""
    inner = module.removeprefix("numpy").lstrip(".")
    try:
        space = importlib.import_module(f".{inner}", __package__) if inner else None
        space = space or importlib.import_module(__package__)
        found = getattr(space, RENAMED.get(name, name))
    except (ImportError, AttributeError):
        return None
    official = (getattr(found, "__module__", "") or "numpy").partition(".")[0] == "numpy"
    usable = callable(found) and not official and not getattr(found, "is_fallback", False)
    return found if usable and not inspect.isclass(found) else None


_signature = functools.cache(inspect.signature)


def _fits(function: Callable[..., Any], args: Iterable, kwargs: dict[str, Any]) -> bool:
    """Does it take these arguments?"""
    try:
        _signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


@method
def __array_function__(self: ndarray, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """np.mean(x) of official NumPy."""
    if not all([issubclass(t, (NDArray, onp.ndarray)) for t in types]):
        return NotImplemented
    found = ours(func.__module__ or "numpy", func.__name__)
    out = kwargs.get("out")
    if found is not None and _fits(found, args, kwargs) and not isinstance(out, onp.ndarray):
        return found(*args, **kwargs)
    name = f"{func.__module__}.{func.__name__}".removeprefix("numpy.")
    return _written(run(name, func, args, {k: v for k, v in kwargs.items() if k != "out"}), out)


def _written(made: Any, out: Any) -> Any:
    """made, or `out`, an array of either kind, with its values."""
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        return made
    target[...] = (
        made.asnumpy() if isinstance(made, NDArray) and isinstance(target, onp.ndarray) else made
    )
    return target


@method
def __array_ufunc__(self: ndarray, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """np.add(x, y), np.add.reduce(x) ... of official NumPy."""
    out = kwargs.pop("out", None)
    if kwargs.get("where") is True:
        kwargs.pop("where")
    if method == "at":
        return _at(ufunc, *inputs)
    made = _WAYS[method](ufunc, inputs, kwargs) if method in _WAYS else NotImplemented
    if made is NotImplemented:
        made = run(f"{ufunc.__name__}.{method}", getattr(ufunc, method), inputs, kwargs)
    return _written(made, out)


def _plain_call(ufunc: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    found = ours("numpy", ufunc.__name__)
    if found is None:
        return run(ufunc.__name__, ufunc, inputs, kwargs)
    return found(*[_operand(x) for x in inputs], **kwargs)


def _operand(x: Any) -> Any:
    return array(x) if isinstance(x, (onp.ndarray, onp.generic)) else x


def _reduce(ufunc: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    found = ours("numpy", REDUCTIONS.get(ufunc.__name__, "-"))
    given = {"axis": inputs[1] if len(inputs) > 1 else 0} | kwargs
    given = {k: v for k, v in given.items() if v is not _NO_VALUE}
    if found is None or not _fits(found, inputs[:1], given) or len(inputs) > 2:
        return NotImplemented
    return found(inputs[0], **given)


def _accumulate(ufunc: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    found = ours("numpy", ACCUMULATIONS.get(ufunc.__name__, "-"))
    given = {"axis": inputs[1] if len(inputs) > 1 else 0} | kwargs
    if found is None or not _fits(found, inputs[:1], given):
        return NotImplemented
    return found(inputs[0], **given)


def _outer(ufunc: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    first, second = [x if isinstance(x, NDArray) else array(x) for x in inputs]
    return _plain_call(ufunc, (first.reshape(first.shape + (1,) * second.ndim), second), kwargs)


def _at(ufunc: Any, target: Any, indices: Any, *operands: Any) -> None:
    """ufunc.at(x, indices, y): in place, one after the other."""
    if not isinstance(target, NDArray):
        ufunc.at(target, _host(indices), *map(_host, operands))
        return
    refuse_recorded(target)
    values = target.asnumpy()
    ufunc.at(values, _host(indices), *map(_host, operands))
    target[...] = values


def _host(x: Any) -> Any:
    if isinstance(x, NDArray):
        values = x.asnumpy()
        return (
            values.astype(onp.int64)
            if values.dtype.kind == "f" and (values % 1 == 0).all()
            else values
        )
    return tuple(map(_host, x)) if isinstance(x, tuple) else x


_WAYS = {"__call__": _plain_call, "reduce": _reduce, "accumulate": _accumulate, "outer": _outer}
