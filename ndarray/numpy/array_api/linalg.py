"""Linear algebra of the array API standard: the extension `linalg`, and products."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

from ....engine.error import InvalidValue, ShapeError
from ....kernels.record import Array
from ....kernels.spec import DType
from ...ndarray import NDArray
from .dtypes import name_of
from .elementwise import check_kind, met
from .manipulation import broadcast_arrays, expand_dims, max, min, moveaxis, sum
from .operators import of_np

Axis = int | tuple[int, ...] | None


def _of(name: str) -> Callable[..., Any]:
    return of_np(f"linalg.{name}")


def _floats(name: str, *xs: Array) -> list[Array]:
    for x in xs:
        check_kind(name, "real floating", name_of(x))
    return met(name, "real floating", *xs)


def _matrices(name: str, x: Array) -> Array:
    check_kind(name, "real floating", name_of(x))
    if x.ndim < 2:
        raise ShapeError(name, f"x must have at least 2 axes, got shape {x.shape}")
    return x


# ---- products ------------------------------------------------------------------------------------


def matmul(x1: Array, x2: Array, /) -> Array:
    """Products of matrices, or of matrices and vectors."""
    return of_np("matmul")(*met("matmul", "numeric", x1, x2))


def matrix_transpose(x: Array, /) -> Array:
    """Matrices with rows and columns exchanged."""
    if x.ndim < 2:
        raise ShapeError("matrix_transpose", f"x must have at least 2 axes, got shape {x.shape}")
    return of_np("swapaxes")(x, -1, -2)


def outer(x1: Array, x2: Array, /) -> Array:
    """Products of each element of a vector with each of another."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError("outer", f"needs two vectors, got shapes {x1.shape} and {x2.shape}")
    x1, x2 = met("outer", "numeric", x1, x2)
    return expand_dims(x1, 1) * expand_dims(x2, 0)


def tensordot(x1: Array, x2: Array, /, *, axes: Any = 2) -> Array:
    """Sums of products over axes of both: over the last and first so many, or two lists of them."""
    if not isinstance(axes, int):
        axes = tuple([tuple(a) for a in axes])
    return of_np("tensordot")(*met("tensordot", "numeric", x1, x2), axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Sums of products along an axis, which counts from the last."""
    x1, x2 = met("vecdot", "numeric", x1, x2)
    if not -builtins.min(x1.ndim, x2.ndim) <= axis < 0:
        raise ShapeError("vecdot", f"axis must be negative and an axis of both, got {axis}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError("vecdot", f"sizes along axis {axis} differ: {x1.shape}, {x2.shape}")
    return sum(x1 * x2, axis=axis, dtype=name_of(x1))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Cross products of vectors of 3 along an axis."""
    x1, x2 = broadcast_arrays(*met("cross", "numeric", x1, x2))
    if x1.shape[axis] != 3:
        raise ShapeError("cross", f"vectors must have 3 elements, got shape {x1.shape}")
    a, b = (moveaxis(x, axis, 0) for x in (x1, x2))
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    return moveaxis(of_np("stack")(parts, axis=0), 0, axis)


# ---- decompositions ------------------------------------------------------------------------------


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The triangular L of x = L L^T, or its transpose."""
    lower = _of("cholesky")(_matrices("cholesky", x))
    return matrix_transpose(lower) if upper else lower


def det(x: Array, /) -> Array:
    """Determinants."""
    return _of("det")(_matrices("det", x))


def eigh(x: Array, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return EighResult(*_of("eigh")(_matrices("eigh", x)))


def eigvalsh(x: Array, /) -> Array:
    """Eigenvalues of symmetric matrices."""
    return _of("eigvalsh")(_matrices("eigvalsh", x))


def inv(x: Array, /) -> Array:
    """Inverses."""
    return _of("inv")(_matrices("inv", x))


def matrix_power(x: Array, n: int, /) -> Array:
    """Matrices to a whole power."""
    return _of("matrix_power")(_matrices("matrix_power", x), n)


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """An orthogonal and an upper triangular factor."""
    if mode not in ("reduced", "complete"):
        raise InvalidValue(f"qr: mode must be reduced or complete, got {mode!r}")
    return QRResult(*_of("qr")(_matrices("qr", x), mode=mode))


def slogdet(x: Array, /) -> SlogdetResult:
    """Signs and logarithms of determinants."""
    return SlogdetResult(*_of("slogdet")(_matrices("slogdet", x)))


def solve(x1: Array, x2: Array, /) -> Array:
    """x of x1 x = x2: a vector if x2 has one axis, else matrices."""
    x1, x2 = _floats("solve", x1, x2)
    if x2.ndim == 1:
        return _of("solve")(x1, expand_dims(x2, -1))[..., 0]
    return _of("solve")(x1, x2)


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """Orthogonal factors and singular values."""
    return SVDResult(*_of("svd")(_matrices("svd", x), full_matrices=full_matrices))


def svdvals(x: Array, /) -> Array:
    """Singular values, the largest first."""
    return _of("svdvals")(_matrices("svdvals", x))


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """Pseudo-inverses. rtol: singular values below so much of the largest count as 0."""
    return _of("pinv")(_matrices("pinv", x), rtol=_rtol(x, rtol))


def _rtol(x: Array, rtol: Any) -> Any:
    from .dtypes import finfo

    if rtol is None:
        return builtins.max(x.shape[-2:]) * finfo(x).eps
    return rtol


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are not near 0."""
    s = svdvals(x)
    if not s.shape[-1]:
        return sum(s, axis=-1).astype("int64")
    limit = max(s, axis=-1, keepdims=True) * (
        expand_dims(rtol, -1) if isinstance(rtol, NDArray) else _rtol(x, rtol)
    )
    return sum((s > limit).astype("int64"), axis=-1)


# ---- diagonals and norms -------------------------------------------------------------------------


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Diagonals of matrices."""
    return of_np("diagonal")(x, offset, -2, -1)


def trace(x: Array, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """Sums of diagonals."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Array, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Array:
    """Norms of vectors along axes (None: of all elements)."""
    check_kind("vector_norm", "real floating", name_of(x))
    size = of_np("abs")(x)
    inf = float("inf")
    if ord == inf:
        return max(size, axis=axis, keepdims=keepdims)
    if ord == -inf:
        return min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum((x != 0).astype(name_of(x)), axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return of_np("sqrt")(sum(x * x, axis=axis, keepdims=keepdims))
    return sum(size ** float(ord), axis=axis, keepdims=keepdims) ** (1.0 / ord)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norms of matrices."""
    _matrices("matrix_norm", x)
    inf = float("inf")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, inf, -inf):
        axis = -2 if abs(ord) == 1 else -1
        sums = sum(of_np("abs")(x), axis=axis, keepdims=True)
        found = (max if ord > 0 else min)(sums, axis=-3 - axis, keepdims=True)
    elif ord in ("nuc", 2, -2):
        reduce = {"nuc": sum, 2: max, -2: min}[ord]
        found = expand_dims(reduce(svdvals(x), axis=-1, keepdims=True), -1)
    else:
        raise InvalidValue(
            f"matrix_norm: ord must be fro, nuc, 1, -1, 2, -2, inf or -inf, got {ord}"
        )
    return found if keepdims else of_np("squeeze")(found, (-2, -1))


PRODUCTS: tuple[Callable[..., Any], ...] = (matmul, matrix_transpose, tensordot, vecdot)
