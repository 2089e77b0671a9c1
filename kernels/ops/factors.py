"""What NumPy's linear algebra needs beside linalg.py and matrix.py, in the last two axes of stacks:
systems of equations, singular values, eigenvalues of any matrix, the pseudo-inverse.

Gradients: Giles 2008, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation"; of the pseudo-inverse: Golub and Pereyra 1973, SIAM J. Numer. Anal. 10.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Type, Types, definite, operator, sample, values
from ..shapes import must_be
from .linalg import back, matrices

# ---- gradients' shared parts ---------------------------------------------------------------------


def dot(F: Any, a: Array, b: Array, **transposes: bool) -> Array:
    """Products of stacked matrices of one batch."""
    return F.linalg_gemm2(a, b, **transposes)


def transposed(F: Any, a: Array) -> Array:
    """Matrices transposed, in operators."""
    return F.SwapAxis(a, dim1=-2, dim2=-1)


def scale_columns(F: Any, a: Array, s: Array) -> Array:
    """a . diag(s)."""
    return F.broadcast_mul(a, F.expand_dims(s, axis=-2))


def scale_rows(F: Any, s: Array, a: Array) -> Array:
    """diag(s) . a."""
    return F.broadcast_mul(F.expand_dims(s, axis=-1), a)


def inverse_or_zero(F: Any, x: Array) -> Array:
    """1 / x, and 0 where x is 0."""
    is_zero = F._equal_scalar(x, scalar=0.0)
    return F.elemwise_sub(F._rdiv_scalar(F.elemwise_add(x, is_zero), scalar=1.0), is_zero)


def gaps(F: Any, x: Array) -> Array:
    """x[..., j] - x[..., i] at [..., i, j]."""
    return F.broadcast_sub(F.expand_dims(x, axis=-2), F.expand_dims(x, axis=-1))


# ---- systems of equations ------------------------------------------------------------------------


def _solve_infer(ins):
    matrices("_linalg_solve", ins, ("A", "B"), square=True)
    must_be("_linalg_solve", "B", ins[1], (*ins[0].shape[:-1], ins[1].shape[-1]))
    return [ins[1]]


def _solve_ref(xp, a, b):
    try:
        return xp.linalg.solve(a, b)
    except xp.linalg.LinAlgError:
        raise OperatorError("np.linalg.solve", "a must be invertible") from None


def _solve_grad(F, dys, xs, ys):
    db = F._linalg_solve(transposed(F, xs[0]), dys[0])
    return [F.negative(dot(F, db, ys[0], transpose_b=True)), db]


operator(
    "_linalg_solve",
    inputs=("A", "B"),
    infer=_solve_infer,
    ref=_solve_ref,
    grad=_solve_grad,
    samples=(sample(definite((3, 3)), (3, 2)), sample(definite((2, 3, 3)), (2, 3, 1))),
    doc="X with A . X = B for square A. Raises MXNetError if one is singular.",
)


# ---- singular values -----------------------------------------------------------------------------


def _thin(ins: Types, op: str) -> tuple[tuple[int, ...], int, int, str]:
    dtype = matrices(op, ins)
    *lead, m, n = ins[0].shape
    return tuple(lead), m, n, dtype


def _svd_infer(ins):
    lead, m, n, dtype = _thin(ins, "_linalg_svd")
    k = min(m, n)
    return [Type((*lead, m, k), dtype), Type((*lead, k), dtype), Type((*lead, k, n), dtype)]


def _converged(xp, op: str, a, compute: Callable):
    """What compute(a) gives from the singular values of a. LAPACK may look for those of infinite
    numbers for ever. Raises OperatorError where there are none."""
    if not xp.isfinite(a).all():
        raise OperatorError(
            op, "the singular values did not converge: a has values that are infinite or NaN"
        )
    try:
        return compute(a)
    except xp.linalg.LinAlgError:
        raise OperatorError(op, "the singular values did not converge") from None


def _svd_ref(xp, a):
    thin = partial(xp.linalg.svd, full_matrices=False)
    u, s, vh = _converged(xp, "np.linalg.svd", a, thin)
    if not vh.size:
        return u, s, vh
    largest = xp.take_along_axis(vh, xp.abs(vh).argmax(axis=-1)[..., None], axis=-1)
    sign = xp.where(largest < 0, -1, 1).astype(a.dtype)
    return u * back(xp, sign), s, vh * sign


def _outside(F: Any, g: Array, u: Array, s_inverse: Array) -> Array:
    """(1 - u . u^T) . g . diag(s_inverse): what leaves the space of u's columns."""
    inside = dot(F, u, dot(F, u, g, transpose_a=True))
    return scale_columns(F, F.elemwise_sub(g, inside), s_inverse)


