"""Whole matrices: inverse, determinants, decompositions, and diagonals and triangles as vectors."""

from __future__ import annotations

from math import prod

from ...engine.error import OperatorError, ShapeError
from ..compose import vjp
from ..record import Param, Type, definite, operator, sample
from ..shapes import same_dtype
from .linalg import back, matrices, same_matrix, symmetric_of_lower

# Inverse and determinants


def _inverse_ref(xp, a):
    try:
        return xp.linalg.inv(a)
    except xp.linalg.LinAlgError:
        raise OperatorError("linalg_inverse", "A must be invertible") from None


def _inverse_grad(F, dys, xs, ys):
    y = ys[0]
    half = F.linalg_gemm2(y, dys[0], transpose_a=True, alpha=-1.0)
    return [F.linalg_gemm2(half, y, transpose_b=True)]


operator(
    "_linalg_inverse",
    aliases=("linalg_inverse",),
    inputs=("A",),
    infer=same_matrix("linalg_inverse"),
    ref=_inverse_ref,
    grad=_inverse_grad,
    samples=(sample(definite((3, 3))), sample((2, 4, 4))),
    doc="The inverse of each matrix. Raises MXNetError if one is singular.",
)


def _inverse_or_zero_ref(xp, a):
    singular = (xp.linalg.det(a) == 0)[..., None, None]
    eye = xp.eye(a.shape[-1], dtype=a.dtype)
    return xp.where(singular, 0, xp.linalg.inv(xp.where(singular, eye, a)))


operator(
    "_linalg_inverse_or_zero",
    inputs=("A",),
    infer=same_matrix("_linalg_inverse_or_zero"),
    ref=_inverse_or_zero_ref,
    grad=_inverse_grad,
    samples=(sample((3, 3)), sample((2, 4, 4)), sample((2, 1, 1))),
    doc="The inverse of each matrix, zeros for a singular one: gradients of determinants.",
)


def _scalars(op, n):
    def infer(ins):
        dtype = matrices(op, ins, square=True)
        return [Type(ins[0].shape[:-2] or (1,), dtype)] * n

    return infer


def _to_matrix(F, dy, a):
    return F.reshape_to(dy, shape=(*a.shape[:-2], 1, 1))


def _cofactors_ref(xp, a):
    if not xp.isfinite(a).all():  # LAPACK may look for their singular values for ever
        return xp.full_like(a, xp.nan)
    u, s, vh = xp.linalg.svd(a)
    one = xp.eye(a.shape[-1], dtype=bool)
    others = xp.where(one, 1, s[..., None, :]).prod(axis=-1)  # of each singular value: the product
    sign = xp.linalg.det(u) * xp.linalg.det(vh)
    return (u * (sign[..., None] * others)[..., None, :]) @ vh


def _cofactors_grad(F, dys, xs, ys):
    g, y = dys[0], ys[0]
    inverse = F.SwapAxis(F._linalg_inverse_or_zero(xs[0]), dim1=-2, dim2=-1)
    total = F.sum(F.elemwise_mul(g, y), axis=(-2, -1), keepdims=True)
    rest = F.linalg_gemm2(F.linalg_gemm2(inverse, g, transpose_b=True), y)
    return [F.elemwise_sub(F.broadcast_mul(inverse, total), rest)]


operator(
    "_linalg_cofactors",
    inputs=("A",),
    infer=same_matrix("_linalg_cofactors"),
    ref=_cofactors_ref,
    grad=_cofactors_grad,
    samples=(sample((3, 3)), sample((2, 4, 4)), sample((2, 1, 1))),
    doc=(
        "The derivative of the determinant of each matrix, a singular one too, whose own gradient"
        " counts as zero."
    ),
)


def _det_grad(F, dys, xs, ys):
    return [F.broadcast_mul(F._linalg_cofactors(xs[0]), _to_matrix(F, dys[0], xs[0]))]


