"""np.linalg: linear algebra of matrices in the last two axes, and of stacks of them. Whole numbers
become float32. All have gradients, of both orders, where they have a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine.error import InvalidValue, MXNetError, ShapeError
from ...kernels.ops.np.norms import FLATTENED, FROBENIUS, NUCLEAR, NUMBER
from ...kernels.record import Array
from ..ndarray import NDArray
from .array import operand
from .products import front, matmul, tensordot  # noqa: F401
from .products import trace as _trace

cholesky, det, eigvals, eigvalsh, inv, matrix_power, solve, tensorinv = [
    front(f"_npi_{name}")
    for name in "cholesky det eigvals eigvalsh inv matrix_power solve tensorinv".split()
]
_eig, _eigh, _slogdet, _qr, _svd, _lstsq = [
    front(f"_npi_{name}") for name in ("eig", "eigh", "slogdet", "qr", "svd", "lstsq")
]
_norm, _cond, _rank = front("_npi_norm"), front("_npi_cond"), front("_npi_matrix_rank")
_pinv, _pinv_number = front("_npi_pinv"), front("_npi_pinv_scalar_rcond")
_tensorsolve, _multi_dot = front("_npi_tensorsolve"), front("_npi_multi_dot")
_outer, _cross, _vecdot = front("_npi_outer"), front("_npi_cross"), front("_npi_vecdot")
LinAlgError = MXNetError  # what is raised, when the result is read, for a singular matrix
_swap, _diagonal = front("SwapAxis"), front("diag")


class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


# ---- decompositions ------------------------------------------------------------------------------


def eig(a: Array) -> EigResult:
    """Eigenvalues and eigenvectors, as columns, of matrices with real eigenvalues. Raises
    MXNetError if one is not real."""
    return EigResult(*_eig(a))


def eigh(a: Array, UPLO: str = "L") -> EighResult:  # noqa: N803 - NumPy's name
    """Eigenvalues of symmetric matrices, rising, and eigenvectors as columns, whose largest element
    is positive. UPLO: which triangle is read."""
    return EighResult(*_eigh(a, UPLO=UPLO))


def slogdet(a: Array) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants; 0 and -inf of a singular matrix."""
    return SlogdetResult(*_slogdet(a))


def qr(a: Array, mode: str = "reduced") -> Any:
    """Q and R with a = Q @ R: Q with orthonormal columns, R upper triangular. mode: r gives R
    alone, complete a square Q."""
    made = _qr(a, mode=mode)
    return made if mode == "r" else QRResult(*made)