def _svd_grad(F, dys, xs, ys):
    du, ds, dvh = dys
    u, s, vh = ys
    dv, v = transposed(F, dvh), transposed(F, vh)
    factor = inverse_or_zero(F, gaps(F, F.square(s)))

    def turned(x, dx):
        g = F.elemwise_mul(dot(F, x, dx, transpose_a=True), factor)
        return F.elemwise_add(g, transposed(F, g))

    inner = F.elemwise_add(scale_columns(F, turned(u, du), s), scale_rows(F, s, turned(v, dv)))
    inner = F.elemwise_add(inner, F.linalg_makediag(ds))
    grad = dot(F, dot(F, u, inner), vh)
    *_, m, n = xs[0].shape
    if m > n:
        grad = F.elemwise_add(grad, dot(F, _outside(F, du, u, inverse_or_zero(F, s)), vh))
    if m < n:
        left = _outside(F, dv, v, inverse_or_zero(F, s))
        grad = F.elemwise_add(grad, dot(F, u, left, transpose_b=True))
    return [grad]


operator(
    "_linalg_svd",
    inputs=("A",),
    n_outputs=3,
    infer=_svd_infer,
    ref=_svd_ref,
    grad=_svd_grad,
    samples=(sample((3, 3)), sample((2, 4, 3)), sample((3, 5)), sample((2, 1))),
    doc=(
        "U, S, V with A = U . diag(S) . V: columns of U and rows of V orthonormal, S falling. The"
        " largest element of each row of V is positive. Between equal singular values the gradient"
        " of U and V is zero."
    ),
)


def _singular_infer(ins):
    lead, m, n, dtype = _thin(ins, "_linalg_svdvals")
    return [Type((*lead, min(m, n)), dtype)]


def _singular_grad(F, dys, xs, ys):
    u, _, vh = F._linalg_svd(xs[0])
    return [dot(F, scale_columns(F, u, dys[0]), vh)]


operator(
    "_linalg_svdvals",
    inputs=("A",),
    infer=_singular_infer,
    ref=lambda xp, a: _converged(
        xp, "np.linalg.svdvals", a, partial(xp.linalg.svd, compute_uv=False)
    ),
    grad=_singular_grad,
    samples=(sample((3, 3)), sample((2, 4, 3)), sample((3, 5))),
    doc="The singular values of each matrix, falling.",
)


def _complement_infer(ins):
    lead, m, n, dtype = _thin(ins, "_linalg_complement")
    if m < n:
        rule = f"Q must not have more columns than rows, got {ins[0].shape}"
        raise ShapeError("_linalg_complement", rule)
    return [Type((*lead, m, m - n), dtype)]


def _complement_ref(xp, q):
    *lead, m, n = q.shape
    if n == 0:
        return xp.broadcast_to(xp.eye(m, dtype=q.dtype), (*lead, m, m))
    return xp.linalg.qr(q, mode="complete")[0][..., n:]


operator(
    "_linalg_complement",
    inputs=("Q",),
    infer=_complement_infer,
    ref=_complement_ref,
    # that of the complement that turns least, as far as its columns are determined at all
    grad=lambda F, dys, xs, ys: [
        F.negative(dot(F, ys[0], dot(F, dys[0], xs[0], transpose_a=True)))
    ],
    samples=(sample(values([[1.0], [0.0], [0.0]])),),
    doc="Orthonormal columns that complete those of Q to a square matrix.",
)


# ---- the pseudo-inverse --------------------------------------------------------------------------


def _pinv_infer(ins, hermitian):
    dtype = matrices("np.linalg.pinv", ins[:1], square=hermitian)
    *lead, m, n = ins[0].shape
    return [Type((*lead, n, m), dtype)]


def _pinv_ref(xp, a, rcond, *, hermitian):
    pinv = partial(xp.linalg.pinv, rcond=rcond, hermitian=hermitian)
    return _converged(xp, "np.linalg.pinv", a, pinv)


def _pinv_grad(F, dys, xs, ys, hermitian):
    a, y, g = xs[0], ys[0], dys[0]
    gt = transposed(F, g)
    # - y^T . g . y^T + (1 - a y) . g^T . y . y^T + y^T . y . g^T . (1 - y a)
    grad = F.negative(dot(F, dot(F, y, g, transpose_a=True), y, transpose_b=True))
    gy = dot(F, dot(F, gt, y), y, transpose_b=True)
    grad = F.elemwise_add(grad, F.elemwise_sub(gy, dot(F, a, dot(F, y, gy))))
    yg = dot(F, y, dot(F, y, gt), transpose_a=True)
    grad = F.elemwise_add(grad, F.elemwise_sub(yg, dot(F, dot(F, yg, y), a)))
    return [grad, None]


