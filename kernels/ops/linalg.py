"""Linear algebra with triangular and symmetric matrices, in the last two axes of stacks: gemm,
syrk, trmm, trsm, potrf, potri, sumlogdiag. The other triangle of an operand is never read.

Gradients: Seeger et al. 2017, "Auto-differentiating linear algebra", arXiv:1710.08717.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..record import NATIVE_FLOATS, Array, Infer, Param, Type, Types, definite, operator, sample
from ..shapes import must_be, same_dtype
from ..traits import Decomposition
from .dense import TRANSPOSES, gemm2_type, matmul_grads

ALPHA = Param("alpha", "float", 1.0)


def matrices(op: str, ins: Types, names: Sequence[str] = ("A",), square: bool = False) -> str:
    """The common dtype of stacks of matrices. Raises DTypeError, ShapeError."""
    dtype = same_dtype(op, ins, names)
    if dtype not in NATIVE_FLOATS:
        raise DTypeError(op, f"needs float32 or float64, got {dtype}")
    for t, name in zip(ins, names):
        if len(t.shape) < 2:
            raise ShapeError(op, f"{name} must have at least 2 dimensions, got {t.shape}")
    a = ins[0].shape
    if square and a[-1] != a[-2]:
        raise ShapeError(op, f"{names[0]} must hold square matrices, got {a}")
    return dtype


def same_matrix(op: str) -> Infer:
    """Inference of operators on square matrices whose result has the same shape."""

    def infer(ins, **_):
        matrices(op, ins, square=True)
        return [ins[0]]

    return infer


def back(xp: Any, a: Array) -> Array:
    """Matrices transposed."""
    return xp.swapaxes(a, -1, -2)


def eye_like(xp: Any, a: Array) -> Array:
    return xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape)


# One triangle of a matrix


def _triangle_infer(ins, lower, offset):
    matrices("_linalg_triangle", ins)
    return [ins[0]]


operator(
    "_linalg_triangle",
    inputs=("A",),
    params=(Param("lower", "bool", True), Param("offset", "int", 0)),
    infer=_triangle_infer,
    ref=lambda xp, a, *, lower, offset: (xp.tril if lower else xp.triu)(a, offset),
    grad=lambda F, dys, xs, ys, **attrs: [F._linalg_triangle(dys[0], **attrs)],
    samples=(sample((2, 3, 3)), sample((3, 4), lower=False, offset=1), sample((4, 3), offset=-1)),
    doc="A with zeros above (lower) or below the diagonal `offset`.",
)


def symmetric_of_lower(F: Any, m: Array) -> Array:
    """The symmetric matrix whose lower triangle is m's."""
    below = F._linalg_triangle(m, offset=-1)
    return F.elemwise_add(F._linalg_triangle(m), F.SwapAxis(below, dim1=-2, dim2=-1))


# Products


def _gemm_infer(ins, transpose_a, transpose_b, alpha, beta, axis):
    matrices("linalg_gemm", ins, ("A", "B", "C"))
    out = gemm2_type("linalg_gemm", ins[:2], transpose_a, transpose_b, axis)
    must_be("linalg_gemm", "C", ins[2], out.shape)
    return [out]


def _gemm_ref(xp, a, b, c, *, transpose_a, transpose_b, alpha, beta, axis):
    a, b = xp.moveaxis(a, axis, -2), xp.moveaxis(b, axis, -2)
    y = (back(xp, a) if transpose_a else a) @ (back(xp, b) if transpose_b else b)
    return alpha * xp.moveaxis(y, -2, axis) + beta * c


def _gemm_body(F, a, b, c, transpose_a, transpose_b, alpha, beta, axis):
    y = F._linalg_gemm2(
        a, b, transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha, axis=axis
    )
    return [F.elemwise_add(y, F._mul_scalar(c, scalar=beta))]


def _gemm_grad(F, dys, xs, ys, transpose_a, transpose_b, alpha, beta, axis):
    def mul(a, b, **transposes):
        return F.linalg_gemm2(a, b, alpha=alpha, axis=axis, **transposes)

    return [
        *matmul_grads(mul, xs[0], xs[1], dys[0], transpose_a, transpose_b),
        F._mul_scalar(dys[0], scalar=beta),
    ]


operator(
    "_linalg_gemm",
    aliases=("linalg_gemm",),
    inputs=("A", "B", "C"),
    params=(*TRANSPOSES, ALPHA, Param("beta", "float", 1.0), Param("axis", "int", -2)),
    infer=_gemm_infer,
    ref=_gemm_ref,
    traits=(Decomposition(_gemm_body),),
    grad=_gemm_grad,
    samples=(
        sample((2, 3, 4), (2, 4, 5), (2, 3, 5)),
        sample((4, 3), (4, 5), (3, 5), transpose_a=True, alpha=2.5, beta=0.5),
        sample((3, 4), (5, 4), (3, 5), transpose_b=True, beta=0.0),
        sample((3, 2, 4), (4, 2, 5), (3, 2, 5), axis=0),
    ),
    doc=(
        "alpha * A . B + beta * C for matrices in the axes (axis, -1); the other axes are a batch."
    ),
)


