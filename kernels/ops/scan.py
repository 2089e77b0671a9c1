"""Cumulative sums."""

from __future__ import annotations

from math import prod

from ..record import Param, Type, operator, sample
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
