"""np.linalg without norms: inverses, determinants, systems of equations, decompositions.

Whole numbers become float32, float16 is computed in float32. Batches of any shape, zero sizes too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....engine.error import ShapeError
from ...front import DEFAULT, alike, as_float, cast, dtype_of, front, reshaped
from ...record import HALVES, NATIVE_FLOATS, Array, Param, definite, sample, values
from ...shapes import one_axis
from .einsum import permuted
from .products import batched, matmul, turned

A = ("a",)


def matrices(F: Any, op: str, a: Array, square: bool = False) -> tuple[Array, Callable]:
    """Matrices in a dtype in which they are computed, and what gives results their own. Raises
    ShapeError."""
    if len(a.shape) < 2 or (square and a.shape[-1] != a.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"np.linalg.{op}", f"a must hold {kind}, got {tuple(a.shape)}")
    return computed(F, a)


def computed(F: Any, a: Array) -> tuple[Array, Callable]:
    """As `matrices`, of any shape."""
    given = dtype_of(a)
    x = cast(F, a, given if given in NATIVE_FLOATS else DEFAULT)
    return x, (lambda y: cast(F, y, given)) if given in HALVES else (lambda y: y)


def _of_matrix(
    op: str,
    rule: Callable,
    ref: Callable,
    samples: tuple,
    doc: str,
    *params: Param,
    square: bool = True,
    n_outputs: Any = 1,
) -> None:
    """The front `_npi_op` of matrices: rule(F, a, **attrs) on a float dtype -> its result(s)."""

    def whole(F: Any, a: Array, **attrs: Any) -> Any:
        x, finish = matrices(F, op, a, square)
        y = rule(F, x, **attrs)
        return [finish(part) for part in y] if isinstance(y, list) else finish(y)

    front(
        f"_npi_{op}",
        whole,
        inputs=A,
        params=params,
        n_outputs=n_outputs,
        ref=lambda xp, a, **attrs: ref(floats(a), **attrs),
        samples=samples,
        doc=doc,
    )


def floats(a: Any) -> Any:
    """For references: whole numbers as float32."""
    return a if a.dtype.kind == "f" else a.astype(DEFAULT)


SQUARES = (sample(definite((3, 3))), sample(definite((2, 2, 4, 4))), sample(definite((1, 1))))
EMPTY = (sample((0, 0)), sample((0, 3, 3)))


# ---- inverses, determinants ----------------------------------------------------------------------

_of_matrix(
    "inv",
    lambda F, a: F._linalg_inverse(a),
    np.linalg.inv,
    (*SQUARES, *EMPTY, sample((3, 3))),
    "The inverse of each matrix. Raises MXNetError if one is singular.",
)
_of_matrix(
    "det",
    lambda F, a: reshaped(F, F._linalg_det(a), tuple(a.shape[:-2])),
    np.linalg.det,
    (*SQUARES, *EMPTY, sample((3, 3))),
    "The determinant of each matrix.",
)
_of_matrix(
    "slogdet",
    lambda F, a: [reshaped(F, y, tuple(a.shape[:-2])) for y in F._linalg_slogdet(a)],
    lambda a: tuple(np.linalg.slogdet(a)),
    (*SQUARES, *EMPTY, sample((3, 3))),
    "Sign and logarithm of the absolute value of each determinant; 0 and -inf of a singular one.",
    n_outputs=2,
)


def _pinv(F: Any, a: Array, rcond: Array, hermitian: bool) -> Array:
    x, finish = matrices(F, "pinv", a, hermitian)
    rcond = cast(F, rcond, dtype_of(x))
    if 0 in a.shape:
        return finish(turned(F, x))
    return finish(F._linalg_pinv(x, rcond, hermitian=hermitian))


def _pinv_number(F: Any, a: Array, rcond: float, hermitian: bool) -> Array:
    return _pinv(F, a, F._full(shape=(), value=rcond, dtype="float64"), hermitian)


HERMITIAN = Param("hermitian", "bool", False)

front(
    "_npi_pinv",
    _pinv,
    inputs=("a", "rcond"),
    params=(HERMITIAN,),
    ref=lambda xp, a, rcond, hermitian: np.linalg.pinv(floats(a), rcond=rcond, hermitian=hermitian),
    samples=(
        sample((3, 4), values(1e-15)),
        sample((2, 4, 3), values([1e-15, 1e-15])),
        sample(definite((3, 3)), values(1e-15), hermitian=True),
    ),
    doc=(
        "The pseudo-inverse of each matrix; singular values up to rcond times the largest count as"
        " zero."
    ),
)
front(
    "_npi_pinv_scalar_rcond",
    _pinv_number,
    inputs=A,
    params=(Param("rcond", "float", 1e-15), HERMITIAN),
    ref=lambda xp, a, rcond, hermitian: np.linalg.pinv(floats(a), rcond=rcond, hermitian=hermitian),
    samples=(
        sample((3, 4)),
        sample((2, 4, 3), rcond=1e-6),
        sample(definite((3, 3)), hermitian=True),
        sample((0, 3)),
    ),
    doc="The pseudo-inverse of each matrix; rcond is a number.",
)


# ---- systems of equations ------------------------------------------------------------------------


def _pair(F: Any, a: Array, b: Array) -> tuple[Array, Array, Callable]:
    a, b = alike(F, as_float(F, a), as_float(F, b))
    a, finish = computed(F, a)
    return a, computed(F, b)[0], finish


def solve(F: Any, a: Array, b: Array) -> Array:
    """x with a @ x = b; b is one vector, or matrices."""
    matrices(F, "solve", a, square=True)
    a, b, finish = _pair(F, a, b)
    if not b.shape:
        raise ShapeError("np.linalg.solve", "b must have at least 1 axis, got ()")
    is_vector = len(b.shape) == 1
    if is_vector:
        b = reshaped(F, b, (b.shape[0], 1))
    if b.shape[-2] != a.shape[-1]:
        raise ShapeError(
            "np.linalg.solve",
            f"b must have as many rows as a, got a {tuple(a.shape)} and b {tuple(b.shape)}",
            fix="b[..., None] for a stack of vectors" if b.shape[-1] == a.shape[-1] else None,
        )
    a, b = batched(F, "np.linalg.solve", a, b)
    x = F._linalg_solve(a, b)
    return finish(reshaped(F, x, tuple(x.shape[:-1])) if is_vector else x)


front(
    "_npi_solve",
    solve,
    inputs=("a", "b"),
    ref=lambda xp, a, b: np.linalg.solve(floats(a), floats(b)),
    samples=(
        sample(definite((3, 3)), (3,)),
        sample(definite((3, 3)), (3, 2)),
        sample(definite((2, 3, 3)), (2, 3, 2)),
        sample(definite((3, 3)), (2, 3, 1)),
        sample(definite((2, 3, 3)), (3,)),
        sample((0, 0), (0, 2)),
    ),
    doc="x with a @ x = b: b is one vector or matrices. Raises MXNetError if a is singular.",
)


def _tensorsolve(F: Any, a: Array, b: Array, a_axes: tuple[int, ...] | None) -> Array:
    n = len(a.shape)
    if a_axes:
        last = [one_axis("np.linalg.tensorsolve", i, n) for i in a_axes]
        a = permuted(F, a, tuple([*[i for i in range(n) if i not in last], *last]))
    unknown = tuple(a.shape[len(b.shape) :])
    size = prod(b.shape)
    if tuple(a.shape[: len(b.shape)]) != tuple(b.shape) or prod(unknown) != size:
        raise ShapeError(
            "np.linalg.tensorsolve",
            "a must have b's axes first, then as many elements as b, got"
            f" a {tuple(a.shape)} and b {tuple(b.shape)}",
        )
    x = solve(F, reshaped(F, a, (size, size)), reshaped(F, b, (size,)))
    return reshaped(F, x, unknown)


front(
    "_npi_tensorsolve",
    _tensorsolve,
    inputs=("a", "b"),
    params=(Param("a_axes", "shape?", None),),
    ref=lambda xp, a, b, a_axes: np.linalg.tensorsolve(floats(a), floats(b), a_axes or None),
    samples=(
        sample((2, 3, 6), (2, 3)),
        sample((2, 6, 3), (2, 3), a_axes=(1,)),
        sample((4, 2, 2), (4,)),
    ),
    doc="x with tensordot(a, x, x.ndim) = b.",
)


def _tensorinv(F: Any, a: Array, ind: int) -> Array:
    first, last = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    if ind < 1 or not a.shape or prod(first) != prod(last):
        raise ShapeError(
            "np.linalg.tensorinv",
            "a must have as many elements in its first ind axes as in the others, got"
            f" {tuple(a.shape)}, ind={ind}",
        )
    y = F._npi_inv(reshaped(F, a, (prod(first), prod(last))))
    return reshaped(F, y, (*last, *first))


front(
    "_npi_tensorinv",
    _tensorinv,
    inputs=A,
    params=(Param("ind", "int", 2),),
    ref=lambda xp, a, ind: np.linalg.tensorinv(floats(a), ind),
    samples=(sample((2, 3, 3, 2)), sample(definite((3, 3)), ind=1), sample((4, 2, 2), ind=1)),
    doc="The inverse of tensordot with a over its last axes.",
)


def _lstsq(F: Any, a: Array, b: Array, rcond: float | None) -> list[Array]:
    if len(a.shape) != 2 or len(b.shape) not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            "np.linalg.lstsq",
            "a must be a matrix, b a vector or matrix with as many rows, got"
            f" a {tuple(a.shape)} and b {tuple(b.shape)}",
        )
    a, b, finish = _pair(F, a, b)
    m, n = a.shape
    dtype = dtype_of(a)
    if rcond is None:
        rcond = float(np.finfo(dtype).eps) * max(m, n)
    elif rcond < 0:
        rcond = float(np.finfo(dtype).eps)
    inverse = _pinv_number(F, a, rcond, False)
    x = matmul(F, inverse, b)
    left = F.elemwise_sub(b, matmul(F, a, x))
    rest = F.sum(F.square(left), axis=0, to_scalar=True)
    s = F._linalg_svdvals(a)
    return [
        finish(x),
        finish(reshaped(F, rest, tuple(b.shape[1:]) or (1,))),
        cast(F, rank(F, s, rcond), "int32"),
        finish(s),
    ]


def rank(F: Any, s: Array, tol: float) -> Array:
    """How many singular values are above tol times the largest."""
    if s.shape[-1] == 0:
        return F._zeros(shape=tuple(s.shape[:-1]), dtype="int64")
    least = F._mul_scalar(F.slice_axis(s, axis=-1, begin=0, end=1), scalar=tol)
    above = F.broadcast_greater(s, least)
    return F.sum(cast(F, above, "int64"), axis=-1, to_scalar=True)


def _lstsq_ref(xp: Any, a: Any, b: Any, rcond: Any) -> Any:
    a, b = floats(a), floats(b)
    x, _, n, s = np.linalg.lstsq(a, b, rcond)
    return x, np.atleast_1d(((b - a @ x) ** 2).sum(axis=0)), np.int32(n), s


front(
    "_npi_lstsq",
    _lstsq,
    inputs=("a", "b"),
    params=(Param("rcond", "float?", None),),
    n_outputs=4,
    ref=_lstsq_ref,
    samples=(sample((5, 3), (5,)), sample((5, 3), (5, 2)), sample((2, 3), (2,))),
    doc=(
        "The shortest x for which |b - a @ x| is least, its squared residuals (NumPy leaves them"
        " out where a is not of full rank), the rank of a and its singular values."
    ),
)


# ---- decompositions ------------------------------------------------------------------------------

_of_matrix(
    "cholesky",
    lambda F, a, upper: turned(F, F._linalg_potrf(turned(F, a))) if upper else F._linalg_potrf(a),
    lambda a, upper: np.linalg.cholesky(a, upper=upper),
    (*SQUARES, sample(definite((2, 3, 3)), upper=True), *EMPTY),
    (
        "The lower triangular L with L @ L.T = a for symmetric positive definite a, of which only"
        " that triangle is read; the upper one with upper. Raises MXNetError if a is not definite."
    ),
    Param("upper", "bool", False),
)
UPLO = Param("UPLO", ("L", "U", "l", "u"), "L")


def _lower(F: Any, a: Array, uplo: str) -> Array:
    return turned(F, a) if uplo in "Uu" else a


def _eigh(F: Any, a: Array, UPLO: str) -> list[Array]:
    rows, found = F._linalg_syevd(_lower(F, a, UPLO))
    return [found, turned(F, rows)]


def _eigh_ref(a: Any, UPLO: Any) -> Any:
    w, v = np.linalg.eigh(a, UPLO)
    if v.size:
        at = np.abs(v).argmax(axis=-2)[..., None, :]
        v = v * np.where(np.take_along_axis(v, at, -2) < 0, -1, 1).astype(v.dtype)
    return w, v


_of_matrix(
    "eigh",
    _eigh,
    _eigh_ref,
    (*SQUARES, *EMPTY),
    (
        "Eigenvalues of symmetric matrices, rising, and eigenvectors as columns, whose largest"
        " element is positive. UPLO: which triangle is read."
    ),
    UPLO,
    n_outputs=2,
)
_of_matrix(
    "eigvalsh",
    lambda F, a, UPLO: F._linalg_eigvalsh(_lower(F, a, UPLO)),
    np.linalg.eigvalsh,
    (*SQUARES, sample(definite((3, 3)), UPLO="U"), *EMPTY),
    "Eigenvalues of symmetric matrices, rising. UPLO: which triangle is read.",
    UPLO,
)
_UNEVEN = values([[1.0, 0.5, 0.2], [0.3, 3.0, 0.1], [0.2, -0.4, 6.0]])

_of_matrix(
    "eig",
    lambda F, a: F._linalg_eig(a),
    lambda a: tuple(np.linalg.eig(a)),
    (sample(_UNEVEN), *EMPTY),
    "Eigenvalues and eigenvectors, as columns, of matrices with real eigenvalues.",
    n_outputs=2,
)
_of_matrix(
    "eigvals",
    lambda F, a: F._linalg_eigvals(a),
    np.linalg.eigvals,
    (*SQUARES, sample(_UNEVEN), *EMPTY),
    "Eigenvalues of matrices that are all real.",
)


def _qr(F: Any, a: Array, mode: str) -> Any:
    m, n = a.shape[-2:]
    k = min(m, n)
    if k == 0:
        lead = tuple(a.shape[:-2])
        q = reshaped(F, a, (*lead, m, 0))
        if mode == "complete" and m:
            q = F.broadcast_add(F.sum(a, axis=-1, keepdims=True), F._eye(N=m, dtype=dtype_of(a)))
        r = reshaped(F, a, (*lead, q.shape[-1], n))
        return r if mode == "r" else [q, r]
    first = a if m >= n else F.slice_axis(a, axis=-1, begin=0, end=m)
    rows, low = F._linalg_gelqf(turned(F, first))
    q, r = turned(F, rows), turned(F, low)
    if m < n:
        rest = F.slice_axis(a, axis=-1, begin=m, end=n)
        r = F.Concat(r, F.linalg_gemm2(q, rest, transpose_a=True), dim=len(a.shape) - 1)
    if mode == "r":
        return r
    if mode == "complete" and m > n:
        zeros = F._zeros(shape=(*a.shape[:-2], m - n, n), dtype=dtype_of(a))
        r = F.Concat(r, zeros, dim=len(a.shape) - 2)
        q = F.Concat(q, F._linalg_complement(q), dim=len(a.shape) - 1)
    return [q, r]


def _svd(F: Any, a: Array, full_matrices: bool, compute_uv: bool, hermitian: bool) -> Any:
    m, n = a.shape[-2:]
    axis, k = len(a.shape) - 1, min(m, n)
    if hermitian:  # as of the lower triangle alone
        below = F._linalg_triangle(a, offset=-1)
        a = F.elemwise_add(F._linalg_triangle(a), turned(F, below))
    if not compute_uv:
        if k == 0:
            return reshaped(F, a, (*a.shape[:-2], 0))
        return F._linalg_svdvals(a)
    u, s, vh = F._linalg_svd(a)
    if full_matrices and m > n:
        u = F.Concat(u, F._linalg_complement(u), dim=axis)
    if full_matrices and m < n:
        more = F._linalg_complement(turned(F, vh))
        vh = F.Concat(vh, turned(F, more), dim=axis - 1)
    return [u, s, vh]


def _svd_ref(a: Any, full_matrices: bool, compute_uv: bool, hermitian: bool) -> Any:
    """NumPy's, with plait's signs."""
    if not compute_uv:
        return np.linalg.svd(a, compute_uv=False)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    if vh.size:
        at = np.abs(vh).argmax(axis=-1)[..., None]
        sign = np.where(np.take_along_axis(vh, at, -1) < 0, -1, 1).astype(a.dtype)
        u, vh = u * np.swapaxes(sign, -1, -2), vh * sign
    return u, s, vh


_of_matrix(
    "qr",
    _qr,
    lambda a, mode: np.linalg.qr(a, mode),
    (
        sample((4, 3)),
        sample((2, 3, 3)),
        sample((3, 5)),
        sample((4, 2), mode="r"),
        sample((0, 3)),
        sample((3, 0), mode="complete"),
    ),
    (
        "Q and R with a = Q @ R: Q with orthonormal columns, R upper triangular. mode: r gives R"
        " alone, complete a square Q."
    ),
    Param("mode", ("reduced", "complete", "r"), "reduced"),
    square=False,
    n_outputs=lambda mode: 1 if mode == "r" else 2,
)
_of_matrix(
    "svd",
    _svd,
    _svd_ref,
    (
        sample((3, 3)),
        sample((2, 4, 3)),
        sample((3, 5)),
        sample((3, 4), compute_uv=False),
        sample((0, 3)),
        sample((3, 0)),
    ),
    (
        "U, S, V with a = U @ diag(S) @ V, S falling: as many columns of U and rows of V as S has"
        " elements, or square ones with full_matrices. The largest element of each row of V is"
        " positive."
    ),
    Param("full_matrices", "bool", False),
    Param("compute_uv", "bool", True),
    Param("hermitian", "bool", False),
    square=False,
    n_outputs=lambda compute_uv, **_: 3 if compute_uv else 1,
)