operator(
    "_linalg_det",
    output_names=("output0",),
    aliases=("linalg_det",),
    inputs=("A",),
    infer=_scalars("linalg_det", 1),
    ref=lambda xp, a: xp.linalg.det(a).reshape(a.shape[:-2] or (1,)),
    grad=_det_grad,
    samples=(sample((3, 3)), sample((2, 2, 3, 3)), sample((1, 1))),
    doc="The determinant of each matrix; shape (1,) for one matrix.",
)


def _slogdet_grad(F, dys, xs, ys):
    inverse = F.SwapAxis(F._linalg_inverse_or_zero(xs[0]), dim1=-2, dim2=-1)
    return [F.broadcast_mul(_to_matrix(F, dys[1], xs[0]), inverse)]


operator(
    "_linalg_slogdet",
    aliases=("linalg_slogdet",),
    inputs=("A",),
    n_outputs=2,
    output_names=("output0", "output1"),
    infer=_scalars("linalg_slogdet", 2),
    ref=lambda xp, a: tuple(y.reshape(a.shape[:-2] or (1,)) for y in xp.linalg.slogdet(a)),
    grad=_slogdet_grad,
    samples=(sample((3, 3)), sample((2, 4, 4))),
    doc=(
        "Sign and logarithm of the absolute value of each determinant: 0 and -inf for a singular"
        " matrix, whose gradient is zero."
    ),
)


# Decompositions


def _syevd_infer(ins):
    dtype = matrices("linalg_syevd", ins, square=True)
    return [ins[0], Type(ins[0].shape[:-1], dtype)]


def _syevd_ref(xp, a):
    try:
        values, vectors = xp.linalg.eigh(a)
    except xp.linalg.LinAlgError:
        raise OperatorError("linalg_syevd", "the eigenvalues did not converge") from None
    if a.shape[-1] == 0:
        return a, values
    u = back(xp, vectors)
    largest = xp.take_along_axis(u, xp.abs(u).argmax(axis=-1)[..., None], axis=-1)
    return xp.where(largest < 0, -u, u), values


def _syevd_grad(F, dys, xs, ys):
    du, dvalues = dys
    u, values = ys
    n = xs[0].shape[-1]
    lead = xs[0].shape[:-2]
    across = F.reshape_to(values, shape=(*lead, 1, n))
    gap = F.broadcast_sub(F.reshape_to(values, shape=(*lead, n, 1)), across)
    equal = F._equal_scalar(gap, scalar=0.0)
    factor = F.elemwise_sub(F._rdiv_scalar(F.elemwise_add(gap, equal), scalar=1.0), equal)
    turned = F.elemwise_mul(F.linalg_gemm2(du, u, transpose_b=True), factor)
    inner = F._mul_scalar(F.elemwise_add(turned, F.SwapAxis(turned, dim1=-2, dim2=-1)), scalar=0.5)
    inner = F.elemwise_add(inner, F.linalg_makediag(dvalues))
    return [F.linalg_gemm2(F.linalg_gemm2(u, inner, transpose_a=True), u)]


operator(
    "_linalg_syevd",
    aliases=("linalg_syevd",),
    inputs=("A",),
    n_outputs=2,
    output_names=("output0", "output1"),
    infer=_syevd_infer,
    ref=_syevd_ref,
    grad=_syevd_grad,
    samples=(sample(definite((3, 3))), sample(definite((2, 4, 4)))),
    doc=(
        "Eigenvalues L of symmetric matrices in rising order and the eigenvectors as the rows of U:"
        " A = U^T . diag(L) . U. The largest element of each eigenvector is positive. Only the"
        " lower triangle of A is read; the gradient is that along symmetric changes of A, between"
        " equal eigenvalues zero."
    ),
)


def _gelqf_infer(ins):
    dtype = matrices("linalg_gelqf", ins)
    *lead, m, n = ins[0].shape
    if m > n:
        raise ShapeError(
            "linalg_gelqf", f"A must not have more rows than columns, got {ins[0].shape}"
        )
    return [ins[0], Type((*lead, m, m), dtype)]


def _gelqf_ref(xp, a):
    q, r = xp.linalg.qr(back(xp, a))
    return back(xp, q), back(xp, r)