def svd(
    a: Array, full_matrices: bool = False, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """U, S, V with a = U @ diag(S) @ V, S falling; S alone without compute_uv. As in MXNet and
    unlike NumPy, U and V are square only with full_matrices. The largest element of each row of V
    is positive."""
    made = _svd(a, full_matrices=full_matrices, compute_uv=compute_uv, hermitian=hermitian)
    return SVDResult(*made) if compute_uv else made


def svd_of_numpy(
    a: Array, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """What numpy.linalg.svd is of our arrays: svd with NumPy's default."""
    return svd(a, full_matrices, compute_uv, hermitian)


def svdvals(x: Array) -> Array:
    """Singular values, falling."""
    return _svd(x, compute_uv=False)


# ---- systems of equations ------------------------------------------------------------------------


def pinv(a: Array, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """The pseudo-inverse. rcond, rtol: singular values up to so many times the largest count as
    zero, a number or an array; default 1e-15."""
    if rcond is not None and rtol is not None:
        raise InvalidValue("np.linalg.pinv: rcond and rtol are two names, give one")
    limit = rcond if rtol is None else rtol
    if limit is None or isinstance(limit, (int, float)):
        return _pinv_number(a, rcond=1e-15 if limit is None else limit, hermitian=hermitian)
    return _pinv(a, limit, hermitian=hermitian)


def tensorsolve(a: Array, b: Array, axes: Sequence[int] | None = None) -> Array:
    """x with tensordot(a, x, x.ndim) = b. axes: those of a that come last."""
    return _tensorsolve(a, b, a_axes=None if axes is None else tuple(axes))


def lstsq(a: Array, b: Array, rcond: Any = None) -> tuple[Array, Array, Array, Array]:
    """The shortest x for which |b - a @ x| is least: (x, squared residuals, rank of a, singular
    values of a). The residuals are empty where a has not full rank or no more rows than columns; of
    Symbols they are those of the last case only."""
    x, residuals, rank, s = _lstsq(a, b, rcond=None if rcond == "warn" else rcond)
    if isinstance(x, NDArray):
        m, n = operand(a).shape
        if m <= n or rank.item() < n:
            residuals = residuals[:0]
    return x, residuals, rank, s


# ---- norms, rank ---------------------------------------------------------------------------------


def norm(x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of all elements, of vectors along an axis, or of matrices in two axes.

    ord: None (root of the sum of squares), a number, inf, -inf, "fro" or "nuc".
    """
    if isinstance(axis, int):
        axis = (axis,)
    n_axes = len(axis) if axis is not None else getattr(x, "ndim", None)
    order, flag = _flag("norm", ord, axis is None)
    if n_axes == 1 and isinstance(ord, str):
        raise InvalidValue(
            f"np.linalg.norm: ord={ord!r} is for matrices, got vectors\n  fix: ord=2"
        )
    if n_axes == 2 and flag == NUMBER and abs(order) == 2:
        flag = 0
    return _norm(x, ord=order, axis=axis, keepdims=keepdims, flag=flag)


def _flag(name: str, ord: Any, whole: bool) -> tuple[float, int]:
    """ord as the operators have it: a number and what it means."""
    if ord is None:
        return 2.0, FLATTENED if whole else FROBENIUS
    if isinstance(ord, str):
        flags = {"fro": FROBENIUS, "f": FROBENIUS, "nuc": NUCLEAR}
        if ord in flags:
            return 2.0, flags[ord]
        if ord not in ("inf", "-inf"):
            raise InvalidValue(
                f"np.linalg.{name}: ord must be a number, inf, fro or nuc, got {ord!r}"
            )
    return float(ord), NUMBER


def vector_norm(x: Array, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors along axes (None: all), which count as one."""
    x = operand(x)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if len(axes) == 1:
        return norm(x, ord, axes, keepdims)
    axes = tuple([a % x.ndim for a in axes])
    others = [i for i in range(x.ndim) if i not in axes]
    flat = x.transpose((*others, *axes)).reshape((*[x.shape[i] for i in others], -1))
    made = norm(flat, ord, (len(others),))
    if not keepdims:
        return made
    return made.reshape(tuple([1 if i in axes else n for i, n in enumerate(x.shape)]))


def matrix_norm(x: Array, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices in the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def cond(x: Array, p: Any = None) -> Array:
    """The condition of matrices: the norm of each times that of its inverse. p: as ord of norm; a
    square matrix is needed but for None, 2 and -2."""
    order, flag = _flag("cond", p, True)
    return _cond(x, ord=order, flag=flag)


def matrix_rank(
    A: Array,  # noqa: N803 - NumPy's name
    tol: float | None = None,
    hermitian: bool = False,
    *,
    rtol: float | None = None,
) -> Array:
    """How many singular values of each matrix are above tol, or above rtol times the largest;
    default the rounding of the dtype."""
    if tol is not None and rtol is not None:
        raise InvalidValue("np.linalg.matrix_rank: tol and rtol exclude each other, give one")
    return _rank(A, rtol=rtol, tol=tol, hermitian=hermitian)


# ---- products, parts -----------------------------------------------------------------------------


def multi_dot(arrays: Sequence[Array], *, out: Array | None = None) -> Array:
    """The product of several matrices in the order that needs the fewest multiplications; the first
    and the last may be vectors."""
    return _multi_dot(*arrays, out=out)


def matrix_transpose(x: Array) -> Array:
    """Matrices transposed."""
    x = operand(x)
    if getattr(x, "ndim", 2) < 2:
        raise ShapeError("np.linalg.matrix_transpose", f"x must hold matrices, got {x.shape}")
    return _swap(x, dim1=-2, dim2=-1)


def diagonal(x: Array, *, offset: int = 0) -> Array:
    """Diagonals of matrices in the last two axes."""
    return _diagonal(x, k=offset, axis1=-2, axis2=-1)


def trace(x: Array, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of diagonals of matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)


def outer(x1: Array, x2: Array) -> Array:
    """All products of elements of two vectors."""
    x1, x2 = operand(x1), operand(x2)
    if any(getattr(x, "ndim", 1) != 1 for x in (x1, x2)):
        raise ShapeError("np.linalg.outer", f"needs vectors, got {x1.shape} and {x2.shape}")
    return _outer(x1, x2)


def cross(x1: Array, x2: Array, *, axis: int = -1) -> Array:
    """The cross product of vectors of 3 elements along an axis."""
    x1, x2 = operand(x1), operand(x2)
    if any(x.shape[axis] != 3 for x in (x1, x2) if isinstance(x, NDArray)):
        raise ShapeError("np.linalg.cross", f"needs 3 elements, got {x1.shape} and {x2.shape}")
    return _cross(x1, x2, axis=axis)


def vecdot(x1: Array, x2: Array, *, axis: int = -1) -> Array:
    """Sums of products along an axis."""
    return _vecdot(x1, x2, axis=axis)


# what NumPy has here alone
ELSEWHERE = frozenset(
    (
        *("cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "norm"),
        *("matrix_power", "matrix_rank", "multi_dot", "pinv", "qr", "slogdet", "solve", "svd"),
        *("tensorinv", "tensorsolve"),
    )
)
__all__ = [
    *("cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv"),
    *("lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose"),
    *("multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals"),
    *("tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm", "LinAlgError"),
]
