"""Functions of mx.np that are a few others: polynomials, windows, pieces, and what complex numbers
would need. So their results have gradients, but for what writes in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine.error import InvalidValue, ShapeError
from .array import array, operand
from .creation import arange, ones, zeros
from .elements import diff
from .selection import nonzero, trim_zeros
from .shapes import call, concatenate, stack

# ---- pieces --------------------------------------------------------------------------------------


def _moved(x: Any, source: Any, destination: Any) -> Any:
    return call("_np_moveaxis", x, source=source, destination=destination)


def _depth(nested: Any) -> int:
    return 1 + max(map(_depth, nested)) if isinstance(nested, list) and nested else 0


def block(arrays: Any) -> Any:
    """An array of nested lists of blocks: the innermost lists are joined along the last axis, those
    around them along the one before."""
    depth = _depth(arrays)

    def leaves(nested: Any) -> list:
        return (
            [x for n in nested for x in leaves(n)]
            if isinstance(nested, list)
            else [operand(nested)]
        )

    n_axes = max([depth, *[x.ndim for x in leaves(arrays)]])

    def joined(nested: Any, level: int) -> Any:
        if isinstance(nested, list):
            if not nested:
                raise InvalidValue("np.block: lists must not be empty")
            return concatenate([joined(n, level - 1) for n in nested], axis=-level)
        x = operand(nested)
        return x.reshape((1,) * (n_axes - x.ndim) + tuple(x.shape))

    return joined(arrays, depth)


def unstack(x: Any, /, *, axis: int = 0) -> tuple:
    """The slices along an axis."""
    return tuple(_moved(operand(x), axis, 0))


def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """func1d of each vector along an axis; its result's axes stand in place of that one."""
    x = _moved(operand(arr), axis, -1)
    if not x.size:
        raise InvalidValue(f"np.apply_along_axis: arr must have elements, got shape {x.shape}")
    rows = [operand(func1d(row, *args, **kwargs)) for row in x.reshape(-1, x.shape[-1])]
    made = stack(rows).reshape((*x.shape[:-1], *rows[0].shape))
    n, at = rows[0].ndim, axis % x.ndim
    return _moved(made, tuple(range(made.ndim - n, made.ndim)), tuple(range(at, at + n)))


def apply_over_axes(func: Callable, a: Any, axes: Any) -> Any:
    """func(a, axis) for one axis after the other; axes that it drops come back with size 1."""
    x = operand(a)
    for axis in (axes,) if hasattr(axes, "__index__") else axes:
        made = func(x, axis)
        x = made if made.ndim == x.ndim else call("_npi_expand_dims", made, axis=axis % x.ndim)
        if x.ndim != operand(a).ndim:
            raise ShapeError("np.apply_over_axes", "func must keep the axes or drop one")
    return x


def mask_indices(n: int, mask_func: Callable, k: int = 0) -> tuple:
    """Where mask_func(ones((n, n)), k) is not 0."""
    return nonzero(mask_func(ones((n, n)), k))


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Writes values, one after the other and repeated, where a mask holds."""
    chosen = _on_host(mask).astype(bool)
    if chosen.any():
        arr[chosen] = onp.resize(_on_host(vals), int(chosen.sum()))


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Writes the values at the same places, repeated, where a mask holds."""
    chosen = _on_host(mask).astype(bool)
    if chosen.any():
        a[chosen] = onp.resize(_on_host(values), a.shape)[chosen]


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Writes values, repeated as needed, at places of the flat array."""
    a.put(ind, v, mode)


def _on_host(x: Any) -> Any:
    return onp.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x)


# ---- windows -------------------------------------------------------------------------------------


def bartlett(M: int) -> Any:  # noqa: N803 - NumPy's name
    """The triangular window of M numbers, 0 at both ends."""
    if M <= 1:
        return ones(max(M, 0))
    return 1 - call("_npi_absolute", arange(M) * (2 / (M - 1)) - 1)


def kaiser(M: int, beta: float) -> Any:  # noqa: N803
    """The Kaiser window of M numbers; beta: how narrow it is."""
    if M <= 1:
        return ones(max(M, 0))
    place = arange(M) * (2 / (M - 1)) - 1
    root = call("_npi_sqrt", call("_npi_maximum_scalar", 1 - place * place, scalar=0.0))
    return call("_npi_i0", root * beta) / float(onp.i0(beta))


# ---- polynomials: coefficients from the highest power on -----------------------------------------


def _coefficients(*polynomials: Any) -> list:
    found = [operand(p) for p in polynomials]
    return [p if p.ndim else p.reshape(1) for p in found]


def _sum_of(a1: Any, a2: Any, sign: int) -> Any:
    a, b = _coefficients(a1, a2)
    size = max(a.shape[0], b.shape[0])
    a, b = (call("_npi_pad", p, pad_width=((size - p.shape[0], 0),)) for p in (a, b))
    return a + b if sign > 0 else a - b


def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials."""
    return _sum_of(a1, a2, 1)


