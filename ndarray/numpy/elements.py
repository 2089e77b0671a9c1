"""Functions of elements and their neighbours whose arguments decide which operator runs: bounds
that are numbers or arrays, values put before and after, one result or two."""

from __future__ import annotations

from typing import Any

import numpy as onp

from ...engine.error import InvalidType, InvalidValue
from ..ndarray import NDArray
from . import ufuncs
from .array import operand
from .operators import NUMBERS
from .shapes import call
from .statistics import derived, placed

# ---- elements ------------------------------------------------------------------------------------
_clip, _around = derived("_npi_clip", "clip"), derived("_npi_around", "around")


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """a, or the nearer bound outside of the bounds: numbers, arrays, or None for no bound."""
    a_min, a_max = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    if kwargs:
        raise InvalidType(f"np.clip: {', '.join(kwargs)}: no such parameter")
    bounds = [b.item() if isinstance(b, onp.generic) else b for b in (a_min, a_max)]
    if not [b for b in bounds if b is not None and b.__class__ not in NUMBERS]:
        low, high = (
            (-onp.inf if a_min is None else bounds[0]),
            (onp.inf if a_max is None else bounds[1]),
        )
        return _clip(a, low, high, out)
    made = operand(a)
    for name, bound in zip(("maximum", "minimum"), bounds):
        if bound.__class__ in NUMBERS:
            is_int = bound.__class__ is not float
            made = call(f"_npi_{name}_scalar", made, scalar=bound, is_int=is_int)
        elif bound is not None:
            made = call(f"_npi_{name}", made, bound)
    return placed(made, out)


def around(x: Any, decimals: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """The nearest number of so many decimals, halves to the even one."""
    if x.__class__ in NUMBERS or isinstance(x, onp.generic):
        return onp.around(x, decimals)
    return _around(x, decimals, out)


round = round_ = around  # noqa: A001 - NumPy's name


def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    **kwargs: Any,
) -> Any:
    """x with other numbers for NaN and infinities: default 0 and the dtype's ends. copy False:
    written into x."""
    made = call("_npi_nan_to_num", x, nan=nan, posinf=posinf, neginf=neginf)
    return placed(made, x) if not copy and isinstance(x, NDArray) else made


# ---- two results ---------------------------------------------------------------------------------
def divmod(  # noqa: A001 - NumPy's name
    x1: Any, x2: Any, out: Any = (None, None)
) -> tuple[Any, Any]:
    """(x1 // x2, x1 % x2). out: two arrays for the results."""
    whole = ufuncs.floor_divide(x1, x2)  # type: ignore[attr-defined]
    return placed(whole, out[0]), placed(ufuncs.mod(x1, x2), out[1])  # type: ignore[attr-defined]


def modf(x: Any, out: Any = (None, None)) -> tuple[Any, Any]:
    """(the fraction, the whole part), both with the sign of x. out: two arrays for the results."""
    fraction, whole = call("_npi_modf", x)
    return placed(fraction, out[0]), placed(whole, out[1])


# ---- neighbours ----------------------------------------------------------------------------------
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, n times. prepend, append: put before and after
    a."""
    a = operand(a)
    parts = [a]
    for at, value in ((0, prepend), (len(parts), append)):
        if value is None:
            continue
        end = operand(value)
        if not end.shape:
            shape = [1 if i == axis % a.ndim else size for i, size in enumerate(a.shape)]
            end = call("_npi_broadcast_to", end, shape=tuple(shape))
        parts.insert(0 if at == 0 else len(parts), end)
    if len(parts) > 1:
        a = call("_npi_concatenate", *parts, axis=axis)
    return call("_npi_diff", a, n=n, axis=axis)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the flat array, with numbers before and after them."""
    inputs, how = [ary], {}
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        if value.__class__ in NUMBERS:
            how[f"{name}_scalar"] = value
        elif value is not None:
            how[f"{name}_arr_given"] = True
            inputs.append(value)
    return call("_npi_ediff1d", *inputs, **how)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule, at x or dx apart."""
    inputs = (y,) if x is None else (y, x)
    return call("_npi_trapezoid", *inputs, dx=dx, axis=axis, has_x=x is not None)


trapz = trapezoid


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Any:
    """The piecewise linear function through (xp, fp) at x. period: of x and xp, which then need no
    order."""
    if period is not None:
        if not period:
            raise InvalidValue("np.interp: period must not be 0")
        period = abs(period)
        x, xp, fp = operand(x) % period, operand(xp) % period, operand(fp)
        order = call("_npi_argsort", xp)
        xp, fp = call("_npi_take", xp, order, axis=0), call("_npi_take", fp, order, axis=0)
        before, after = slice(-1, None), slice(0, 1)
        xp = call("_npi_concatenate", xp[before] - period, xp, xp[after] + period, axis=0)
        fp = call("_npi_concatenate", fp[before], fp, fp[after], axis=0)
        left = right = None
    made = call("_npi_interp", x, xp, fp, left=left, right=right)
    return made


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """The derivatives of f along axes (all), from neighbours: central inside, of one side at the
    ends. varargs: the distances of all or of each axis, or the places of its elements."""
    f = operand(f)
    if f.dtype.kind != "f":  # differences may be negative
        f = f.astype("float32")
    axes = range(f.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise InvalidType(f"np.gradient: needs one distance or {len(axes)}, got {len(varargs)}")
    if edge_order not in (1, 2):
        raise InvalidValue(f"np.gradient: edge_order must be 1 or 2, got {edge_order}")
    found = [_slope(f, h, along % f.ndim, edge_order) for along, h in zip(axes, steps)]
    return found[0] if isinstance(axis, int) or f.ndim == 1 else tuple(found)


def _slope(f: Any, h: Any, axis: int, edge_order: int) -> Any:
    n = f.shape[axis]
    if n <= edge_order:
        raise InvalidValue(f"np.gradient: axis {axis} must have {edge_order + 1} elements, got {n}")

    def at(x: Any, begin: int, end: int | None) -> Any:
        key = [slice(None)] * x.ndim
        key[axis if x.ndim > 1 else 0] = slice(begin, end)
        return x[tuple(key)]

    if h.__class__ in NUMBERS or not getattr(h, "ndim", 0) and not isinstance(h, (list, tuple)):
        return call("_slopes", f, axis=axis, edge_order=edge_order, step=float(h))
    apart = diff(operand(h))
    apart = apart.reshape([n - 1 if i == axis else 1 for i in range(f.ndim)])
    slopes = diff(f, axis=axis) / apart
    left, right = at(apart, 0, -1), at(apart, 1, None)
    inside = (at(slopes, 0, -1) * right + at(slopes, 1, None) * left) / (left + right)
    first, last = at(slopes, 0, 1), at(slopes, -1, None)
    if edge_order == 2:
        bent = at(slopes, 1, None) - at(slopes, 0, -1)
        first = first - at(bent, 0, 1) * at(left, 0, 1) / (at(left, 0, 1) + at(right, 0, 1))
        last = last + at(bent, -1, None) * at(right, -1, None) / (
            at(left, -1, None) + at(right, -1, None)
        )
    return call("_npi_concatenate", first, inside, last, axis=axis)


__all__ = [
    *("clip", "around", "round", "round_", "nan_to_num", "divmod", "modf", "diff", "ediff1d"),
    *("trapezoid", "trapz", "interp", "gradient"),
]
