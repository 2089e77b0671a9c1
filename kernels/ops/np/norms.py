"""Norms of np.linalg and what follows from singular values: rank and condition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....engine.error import OperatorError, ShapeError
from ...front import as_float, cast, dtype_of, front, reshaped
from ...record import HALVES, Array, Param, definite, sample
from ...shapes import one_axis
from .decompositions import floats, matrices, rank
from .einsum import permuted

# flag, as files of MXNet have it: what `ord` means
FLATTENED, NUMBER, FROBENIUS, NUCLEAR = -2, -1, 1, 2


def _vector(F: Any, x: Array, p: float, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The p-norm of the elements along axes."""

    def reduced(name: str, y: Array) -> Array:
        return getattr(F, name)(y, axis=axes, keepdims=keepdims, to_scalar=True)

    if not axes:
        return F.abs(x)
    if p == 2:
        y = F.norm(x, axis=axes, keepdims=keepdims)
        return y if keepdims or len(axes) < len(x.shape) else reshaped(F, y, ())
    if p == 0:
        return reduced("sum", F._not_equal_scalar(x, scalar=0.0))
    y = F.abs(x)
    if p == 1:
        return reduced("sum", y)
    if math.isinf(p):
        return reduced("max" if p > 0 else "min", y)
    return F._power_scalar(reduced("sum", F._power_scalar(y, scalar=p)), scalar=1 / p)


def _of_singular(F: Any, x: Array, axes: tuple[int, int], keepdims: bool, name: str) -> Array:
    """The sum, largest or least of the singular values of matrices in two axes."""
    n = len(x.shape)
    others = [i for i in range(n) if i not in axes]
    s = F._linalg_svdvals(permuted(F, x, (*others, *axes)))
    y = getattr(F, name)(s, axis=-1, to_scalar=True)
    return _restored(F, y, axes) if keepdims else y


def _restored(F: Any, y: Array, axes: tuple[int, int]) -> Array:
    shape = list(y.shape)
    for i in sorted(axes):
        shape.insert(i, 1)
    return reshaped(F, y, tuple(shape))


def _matrix(F: Any, x: Array, p: float, axes: tuple[int, int], keepdims: bool) -> Array:
    """The operator norm of matrices in two axes for p 1 or inf (largest sum of a column, row), 2
    (largest singular value); the least for -p."""
    name = "max" if p > 0 else "min"
    if abs(p) == 2:
        return _of_singular(F, x, axes, keepdims, name)
    if abs(p) not in (1, math.inf):
        raise OperatorError(
            "np.linalg.norm", f"ord of a matrix must be 1, 2, inf, fro, nuc or negative, got {p:g}"
        )
    rows, columns = axes
    summed, left = (rows, columns) if abs(p) == 1 else (columns, rows)
    sums = F.sum(F.abs(x), axis=summed, keepdims=True)
    y = getattr(F, name)(sums, axis=left, keepdims=True)
    if keepdims:
        return y
    return reshaped(F, y, tuple([n for i, n in enumerate(x.shape) if i not in axes]))


def _norm(F: Any, data: Array, ord: float, axis: Any, keepdims: bool, flag: int) -> Array:
    x = as_float(F, data)
    n, given = len(x.shape), dtype_of(x)
    axes = (
        tuple(range(n)) if axis is None else tuple([one_axis("np.linalg.norm", a, n) for a in axis])
    )
    if flag == FLATTENED or (flag == FROBENIUS and len(axes) <= 2):
        return _vector(F, x, 2, axes, keepdims)
    if flag != NUCLEAR and len(axes) == 1:
        return _vector(F, x, ord, axes, keepdims)
    if len(axes) != 2:
        raise ShapeError(
            "np.linalg.norm",
            f"a norm with this ord is of 1 axis or 2, got {len(axes)} of a {tuple(x.shape)}",
            fix="set axis",
        )
    wide = cast(F, x, "float32") if given in HALVES else x
    if flag == NUCLEAR:
        return cast(F, _of_singular(F, wide, axes, keepdims, "sum"), given)
    return cast(F, _matrix(F, wide, ord, axes, keepdims), given)


def _norm_ref(xp: Any, data: Any, ord: Any, axis: Any, keepdims: bool, flag: int) -> Any:
    names = {FLATTENED: None, FROBENIUS: None, NUCLEAR: "nuc"}
    axis = axis[0] if axis and len(axis) == 1 else axis
    return np.linalg.norm(floats(data), names.get(flag, ord), axis, keepdims)