def _syrk_infer(ins, transpose, alpha):
    dtype = matrices("linalg_syrk", ins)
    n = ins[0].shape[-1 if transpose else -2]
    return [Type((*ins[0].shape[:-2], n, n), dtype)]


def _syrk_grad(F, dys, xs, ys, transpose, alpha):
    both = F.elemwise_add(dys[0], F.SwapAxis(dys[0], dim1=-2, dim2=-1))
    pair = (xs[0], both) if transpose else (both, xs[0])
    return [F.linalg_gemm2(*pair, alpha=alpha)]


operator(
    "_linalg_syrk",
    aliases=("linalg_syrk",),
    inputs=("A",),
    params=(Param("transpose", "bool", False), ALPHA),
    infer=_syrk_infer,
    ref=lambda xp, a, *, transpose, alpha: (
        alpha * (back(xp, a) @ a if transpose else a @ back(xp, a))
    ),
    traits=(
        Decomposition(
            lambda F, a, transpose, alpha: [
                F._linalg_gemm2(a, a, transpose_a=transpose, transpose_b=not transpose, alpha=alpha)
            ]
        ),
    ),
    grad=_syrk_grad,
    samples=(sample((2, 3, 4)), sample((3, 4), transpose=True, alpha=0.5)),
    doc="alpha * A . A^T, or alpha * A^T . A with transpose.",
)


# A triangular matrix times, and solved for, a matrix

_TRIANGULAR = (
    Param("transpose", "bool", False),
    Param("rightside", "bool", False),
    Param("lower", "bool", True),
    ALPHA,
)


def _triangular_infer(op):
    def infer(ins, transpose, rightside, lower, alpha):
        matrices(op, ins, ("A", "B"), square=True)
        a, b = (t.shape for t in ins)
        axis = -1 if rightside else -2
        if a[:-2] != b[:-2] or a[-1] != b[axis]:
            raise ShapeError(
                op,
                f"B must have A's leading axes and B.shape[{axis}] equal A.shape[-1], got A {a}"
                f" and B {b}",
                fix="set rightside=True" if not rightside and a[-1] == b[-1] else None,
            )
        return [ins[1]]

    return infer


def _operand(xp, a, transpose, lower):
    a = xp.tril(a) if lower else xp.triu(a)
    return back(xp, a) if transpose else a


def _trmm_ref(xp, a, b, *, transpose, rightside, lower, alpha):
    a = _operand(xp, a, transpose, lower)
    return alpha * (b @ a if rightside else a @ b)


FEW_ROWS = 16  # solved row by row


def solve_lower(xp: Any, a: Array, b: Array) -> Array:
    """x with a . x = b for lower triangular a; divides by what stands on the diagonal."""
    n = a.shape[-1]
    if n <= FEW_ROWS:
        x = xp.array(b)
        for i in range(n):
            known = a[..., i : i + 1, :i] @ x[..., :i, :]
            x[..., i, :] = (x[..., i, :] - known[..., 0, :]) / a[..., i, i, None]
        return x
    half = n // 2
    top = solve_lower(xp, a[..., :half, :half], b[..., :half, :])
    rest = b[..., half:, :] - a[..., half:, :half] @ top
    return xp.concatenate([top, solve_lower(xp, a[..., half:, half:], rest)], axis=-2)