operator(
    "_linalg_pinv",
    inputs=("A", "rcond"),
    params=(Param("hermitian", "bool", False),),
    infer=_pinv_infer,
    ref=_pinv_ref,
    grad=_pinv_grad,
    samples=(
        sample((2, 4, 3), values([1e-15, 1e-15])),
        sample((1, 3, 4), values([1e-15])),
        sample(definite((1, 3, 3)), values([1e-15]), hermitian=True),
    ),
    doc=(
        "The pseudo-inverse of each matrix; singular values up to rcond times the largest count as"
        " zero. The gradient is that among matrices of equal rank."
    ),
)


# ---- eigenvalues ---------------------------------------------------------------------------------


def _eigenvalues_infer(ins):
    dtype = matrices("np.linalg.eigvalsh", ins, square=True)
    return [Type(ins[0].shape[:-1], dtype)]


def _eigvalsh_grad(F, dys, xs, ys):
    rows, _ = F._linalg_syevd(xs[0])
    return [dot(F, rows, scale_rows(F, dys[0], rows), transpose_a=True)]


operator(
    "_linalg_eigvalsh",
    inputs=("A",),
    infer=_eigenvalues_infer,
    ref=lambda xp, a: xp.linalg.eigvalsh(a),
    grad=_eigvalsh_grad,
    samples=(sample(definite((3, 3))), sample(definite((2, 4, 4)))),
    doc=(
        "The eigenvalues of symmetric matrices, rising. Only the lower triangle is read; the"
        " gradient is that along symmetric changes."
    ),
)


def _real(op: str, *parts: Any) -> tuple:
    for x in parts:
        if x.dtype.kind == "c" and abs(x.imag).max() > 0:
            raise OperatorError(
                op,
                f"all eigenvalues must be real, got one with imaginary part"
                f" {float(abs(x.imag).max()):g}; plait has no complex dtype",
                fix="eigh for symmetric matrices, or numpy.linalg.eig(a.asnumpy())",
            )
    return tuple([x.real for x in parts])


def _eig_infer(ins):
    dtype = matrices("np.linalg.eig", ins, square=True)
    return [Type(ins[0].shape[:-1], dtype), ins[0]]


def _eig_grad(F, dys, xs, ys):
    dw, dv = dys
    w, v = ys
    vv = dot(F, v, v, transpose_a=True)
    vg = dot(F, v, dv, transpose_a=True)
    # columns of v have norm 1
    n = xs[0].shape[-1]
    eye = F._eye(N=n, M=n, dtype=xs[0].dtype)
    along = F.sum(F.broadcast_mul(vg, eye), axis=-2)
    turned = F.elemwise_mul(
        F.elemwise_sub(vg, scale_columns(F, vv, along)), inverse_or_zero(F, gaps(F, w))
    )
    inner = F.elemwise_add(turned, F.linalg_makediag(dw))
    return [F._linalg_solve(transposed(F, v), dot(F, inner, v, transpose_b=True))]


_SPREAD = values([[1.0, 0.5, 0.2], [0.3, 3.0, 0.1], [0.2, -0.4, 6.0]])

operator(
    "_linalg_eig",
    inputs=("A",),
    n_outputs=2,
    infer=_eig_infer,
    ref=lambda xp, a: _real("np.linalg.eig", *xp.linalg.eig(a)),
    grad=_eig_grad,
    samples=(sample(definite((3, 3))), sample(_SPREAD)),
    doc=(
        "Eigenvalues and eigenvectors (columns of norm 1) of square matrices. Raises MXNetError if"
        " one is not real. Between equal eigenvalues the gradient is zero."
    ),
)


def _eigvals_grad(F, dys, xs, ys):
    _, v = F._linalg_eig(xs[0])
    inner = scale_rows(F, dys[0], transposed(F, v))
    return [F._linalg_solve(transposed(F, v), inner)]


operator(
    "_linalg_eigvals",
    inputs=("A",),
    infer=_eigenvalues_infer,
    ref=lambda xp, a: _real("np.linalg.eigvals", xp.linalg.eigvals(a))[0],
    grad=_eigvals_grad,
    samples=(sample(definite((3, 3))), sample(_SPREAD)),
    doc="The eigenvalues of square matrices. Raises MXNetError if one is not real.",
)