front(
    "_npi_norm",
    _norm,
    params=(
        Param("ord", "float", 2.0),
        Param("axis", "shape?", None),
        Param("keepdims", "bool", False),
        Param("flag", "int", FLATTENED),
    ),
    ref=_norm_ref,
    samples=(
        sample((2, 3)),
        sample((2, 3, 4), axis=(0, 2), keepdims=True, flag=FROBENIUS),
        sample((2, 3), axis=(1,), flag=FROBENIUS),
        *[
            sample((2, 3), axis=(1,), ord=p, flag=NUMBER)
            for p in (1, 3, 0, -2, math.inf, -math.inf)
        ],
        *[sample((2, 3), ord=p, flag=NUMBER) for p in (1, -1, 2, -2, math.inf, -math.inf)],
        sample((3, 2, 4), axis=(2, 0), ord=1, keepdims=True, flag=NUMBER),
        sample((3, 2, 4), axis=(2, 0), ord=2, keepdims=True, flag=0),
        sample((3, 2), flag=NUCLEAR),
        sample((0, 3)),
        sample(()),
    ),
    doc=(
        "The norm over axes (None: all). flag: -2 of all elements, 1 the root of the sum of"
        " squares, 2 the sum of singular values, -1 and 0 the norm of order ord: of vectors for one"
        " axis, of matrices for two."
    ),
)


def _matrix_rank(F: Any, a: Array, rtol: float | None, tol: float | None, hermitian: bool) -> Array:
    if len(a.shape) < 2:
        return F.max(
            cast(F, F._not_equal_scalar(as_float(F, a), scalar=0.0), "int64"), to_scalar=True
        )
    x, _ = matrices(F, "matrix_rank", a, hermitian)
    m, n = x.shape[-2:]
    s = F._npi_svd(x, compute_uv=False, hermitian=hermitian)
    if tol is None:
        return rank(F, s, float(np.finfo(dtype_of(x)).eps) * max(m, n) if rtol is None else rtol)
    above = F._greater_scalar(s, scalar=tol)
    return F.sum(cast(F, above, "int64"), axis=-1, to_scalar=True)


front(
    "_npi_matrix_rank",
    _matrix_rank,
    inputs=("M",),
    params=(
        Param("rtol", "float?", None),
        Param("tol", "float?", None),
        Param("hermitian", "bool", False),
    ),
    ref=lambda xp, M, rtol, tol, hermitian: (
        np.int64(1)
        * np.linalg.matrix_rank(
            floats(M), tol, hermitian, **({} if rtol is None else {"rtol": rtol})
        )
    ),
    samples=(
        sample((3, 4)),
        sample((2, 3, 3), tol=1.0),
        sample((3, 3), rtol=0.3),
        sample(definite((3, 3)), hermitian=True),
        sample((4,)),
    ),
    doc="How many singular values of each matrix are above tol, or rtol times the largest.",
)


def _cond(F: Any, x: Array, ord: float, flag: int) -> Array:
    a, finish = matrices(F, "cond", x, square=flag != FLATTENED and abs(ord) != 2)
    if 0 in a.shape[-2:]:
        raise ShapeError(
            "np.linalg.cond", f"is not defined on empty matrices, got {tuple(x.shape)}"
        )
    if flag == FLATTENED or (flag == NUMBER and abs(ord) == 2):
        s = F._linalg_svdvals(a)
        last = s.shape[-1]
        ends = [F.slice_axis(s, axis=-1, begin=i, end=i + 1) for i in (0, last - 1)]
        if ord < 0:
            ends.reverse()
        return finish(reshaped(F, F.elemwise_div(*ends), tuple(s.shape[:-1])))
    n = len(a.shape)
    norm, of_inverse = [
        F._npi_norm(y, ord=ord, axis=(n - 2, n - 1), flag=flag)
        for y in (a, F._linalg_inverse_or_zero(a))
    ]
    infinite = F._full(shape=tuple(norm.shape), value=math.inf, dtype=dtype_of(a))
    is_singular = F._equal_scalar(of_inverse, scalar=0.0)
    return finish(F.where(is_singular, infinite, F.elemwise_mul(norm, of_inverse)))


def _cond_ref(xp: Any, x: Any, ord: Any, flag: int) -> Any:
    names = {FLATTENED: None, FROBENIUS: "fro", NUCLEAR: "nuc"}
    return np.linalg.cond(floats(x), names.get(flag, ord))


front(
    "_npi_cond",
    _cond,
    inputs=("x",),
    params=(Param("ord", "float", 2.0), Param("flag", "int", FLATTENED)),
    ref=_cond_ref,
    samples=(
        sample((3, 4)),
        sample((2, 3, 3), ord=-2, flag=NUMBER),
        sample(definite((3, 3)), ord=1, flag=NUMBER),
        sample(definite((3, 3)), flag=FROBENIUS),
        sample(definite((2, 1, 1)), flag=NUCLEAR),
    ),
    doc="The condition of matrices: the norm of each times that of its inverse. flag: as of norm.",
)
