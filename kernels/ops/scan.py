"""Cumulative sums and products."""

from __future__ import annotations

from math import prod

from ..record import Param, Type, operator, sample, values
from ..shapes import one_axis


def _cumsum_infer(ins, axis, dtype):
    shape = ins[0].shape
    if axis is not None:
        one_axis("cumsum", axis, len(shape))
    dtype = dtype or ("int64" if ins[0].dtype == "bool" else ins[0].dtype)
    return [Type((prod(shape),) if axis is None else shape, dtype)]


def _cumsum_ref(xp, a, axis, dtype):
    flat = a.reshape(-1) if axis is None or a.ndim == 0 else a
    total = xp.cumsum(flat, axis=axis or 0, dtype=xp.float64 if a.dtype.kind == "f" else xp.int64)
    return total if axis is None else total.reshape(a.shape)


def _cumsum_grad(F, dys, xs, ys, axis, dtype):
    x, dy = xs[0], dys[0]
    if dy.dtype != x.dtype:
        dy = F.Cast(dy, dtype=x.dtype)
    if not x.shape:
        return [F.reshape_to(dy, shape=())]
    along = axis or 0
    dx = F.reverse(F._np_cumsum(F.reverse(dy, axis=along), axis=along), axis=along)
    return [F.reshape_to(dx, shape=x.shape) if axis is None else dx]


operator(
    "_np_cumsum",
    aliases=("cumsum",),
    inputs=("a",),
    params=(Param("axis", "int?", None), Param("dtype", "dtype?", None)),
    infer=_cumsum_infer,
    ref=_cumsum_ref,
    grad=_cumsum_grad,
    samples=(
        sample((3, 4), axis=0),
        sample((2, 3, 4), axis=-2),
        sample((2, 3)),
        sample((3,), dtype="float64"),
    ),
    doc=(
        "Sums of all elements up to each one along an axis; of the flattened array where axis is"
        " None."
    ),
)


def _cumprod_infer(ins, axis):
    one_axis("cumprod", axis, len(ins[0].shape))
    return [ins[0]]


def _cumprod_ref(xp, a, axis):
    return xp.cumprod(a, axis=axis, dtype=xp.float64 if a.dtype.kind == "f" else xp.int64)


def _cumprod_grad(F, dys, xs, ys, axis):
    """dx[i] = before[i] s[i]: the product of all elements before i, and s[i] = dy[i] + x[i + 1]
    s[i + 1]. No division, so zeros have true gradients of all orders. s is made by doubling: after
    each step it has the terms of 1, 2, 4 ... elements, and `factor` is the product of as many."""
    x, s = xs[0], dys[0]
    n, step = x.shape[axis], 1
    if n < 2:
        return [s]
    part = lambda a, begin, end: F.slice_axis(a, axis=axis, begin=begin, end=end)
    one = F.ones_like(part(x, 0, 1))
    before = F.Concat(one, F._cumprod(part(x, 0, n - 1), axis=axis), dim=axis)
    factor = part(x, 1, n)  # factor[i]: of s[i + step] in s[i]
    while step < n:
        s = F.Concat(
            part(s, 0, n - step) + factor * part(s, step, n), part(s, n - step, n), dim=axis
        )
        if 2 * step < n:
            factor = part(factor, 0, n - 2 * step) * part(factor, step, n - step)
        step *= 2
    return [before * s]


operator(
    "_cumprod",
    inputs=("a",),
    params=(Param("axis", "int"),),
    infer=_cumprod_infer,
    ref=_cumprod_ref,
    grad=_cumprod_grad,
    samples=(
        sample((3, 4), axis=0),
        sample((2, 3, 4), axis=-2),
        sample((9,), axis=0),
        sample(values([[1.5, 0, 2, 0, 3], [2, 3, 0, 1, -1]]), axis=1),
    ),
    doc="Products of all elements up to each one along an axis.",
)