def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials."""
    return _sum_of(a1, a2, -1)


def polymul(a1: Any, a2: Any) -> Any:
    """The product of two polynomials, without leading zeros of theirs."""
    a, b = (trim_zeros(p, "f") for p in _coefficients(a1, a2))
    return call("_npi_convolve", *(p if p.shape[0] else zeros(1, dtype=p.dtype) for p in (a, b)))


def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative of a polynomial."""
    (p,) = _coefficients(p)
    for _ in range(m):
        n = p.shape[0] - 1
        p = p[:-1] * arange(n, 0, -1, dtype=p.dtype)
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th antiderivative of a polynomial. k: the constants, default 0."""
    (p,) = _coefficients(p)
    given = [0.0] if k is None else [float(x) for x in onp.atleast_1d(_on_host(k))]
    if len(given) not in (1, m):
        raise InvalidValue(f"np.polyint: k must be one number or {m}, got {len(given)}")
    for i in range(m):
        rest = p / arange(p.shape[0], 0, -1, dtype=p.dtype)
        last = array([given[i if len(given) == m else 0]]).astype(rest.dtype)
        p = concatenate([rest, last])
    return p


def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with these zeros, or a matrix's characteristic polynomial."""
    roots = operand(seq_of_zeros)
    if roots.ndim == 2:
        roots = call("_npi_eigvals", roots)
    made = ones(1, dtype=roots.dtype if roots.dtype.kind == "f" else "float32")
    for zero in roots.reshape(-1, 1):
        made = call(
            "_npi_convolve",
            made,
            concatenate([ones(1, dtype=made.dtype), -zero.astype(made.dtype)]),
        )
    return made


# ---- sums and products along an axis -------------------------------------------------------------


def _running(name: str, start: float) -> Callable[..., Any]:
    def function(
        x: Any,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        x = operand(x)
        x = x if x.ndim else x.reshape(1)
        if axis is None and x.ndim > 1:
            rule = f"needs an axis for an array of {x.ndim} axes"
            raise InvalidValue(f"np.cumulative_{name.removeprefix('cum')}: {rule}")
        made = call(f"_np{'' if name == 'cumsum' else 'i'}_{name}", x, axis=axis or 0, dtype=dtype)
        if include_initial:
            first = [1 if i == (axis or 0) % x.ndim else n for i, n in enumerate(x.shape)]
            made = concatenate(
                [call("_npi_full", shape=first, value=start, dtype=made.dtype), made], axis or 0
            )
        if out is not None:
            out[...] = made
            return out
        return made

    function.__name__ = function.__qualname__ = f"cumulative_{name.removeprefix('cum')}"
    function.__doc__ = f"np.{name} along an axis; include_initial: {start:g} comes first."
    return function


cumulative_sum, cumulative_prod = _running("cumsum", 0.0), _running("cumprod", 1.0)


def unwrap(
    p: Any, discont: float | None = None, axis: int = -1, *, period: float = math.tau
) -> Any:
    """p plus multiples of period, so that neighbours along an axis differ by at most half of it, or
    by less than discont."""
    p = call("_npi_add_scalar", operand(p), scalar=0.0, is_int=False)
    half, steps = period / 2, diff(p, axis=axis)
    inside = (steps + half) % period - half
    up = (inside == -half) & (steps > 0)
    jumps = call("_npi_where_lscalar", up, inside, scalar=half, is_int=False) - steps
    small = abs(steps) < max(half, half if discont is None else discont)
    jumps = call("_npi_where_lscalar", small, jumps, scalar=0.0, is_int=False)
    first = call("_npi_zeros_like", p)
    first = first[
        tuple([slice(0, 1) if i == axis % p.ndim else slice(None) for i in range(p.ndim)])
    ]
    return p + call("_np_cumsum", concatenate([first, jumps], axis), axis=axis)


def matvec(x1: Any, x2: Any) -> Any:
    """Matrices (..., n, k) times vectors (..., k)."""
    return (operand(x1) @ operand(x2)[..., None])[..., 0]


def vecmat(x1: Any, x2: Any) -> Any:
    """Vectors (..., k) times matrices (..., k, n)."""
    return (operand(x1)[..., None, :] @ operand(x2))[..., 0, :]


# ---- of real numbers -----------------------------------------------------------------------------


def angle(z: Any, deg: bool = False) -> Any:
    """0 for numbers that are not negative, pi (or 180) for others."""
    z = operand(z)
    made = call("_npi_arctan2", call("_npi_zeros_like", z), z)
    return made * (180 / math.pi) if deg else made


def imag(val: Any) -> Any:
    """Zeros: there are no complex numbers."""
    return call("_npi_zeros_like", operand(val))


def iscomplex(x: Any) -> Any:
    """False for each element: there are no complex numbers."""
    return call("_npi_not_equal", operand(x), operand(x)) & False


def iscomplexobj(x: Any) -> bool:
    """False: there are no complex numbers."""
    return False


def isrealobj(x: Any) -> bool:
    """True: there are no complex numbers."""
    return True


__all__: Sequence[str] = [
    *("angle", "apply_along_axis", "apply_over_axes", "bartlett", "block", "cumulative_prod"),
    *("cumulative_sum", "imag", "iscomplex", "iscomplexobj", "isrealobj", "kaiser"),
    *("mask_indices", "matvec", "place", "poly", "polyadd", "polyder", "polyint", "polymul"),
    *("polysub", "put", "putmask", "unstack", "unwrap", "vecmat"),
]
