"""Differences, integrals, convolutions and covariances of sampled values."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import alike, as_float, cast, dtype_of, front, promoted, reshaped
from ...record import COUNT, FLOATS, Array, Param, sample, uniform, values
from ...shapes import one_axis
from .arithmetic import refuse

# ---- differences ---------------------------------------------------------------------------------


def _ends(F: Any, x: Array, axis: int) -> tuple[Array, Array]:
    """x without its first, and without its last elements along an axis."""
    n = x.shape[axis]
    part = lambda begin, end: F.slice_axis(x, axis=axis, begin=begin, end=end)
    return (part(1, n), part(0, n - 1)) if n > 1 else (part(0, 0), part(0, 0))


def _diff(F: Any, a: Array, n: int, axis: int) -> Array:
    if not a.shape:
        raise ShapeError("np.diff", "a must have an axis, got shape ()")
    axis = one_axis("np.diff", axis, len(a.shape))
    for _ in range(min(n, a.shape[axis])):  # then nothing is left
        a = F._diff(a, axis=axis)
    return a


front(
    "_npi_diff",
    _diff,
    inputs=("a",),
    params=(Param("n", "int", 1, limits=COUNT), Param("axis", "int", -1)),
    ref=lambda xp, a, n, axis: np.diff(a, n, axis),
    samples=(sample((2, 4)), sample((4, 3), n=2, axis=0), sample((2, 3), n=0), sample((2,), n=3)),
    doc="The differences of neighbours along an axis, n times.",
)


def _ediff1d(F: Any, *given: Array, **how: Any) -> Array:
    ary, rest = given[0], list(given[1:])
    flat = reshaped(F, ary, (prod(ary.shape),))
    if dtype_of(flat) == "bool":  # only diff says what bools less bools are
        refuse("ediff1d", "bool", "ary must be numbers", "np.diff(ary)")
    parts = [F._diff(flat, axis=0)]
    dtype = dtype_of(flat)
    for name in ("to_begin", "to_end"):
        number = how[f"{name}_scalar"]
        if how[f"{name}_arr_given"]:
            end = rest.pop(0)
            part = reshaped(F, cast(F, end, dtype), (prod(end.shape),))
        elif number is not None:
            part = F._full(shape=(1,), dtype=dtype, value=number)
        else:
            continue
        parts.insert(0 if name == "to_begin" else len(parts), part)
    return F.Concat(*parts, dim=0) if len(parts) > 1 else parts[0]


def _ediff_names(to_begin_arr_given: bool, to_end_arr_given: bool, **_: Any) -> tuple[str, ...]:
    return ("ary", *("to_begin",) * to_begin_arr_given, *("to_end",) * to_end_arr_given)


def _ediff_ref(xp: Any, ary: Array, *rest: Array, **how: Any) -> Array:
    ends, left = {}, list(rest)
    for name in ("to_begin", "to_end"):
        ends[name] = left.pop(0) if how[f"{name}_arr_given"] else how[f"{name}_scalar"]
    given = {k: np.asarray(v).astype(ary.dtype) for k, v in ends.items() if v is not None}
    return np.ediff1d(ary, **given)


front(
    "_npi_ediff1d",
    _ediff1d,
    inputs=("ary", "to_begin", "to_end"),
    input_names=_ediff_names,
    params=(
        Param("to_begin_arr_given", "bool", False),
        Param("to_end_arr_given", "bool", False),
        Param("to_begin_scalar", "float?", None),
        Param("to_end_scalar", "float?", None),
    ),
    ref=_ediff_ref,
    samples=(
        sample(uniform((2, 3), 1, 9)),
        sample((4,), (2,), to_end_arr_given=True, to_begin_scalar=2.0),
        sample((4,), (2,), (1,), to_end_arr_given=True, to_begin_arr_given=True),
    ),
    doc="The differences of neighbours of the flat array, with numbers before and after them.",
)


# ---- integrals -----------------------------------------------------------------------------------
def _trapezoid(F: Any, *given: Array, dx: float, axis: int, has_x: bool) -> Array:
    y = as_float(F, given[0])
    if not y.shape:
        raise ShapeError("np.trapezoid", "y must have an axis, got shape ()")
    axis = one_axis("np.trapezoid", axis, len(y.shape))
    if has_x:
        y, x = alike(F, y, as_float(F, given[1]))
        along = len(x.shape) - 1 if len(x.shape) == 1 else axis
        step = F._diff(x, axis=along)
        if len(x.shape) == 1:
            step = reshaped(F, step, (step.shape[0],) + (1,) * (len(y.shape) - 1 - axis))
    after, before = _ends(F, y, axis)
    middle = F.broadcast_add(after, before) * 0.5
    parts = F.broadcast_mul(middle, step) if has_x else middle * float(dx)
    return F.sum(parts, axis=(axis,), to_scalar=True)


def _trapezoid_ref(xp: Any, y: Array, x: Any = None, *, dx: float, axis: int, has_x: bool) -> Any:
    whole = lambda a: a if a is None or a.dtype.kind == "f" else a.astype(np.float64)
    return np.trapezoid(whole(y), whole(x), dx, axis)


front(
    "_npi_trapezoid",
    _trapezoid,
    inputs=("y", "x"),
    input_names=lambda has_x, **_: ("y", "x") if has_x else ("y",),
    params=(Param("dx", "float", 1.0), Param("axis", "int", -1), Param("has_x", "bool", False)),
    aliases=("_npi_trapz",),
    ref=_trapezoid_ref,
    samples=(
        sample((2, 4), dx=0.5),
        sample((4, 2), (4,), axis=0, has_x=True),
        sample((2, 4), (2, 4), has_x=True),
    ),
    doc="The integral along an axis by the trapezoidal rule.",
)


# ---- convolutions --------------------------------------------------------------------------------
MODES = ("valid", "same", "full")


def _correlated(F: Any, a: Array, v: Array, mode: str) -> Array:
    """sum over k of a[n + k] v[k], the longer of both first."""
    n, k = a.shape[0], v.shape[0]
    if mode == "same":  # NumPy keeps the middle, of even k the later one
        full = F._correlate(a, v, pad=k // 2)
        return F.slice_axis(full, axis=0, begin=0, end=n) if k % 2 == 0 else full
    return F._correlate(a, v, pad=k - 1 if mode == "full" else 0)


def _convolution(name: str, flips: bool, mode: str, ref: Callable) -> None:
    def rule(F: Any, a: Array, v: Array, mode: str) -> Array:
        if flips:  # numbers are vectors of one element
            a, v = (x if x.shape else reshaped(F, x, (1,)) for x in (a, v))
        shapes = tuple(a.shape), tuple(v.shape)
        if any(len(s) != 1 or 0 in s for s in shapes):
            rule = f"a and v must be vectors with elements, got {shapes[0]} and {shapes[1]}"
            raise ShapeError(f"np.{name}", rule)
        dtype = promoted(dtype_of(a), dtype_of(v))
        compute = dtype if dtype in FLOATS else "float64"
        a, v = cast(F, a, compute), cast(F, v, compute)
        swap = v.shape[0] > a.shape[0]
        if swap:
            a, v = v, a
        y = _correlated(F, a, F.reverse(v, axis=0) if flips else v, mode)
        return cast(F, F.reverse(y, axis=0) if swap and not flips else y, dtype)

    front(
        f"_npi_{name}",
        rule,
        inputs=("a", "v"),
        params=(Param("mode", MODES, mode),),
        ref=lambda xp, a, v, mode: ref(a, v, mode),
        samples=tuple(
            sample((n,), (k,), mode=m) for n, k in ((5, 3), (2, 4), (4, 4)) for m in MODES
        ),
        doc=f"The {'convolution' if flips else 'correlation'} of two vectors.",
    )


_convolution("convolve", True, "full", np.convolve)
_convolution("correlate", False, "valid", np.correlate)


# ---- covariances ---------------------------------------------------------------------------------
def _cov(F: Any, m: Array, rowvar: bool, bias: bool, ddof: int | None) -> Array:
    if len(m.shape) > 2:
        raise ShapeError("np.cov", f"m must have at most two axes, got {tuple(m.shape)}")
    x = as_float(F, m)
    if len(x.shape) < 2:
        x = reshaped(F, x, (1, prod(x.shape)))
    elif not rowvar:
        x = F.transpose(x, axes=(1, 0))
    k, n = x.shape
    lost = ddof if ddof is not None else 0 if bias else 1
    apart = F.broadcast_sub(x, F.mean(x, axis=(1,), keepdims=True))
    made = F.dot(apart, apart, transpose_b=True) / float(max(n - lost, 0))
    return reshaped(F, made, ()) if k == 1 else made


COV = (Param("rowvar", "bool", True), Param("bias", "bool", False), Param("ddof", "int?", None))


def _of_numbers(ref: Callable) -> Callable:
    def call(xp: Any, m: Array, **how: Any) -> Array:
        return ref(m if m.dtype.kind == "f" else m.astype(np.float64), **how)

    return call


front(
    "_npi_cov",
    _cov,
    inputs=("m",),
    params=COV,
    ref=_of_numbers(np.cov),
    samples=(
        sample((2, 5)),
        sample((5, 2), rowvar=False, bias=True),
        sample((3, 4), ddof=0),
        sample((5,)),
    ),
    doc="The covariances of the rows of m, or of its columns; of one row its variance.",
)


def _corrcoef(F: Any, x: Array, rowvar: bool) -> Array:
    c = _cov(F, x, rowvar, False, None)
    if not c.shape:
        return c / c
    scale = F.sqrt(F.diag(c))
    k = c.shape[0]
    made = F.broadcast_div(c, reshaped(F, scale, (k, 1)))
    return F.clip(F.broadcast_div(made, reshaped(F, scale, (1, k))), a_min=-1.0, a_max=1.0)


front(
    "_npi_corrcoef",
    _corrcoef,
    inputs=("x",),
    params=COV[:1],
    ref=_of_numbers(np.corrcoef),
    samples=(
        sample(values([[1, 2, 4, 3], [2, 1, 0, 5.5]])),
        sample((2, 5)),
        sample((5, 3), rowvar=False),
    ),
    doc="The correlation coefficients of the rows of x, or of its columns.",
)