def _gelqf_grad(F, dys, xs, ys):
    dq, dl = dys
    q, low = ys
    m = F.elemwise_sub(
        F.linalg_gemm2(low, F._linalg_triangle(dl), transpose_a=True),
        F.linalg_gemm2(dq, q, transpose_b=True),
    )
    inner = F.elemwise_add(dq, F.linalg_gemm2(symmetric_of_lower(F, m), q))
    return [F.linalg_trsm(low, inner, transpose=True)]


operator(
    "_linalg_gelqf",
    aliases=("linalg_gelqf",),
    inputs=("A",),
    n_outputs=2,
    output_names=("output0", "output1"),
    infer=_gelqf_infer,
    ref=_gelqf_ref,
    grad=_gelqf_grad,
    samples=(sample((3, 4)), sample((2, 3, 3)), sample((1, 4))),
    doc=(
        "Q with orthonormal rows and lower triangular L with A = L . Q, for matrices with at most"
        " as many rows as columns and full rank."
    ),
)


# Diagonals and triangles as vectors


def _diagonal_length(op, ins, offset):
    dtype = matrices(op, ins, square=True)
    n = ins[0].shape[-1] - abs(offset)
    if n < 1:
        raise ShapeError(
            op, f"offset must lie in the matrix, got A {ins[0].shape}, offset={offset}"
        )
    return n, dtype


def _extractdiag_infer(ins, offset):
    n, dtype = _diagonal_length("linalg_extractdiag", ins, offset)
    return [Type((*ins[0].shape[:-2], n), dtype)]


_OFFSET = Param("offset", "int", 0)
_LOWER = Param("lower", "bool", True)

operator(
    "_linalg_extractdiag",
    aliases=("linalg_extractdiag",),
    inputs=("A",),
    params=(_OFFSET,),
    infer=_extractdiag_infer,
    ref=lambda xp, a, *, offset: xp.diagonal(a, offset, -2, -1),
    grad=lambda F, dys, xs, ys, offset: [F.linalg_makediag(dys[0], offset=offset)],
    samples=(sample((3, 3)), sample((2, 3, 3), offset=1), sample((2, 2, 4, 4), offset=-2)),
    doc="The diagonal `offset` (0: the main one, > 0: above it) of each square matrix.",
)


def _vectors(op, ins):
    if not ins[0].shape:
        raise ShapeError(op, "A must have at least 1 dimension, got ()")
    return matrices(op, [Type((1, *ins[0].shape), ins[0].dtype)])


def _makediag_infer(ins, offset):
    dtype = _vectors("linalg_makediag", ins)
    n = ins[0].shape[-1] + abs(offset)
    return [Type((*ins[0].shape[:-1], n, n), dtype)]


def _makediag_ref(xp, a, *, offset):
    n = a.shape[-1]
    y = xp.zeros((*a.shape[:-1], n + abs(offset), n + abs(offset)), a.dtype)
    at = xp.arange(n)
    y[..., at + max(-offset, 0), at + max(offset, 0)] = a
    return y


operator(
    "_linalg_makediag",
    aliases=("linalg_makediag",),
    inputs=("A",),
    params=(_OFFSET,),
    infer=_makediag_infer,
    ref=_makediag_ref,
    grad=lambda F, dys, xs, ys, offset: [F.linalg_extractdiag(dys[0], offset=offset)],
    samples=(sample((3,)), sample((2, 3), offset=1), sample((2, 2, 2), offset=-2)),
    doc="Square matrices that are zero but for the diagonal `offset`, which is A's last axis.",
)


def _triangle_places(xp, n, offset, lower):
    """Row and column numbers of a triangle of an n x n matrix: a lower one row by row, an upper one
    column by column."""
    if offset < 0 or (offset == 0 and lower):
        return xp.tril_indices(n, offset)
    return xp.tril_indices(n, -offset)[::-1]