def _trsm_ref(xp, a, b, *, transpose, rightside, lower, alpha):
    a = _operand(xp, a, transpose != rightside, lower)
    b = back(xp, b) if rightside else b
    if lower != (transpose != rightside):
        x = solve_lower(xp, a, b)
    else:
        x = solve_lower(xp, a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    return alpha * (back(xp, x) if rightside else x)


def _triangle_grad(F, left, right, transpose, rightside, lower, alpha):
    """The gradient of A from `left` and `right`, whose product is the gradient of op(A)."""
    if transpose:
        left, right = right, left
    g = F.linalg_gemm2(left, right, transpose_a=rightside, transpose_b=not rightside, alpha=alpha)
    return F._linalg_triangle(g, lower=lower)


def _trmm_grad(F, dys, xs, ys, transpose, rightside, lower, alpha):
    a, b = xs
    side = {"rightside": rightside, "lower": lower}
    pair = (b, dys[0]) if rightside else (dys[0], b)
    return [
        _triangle_grad(F, *pair, transpose, alpha=alpha, **side),
        F.linalg_trmm(a, dys[0], transpose=not transpose, alpha=alpha, **side),
    ]


def _trsm_grad(F, dys, xs, ys, transpose, rightside, lower, alpha):
    side = {"rightside": rightside, "lower": lower}
    g = F.linalg_trsm(xs[0], dys[0], transpose=not transpose, **side)
    pair = (ys[0], g) if rightside else (g, ys[0])
    return [
        _triangle_grad(F, *pair, transpose, alpha=-1.0, **side),
        g if alpha == 1 else F._mul_scalar(g, scalar=alpha),
    ]


def _triangular(name, ref, grad, doc):
    operator(
        f"_linalg_{name}",
        aliases=(f"linalg_{name}",),
        inputs=("A", "B"),
        params=_TRIANGULAR,
        infer=_triangular_infer(f"linalg_{name}"),
        ref=ref,
        grad=grad,
        samples=(
            sample(definite((2, 3, 3)), (2, 3, 4)),
            sample(definite((3, 3)), (3, 2), lower=False, alpha=0.5),
            sample(definite((3, 3)), (3, 2), transpose=True),
            sample(definite((3, 3)), (3, 2), transpose=True, lower=False),
            sample(definite((2, 3, 3)), (2, 4, 3), rightside=True),
            sample(definite((3, 3)), (2, 3), rightside=True, lower=False),
            sample(definite((3, 3)), (2, 3), rightside=True, transpose=True, alpha=2.0),
            sample(definite((3, 3)), (2, 3), rightside=True, transpose=True, lower=False),
            sample(definite((20, 20)), (20, 3)),
        ),
        doc=doc
        + " lower: which triangle of A is read. op(A): A, or its transpose with transpose=True.",
    )


_triangular(
    "trmm",
    _trmm_ref,
    _trmm_grad,
    "alpha * op(A) . B, or alpha * B . op(A) with rightside, for triangular A.",
)
_triangular(
    "trsm",
    _trsm_ref,
    _trsm_grad,
    "X with op(A) . X = alpha * B, or X . op(A) = alpha * B with rightside, for triangular A. A"
    " zero on the diagonal gives inf and nan.",
)


# Cholesky

NOT_DEFINITE = "A must be symmetric and positive definite"


def _potrf_ref(xp, a):
    try:
        return xp.linalg.cholesky(a)
    except xp.linalg.LinAlgError:
        raise OperatorError("linalg_potrf", NOT_DEFINITE) from None


def _potrf_grad(F, dys, xs, ys):
    low = ys[0]
    m = symmetric_of_lower(F, F.linalg_trmm(low, dys[0], transpose=True))
    half = F.linalg_trsm(low, m, transpose=True, alpha=0.5)
    return [F.linalg_trsm(low, half, rightside=True)]


operator(
    "_linalg_potrf",
    aliases=("linalg_potrf",),
    inputs=("A",),
    infer=same_matrix("linalg_potrf"),
    ref=_potrf_ref,
    grad=_potrf_grad,
    samples=(sample(definite((3, 3))), sample(definite((2, 2, 4, 4))), sample(definite((1, 1)))),
    doc=(
        "The lower triangular L with L . L^T = A, for symmetric positive definite A, of which only"
        " the lower triangle is read. The gradient is that along symmetric changes of A. Raises"
        " MXNetError if A is not positive definite."
    ),
)


def _potri_ref(xp, a):
    if xp.any(xp.diagonal(a, axis1=-2, axis2=-1) == 0):
        raise OperatorError("linalg_potri", "A must have no zero on its diagonal")
    inverse = solve_lower(xp, xp.tril(a), eye_like(xp, a))
    return back(xp, inverse) @ inverse


def _potri_grad(F, dys, xs, ys):
    both = F.elemwise_add(dys[0], F.SwapAxis(dys[0], dim1=-2, dim2=-1))
    g = F.linalg_trsm(
        xs[0],
        F.linalg_gemm2(ys[0], both, alpha=-1.0),
        rightside=True,
        transpose=True,
    )
    return [F._linalg_triangle(g)]


operator(
    "_linalg_potri",
    aliases=("linalg_potri",),
    inputs=("A",),
    infer=same_matrix("linalg_potri"),
    ref=_potri_ref,
    grad=_potri_grad,
    samples=(sample(definite((3, 3))), sample(definite((2, 4, 4)))),
    doc="The inverse of A . A^T for lower triangular A, what linalg_potrf gives.",
)


def _sumlogdiag_infer(ins):
    dtype = matrices("linalg_sumlogdiag", ins, square=True)
    return [Type(ins[0].shape[:-2] or (1,), dtype)]


def _sumlogdiag_ref(xp, a):
    return xp.log(xp.diagonal(a, axis1=-2, axis2=-1)).sum(axis=-1).reshape(a.shape[:-2] or (1,))


def _sumlogdiag_grad(F, dys, xs, ys):
    dy = F.reshape_to(dys[0], shape=(*xs[0].shape[:-2], 1))
    return [F.linalg_makediag(F.broadcast_div(dy, F.linalg_extractdiag(xs[0])))]


operator(
    "_linalg_sumlogdiag",
    aliases=("linalg_sumlogdiag",),
    inputs=("A",),
    infer=_sumlogdiag_infer,
    ref=_sumlogdiag_ref,
    grad=_sumlogdiag_grad,
    samples=(sample(definite((3, 3))), sample(definite((2, 2, 4, 4)))),
    doc="The sum of the logarithms of the diagonal of each matrix; shape (1,) for one matrix.",
)