def _extracttrian_infer(ins, offset, lower):
    n, dtype = _diagonal_length("linalg_extracttrian", ins, offset)
    return [Type((*ins[0].shape[:-2], n * (n + 1) // 2), dtype)]


def _extracttrian_ref(xp, a, *, offset, lower):
    rows, columns = _triangle_places(xp, a.shape[-1], offset, lower)
    return a[..., rows, columns]


operator(
    "_linalg_extracttrian",
    aliases=("linalg_extracttrian",),
    inputs=("A",),
    params=(_OFFSET, _LOWER),
    infer=_extracttrian_infer,
    ref=_extracttrian_ref,
    grad=lambda F, dys, xs, ys, **attrs: [F.linalg_maketrian(dys[0], **attrs)],
    samples=(
        sample((3, 3)),
        sample((2, 3, 3), lower=False),
        sample((2, 3, 3), offset=1),
        sample((4, 4), offset=-2),
    ),
    doc=(
        "A triangle of each square matrix as a vector: the lower one row by row or the upper one"
        " column by column, or what lies above (offset > 0) or below (offset < 0) with the diagonal"
        " `offset`."
    ),
)


def _maketrian_infer(ins, offset, lower):
    dtype = _vectors("linalg_maketrian", ins)
    length = ins[0].shape[-1]
    n = int((2 * length) ** 0.5)
    if n * (n + 1) // 2 != length:
        raise ShapeError(
            "linalg_maketrian",
            f"A.shape[-1] must be n * (n + 1) / 2 for a whole n, got {ins[0].shape}",
        )
    n += abs(offset)
    return [Type((*ins[0].shape[:-1], n, n), dtype)]


def _maketrian_ref(xp, a, *, offset, lower):
    n = int((2 * a.shape[-1]) ** 0.5) + abs(offset)
    y = xp.zeros((*a.shape[:-1], n, n), a.dtype)
    rows, columns = _triangle_places(xp, n, offset, lower)
    y[..., rows, columns] = a
    return y


operator(
    "_linalg_maketrian",
    aliases=("linalg_maketrian",),
    inputs=("A",),
    params=(_OFFSET, _LOWER),
    infer=_maketrian_infer,
    ref=_maketrian_ref,
    grad=lambda F, dys, xs, ys, **attrs: [F.linalg_extracttrian(dys[0], **attrs)],
    samples=(
        sample((6,)),
        sample((2, 3), lower=False),
        sample((2, 3), offset=1),
        sample((1,), offset=-1),
    ),
    doc="Square matrices that are zero but for a triangle, given as linalg_extracttrian gives it.",
)


# Products of columns


def _khatri_infer(ins, num_args):
    dtype = same_dtype("khatri_rao", ins, [f"arg{i}" for i in range(len(ins))])
    if not ins or any(len(t.shape) != 2 or t.shape[1] != ins[0].shape[-1] for t in ins):
        raise ShapeError(
            "khatri_rao",
            "needs matrices with equal numbers of columns, got "
            f"{', '.join(str(t.shape) for t in ins) or 'none'}",
        )
    return [Type((prod(t.shape[0] for t in ins), ins[0].shape[1]), dtype)]


def _khatri_ref(xp, *xs, num_args):
    y = xs[0]
    for x in xs[1:]:
        y = (y[:, None] * x).reshape(y.shape[0] * x.shape[0], x.shape[1])
    return y


def _khatri_composed(F, *xs):
    y = xs[0]
    for x in xs[1:]:
        (m, columns), rows = y.shape, x.shape[0]
        y = F.broadcast_mul(
            F.reshape_to(y, shape=(m, 1, columns)), F.reshape_to(x, shape=(1, rows, columns))
        )
        y = F.reshape_to(y, shape=(m * rows, columns))
    return y


operator(
    "khatri_rao",
    inputs=("*args",),
    variadic_key="num_args",
    params=(Param("num_args", "int"),),
    infer=_khatri_infer,
    ref=_khatri_ref,
    grad=lambda F, dys, xs, ys, num_args: (
        dys if num_args == 1 else vjp(F, _khatri_composed, xs, dys)
    ),
    samples=(
        sample((2, 3), (4, 3), num_args=2),
        sample((2, 3), num_args=1),
        sample((2, 2), (1, 2), (3, 2), num_args=3),
    ),
    doc=(
        "Kronecker products of the columns of matrices: (m, k), (n, k) -> (m * n, k). Source:"
        " Khatri and Rao 1968."
    ),
)
