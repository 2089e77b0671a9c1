"""Matrix products: dot, batch_dot, linalg_gemm2, FullyConnected."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...engine.error import ShapeError
from ..record import Array, Param, Type, Types, operator, sample
from ..shapes import one_axis, same_dtype
from ..traits import Matmul, RowGradient


def _dense_infer(ins, num_hidden, no_bias, flatten):
    x, w = ins[0], ins[1]
    if not x.shape:
        raise ShapeError("FullyConnected", "data must have at least 1 dimension, got ()")
    rows, k = ((x.shape[0],), prod(x.shape[1:])) if flatten else (x.shape[:-1], x.shape[-1])
    if w.shape != (num_hidden, k):
        raise ShapeError(
            "FullyConnected",
            f"weight must have shape (num_hidden, inputs) = {(num_hidden, k)}, "
            f"got data {x.shape} and weight {w.shape}",
            fix=(
                "transpose weight"
                if w.shape == (k, num_hidden)
                else (
                    f"set num_hidden={w.shape[0]}"
                    if w.shape[1:] == (k,)
                    else (
                        "set flatten=False"
                        if flatten and w.shape == (num_hidden, x.shape[-1])
                        else None
                    )
                )
            ),
        )
    if not no_bias and ins[2].shape != (num_hidden,):
        raise ShapeError(
            "FullyConnected",
            f"bias must have shape (num_hidden,) = ({num_hidden},), got {ins[2].shape}",
        )
    return [
        Type((*rows, num_hidden), same_dtype("FullyConnected", ins, ("data", "weight", "bias")))
    ]


def _dense_fill(ins, num_hidden, no_bias, flatten):
    ins = list(ins)
    if ins[0] is not None:
        x = ins[0]
        k = prod(x.shape[1:]) if flatten else x.shape[-1]
        ins[1] = ins[1] or Type((num_hidden, k), x.dtype)
        if not no_bias:
            ins[2] = ins[2] or Type((num_hidden,), x.dtype)
    return ins


def sum_dtype(x: Array) -> str | None:
    """The dtype in which products of 8-bit integers are summed; None: that of the operands."""
    return "int64" if str(x.dtype) in ("int8", "uint8") else None


def nearest(xp: Any, y: Array, like: Array) -> Array:
    """Sums of products in the dtype of the operands; 8-bit integers beyond it become its limits, as
    in MXNet's convolution."""
    if sum_dtype(like) is None:
        return y
    signed = str(like.dtype) == "int8"
    return xp.clip(y, -128 if signed else 0, 127 if signed else 255).astype(like.dtype)


def product(xp: Any, a: Array, b: Array) -> Array:
    """a @ b, of 8-bit integers not yet in their dtype."""
    dtype = sum_dtype(a)
    return a @ b if dtype is None else a.astype(dtype) @ b.astype(dtype)


def _dense_ref(xp, x, w, bias=None, *, num_hidden, no_bias, flatten):
    y = product(xp, x.reshape(x.shape[0], prod(x.shape[1:])) if flatten else x, w.T)
    return nearest(xp, y if no_bias else y + bias, x)


def _dense_grad(F, dys, xs, ys, num_hidden, no_bias, flatten):
    x, w = xs[0], xs[1]
    rows = prod(dys[0].shape[:-1])
    dy = F.reshape_to(dys[0], shape=(rows, num_hidden))
    x2 = F.reshape_to(x, shape=(rows, w.shape[1]))
    dx = F.reshape_to(F.dot(dy, w), shape=x.shape)
    return [dx, F.dot(dy, x2, transpose_a=True)] + ([] if no_bias else [F.sum(dy, axis=0)])


def _transposes(transpose_a, transpose_b, **_):
    return transpose_a, transpose_b


operator(
    "FullyConnected",
    aliases=("_npx_fully_connected", "_sparse_FullyConnected"),
    traits=(
        Matmul(lambda **_: (False, True), flattens=True, bias=lambda no_bias, **_: not no_bias),
    ),
    inputs=("data", "weight", "bias"),
    input_names=lambda num_hidden, no_bias, flatten: (
        ("data", "weight") + (() if no_bias else ("bias",))
    ),
    params=(
        Param("num_hidden", "int"),
        Param("no_bias", "bool", False),
        Param("flatten", "bool", True),
    ),
    infer=_dense_infer,
    fill=_dense_fill,
    ref=_dense_ref,
    grad=_dense_grad,
    samples=(
        sample((3, 4), (5, 4), (5,), num_hidden=5),
        sample((3, 2, 2), (5, 4), num_hidden=5, no_bias=True),
        sample((2, 3, 4), (5, 4), (5,), num_hidden=5, flatten=False),
    ),
    doc="x . weight^T + bias. data (N, ...), weight (num_hidden, inputs), bias (num_hidden,).",
)

TRANSPOSES = (Param("transpose_a", "bool", False), Param("transpose_b", "bool", False))
_MATMUL_PARAMS = (
    *TRANSPOSES,
    Param("forward_stype", ("None", "csr", "default", "row_sparse"), None),
)


def _split_dot(a, b, transpose_a, transpose_b):
    """Free axes and the contracted size of both operands: dot contracts a's last (first) with b's
    first (last) axis."""
    return ((a[1:], a[0]) if transpose_a else (a[:-1], a[-1])) + (
        (b[:-1], b[-1]) if transpose_b else (b[1:], b[0])
    )


def _check_stype(op, shape, forward_stype):
    if forward_stype == "csr" and len(shape) != 2:
        raise ShapeError(op, f"a csr array has two axes, got the shape {shape}")


def _of_vectors(to_scalar: bool) -> tuple[int, ...]:
    """The shape of the product of two vectors."""
    return () if to_scalar else (1,)


def _dot_infer(ins, transpose_a, transpose_b, forward_stype, to_scalar):
    a, b = ins[0].shape, ins[1].shape
    dtype = same_dtype("dot", ins, ("lhs", "rhs"))
    if not a or not b:
        raise ShapeError("dot", f"operands must have at least 1 dimension, got lhs {a} and rhs {b}")
    if len(a) == len(b) == 1 and (transpose_a or transpose_b):
        raise ShapeError("dot", f"vectors cannot be transposed, got lhs {a} and rhs {b}")
    left, k, right, k2 = _split_dot(a, b, transpose_a, transpose_b)
    if k != k2:
        rule = (
            f"lhs.shape[{0 if transpose_a else -1}] must equal"
            f" rhs.shape[{-1 if transpose_b else 0}]"
        )
        last, first = b[-1] if not transpose_b else b[0], a[0] if not transpose_a else a[-1]
        raise ShapeError(
            "dot",
            f"{rule}, got lhs {a} and rhs {b}",
            fix=(
                f"set transpose_b={not transpose_b}"
                if last == k
                else f"set transpose_a={not transpose_a}"
                if first == k2
                else None
            ),
        )
    shape = (left + right) or _of_vectors(to_scalar)
    _check_stype("dot", shape, forward_stype)
    return [Type(shape, dtype)]


def _dot_ref(xp, a, b, *, transpose_a, transpose_b, forward_stype, to_scalar):
    left, k, right, _ = _split_dot(a.shape, b.shape, transpose_a, transpose_b)
    a = a.reshape(k, prod(left)).T if transpose_a else a.reshape(prod(left), k)
    b = b.reshape(prod(right), k).T if transpose_b else b.reshape(k, prod(right))
    y = nearest(xp, product(xp, a, b), a)
    return y.reshape((left + right) or _of_vectors(to_scalar))


def _dot_grad(F, dys, xs, ys, transpose_a, transpose_b, forward_stype, to_scalar):
    a, b = xs
    left, k, right, _ = _split_dot(a.shape, b.shape, transpose_a, transpose_b)
    m, n = prod(left), prod(right)
    a2 = F.reshape_to(a, shape=(k, m) if transpose_a else (m, k))
    b2 = F.reshape_to(b, shape=(n, k) if transpose_b else (k, n))
    dy = F.reshape_to(dys[0], shape=(m, n))
    da = (
        F.dot(b2, dy, transpose_a=transpose_b, transpose_b=True)
        if transpose_a
        else F.dot(dy, b2, transpose_b=not transpose_b)
    )
    db = (
        F.dot(dy, a2, transpose_a=True, transpose_b=transpose_a)
        if transpose_b
        else F.dot(a2, dy, transpose_a=not transpose_a)
    )
    return [F.reshape_to(da, shape=a.shape), F.reshape_to(db, shape=b.shape)]


def _has_row_gradient(stype, transpose_a, transpose_b, **_):
    return stype == "csr" and not (transpose_a or transpose_b)


operator(
    "dot",
    aliases=("_sparse_dot",),
    traits=(Matmul(_transposes), RowGradient(_has_row_gradient)),
    inputs=("lhs", "rhs"),
    params=(
        *_MATMUL_PARAMS,
        Param("to_scalar", "bool", False, doc="shape () of two vectors, as in NumPy", keyword=True),
    ),
    infer=_dot_infer,
    ref=_dot_ref,
    grad=_dot_grad,
    samples=(
        sample((3, 4), (4, 5)),
        sample((4, 3), (4, 5), transpose_a=True),
        sample((3, 4), (5, 4), transpose_b=True),
        sample((4, 3), (5, 4), transpose_a=True, transpose_b=True),
        sample((4,), (4,)),
        sample((4,), (4,), to_scalar=True),
        sample((4,), (4, 3)),
        sample((2, 4), (4,)),
        sample((2, 3, 4), (4, 5)),
        sample((2, 3, 4), (2, 5, 3), transpose_a=True),
        sample((2, 3, 4), (5, 2, 4), transpose_b=True),
        sample((2, 3, 4), (5, 6, 2), transpose_a=True, transpose_b=True),
    ),
    doc=(
        "Product of the last axis of lhs with the first axis of rhs; transpose_a takes the first"
        " axis of lhs, transpose_b the last of rhs. Two vectors give shape (1,)."
    ),
)


def _matrices(op, ins, transpose_a, transpose_b, names):
    """(batch shape, rows, columns) of a product of stacked matrices in the last two axes."""
    a, b = ins[0].shape, ins[1].shape
    if len(a) != len(b) or len(a) < 2 or a[:-2] != b[:-2]:
        raise ShapeError(
            op,
            f"operands must have the same leading (batch) axes, got {names[0]} {a} and"
            f" {names[1]} {b}",
            fix="broadcast or reshape one of them first" if len(a) >= 2 and len(b) >= 2 else None,
        )
    m, k = a[:-3:-1] if transpose_a else a[-2:]
    k2, n = b[:-3:-1] if transpose_b else b[-2:]
    if k != k2:
        raise ShapeError(
            op,
            f"{names[0]}.shape[{-2 if transpose_a else -1}] must equal "
            f"{names[1]}.shape[{-1 if transpose_b else -2}], got {names[0]} {a} and {names[1]} {b}",
            fix=(
                f"set transpose_b={not transpose_b}"
                if n == k
                else f"set transpose_a={not transpose_a}"
                if m == k2
                else None
            ),
        )
    return a[:-2], m, n


def _batch_dot_infer(ins, transpose_a, transpose_b, forward_stype):
    if min(len(ins[0].shape), len(ins[1].shape)) < 3:
        raise ShapeError(
            "batch_dot",
            f"operands must have at least 3 dimensions, got lhs {ins[0].shape} and "
            f"rhs {ins[1].shape}",
            fix="use dot for plain matrices",
        )
    batch, m, n = _matrices("batch_dot", ins, transpose_a, transpose_b, ("lhs", "rhs"))
    _check_stype("batch_dot", (*batch, m, n), forward_stype)
    return [Type((*batch, m, n), same_dtype("batch_dot", ins, ("lhs", "rhs")))]


def _batch_dot_ref(xp, a, b, *, transpose_a, transpose_b, forward_stype):
    a = xp.swapaxes(a, -1, -2) if transpose_a else a
    b = xp.swapaxes(b, -1, -2) if transpose_b else b
    return nearest(xp, product(xp, a, b), a)


def matmul_grads(
    mul: Callable[..., Array], a: Array, b: Array, dy: Array, transpose_a: bool, transpose_b: bool
) -> list[Array]:
    """Gradients of a product of stacked matrices; mul(a, b, transpose_a=, transpose_b=) is that
    product."""
    da = (
        mul(b, dy, transpose_a=transpose_b, transpose_b=True)
        if transpose_a
        else mul(dy, b, transpose_a=False, transpose_b=not transpose_b)
    )
    db = (
        mul(dy, a, transpose_a=True, transpose_b=transpose_a)
        if transpose_b
        else mul(a, dy, transpose_a=not transpose_a, transpose_b=False)
    )
    return [da, db]


def _batch_dot_grad(F, dys, xs, ys, transpose_a, transpose_b, forward_stype):
    return matmul_grads(F.batch_dot, xs[0], xs[1], dys[0], transpose_a, transpose_b)


_STACKED: tuple = (
    ((2, 3, 4), (2, 4, 5), {}),
    ((2, 4, 3), (2, 4, 5), {"transpose_a": True}),
    ((2, 3, 4), (2, 5, 4), {"transpose_b": True}),
    ((2, 2, 4, 3), (2, 2, 5, 4), {"transpose_a": True, "transpose_b": True}),
)

operator(
    "batch_dot",
    aliases=("_npx_batch_dot",),
    traits=(Matmul(_transposes, stacked=True),),
    inputs=("lhs", "rhs"),
    params=_MATMUL_PARAMS,
    infer=_batch_dot_infer,
    ref=_batch_dot_ref,
    grad=_batch_dot_grad,
    samples=tuple(sample(a, b, **kw) for a, b, kw in _STACKED),
    doc=(
        "Matrix products of stacks: (..., m, k) . (..., k, n) -> (..., m, n); leading axes are"
        " equal."
    ),
)


def gemm2_type(op: str, ins: Types, transpose_a: bool, transpose_b: bool, axis: int) -> Type:
    """The type of a product of stacked matrices in the axes (axis, -1). Raises OperatorError."""
    a, b = ins[0].shape, ins[1].shape
    dtype = same_dtype(op, ins, ("A", "B"))
    if len(a) < 2 or len(a) != len(b):
        raise ShapeError(
            op,
            f"A and B must have the same number (at least 2) of dimensions, got A {a} and B {b}",
        )
    at = one_axis(op, axis, len(a))
    if at == len(a) - 1:
        raise ShapeError(
            op,
            f"axis holds the rows and cannot be the last axis, got axis={axis} for A {a}",
        )
    rows_last = [Type((*t[:at], *t[at + 1 : -1], t[at], t[-1]), dtype) for t in (a, b)]
    batch, m, n = _matrices(op, rows_last, transpose_a, transpose_b, ("A", "B"))
    return Type((*batch[:at], m, *batch[at:], n), dtype)


def _gemm2_infer(ins, transpose_a, transpose_b, alpha, axis):
    return [gemm2_type("linalg_gemm2", ins, transpose_a, transpose_b, axis)]


def _gemm2_ref(xp, a, b, *, transpose_a, transpose_b, alpha, axis):
    a, b = xp.moveaxis(a, axis, -2), xp.moveaxis(b, axis, -2)
    y = _batch_dot_ref(
        xp, a, b, transpose_a=transpose_a, transpose_b=transpose_b, forward_stype=None
    )
    return xp.moveaxis(alpha * y, -2, axis)


def _gemm2_grad(F, dys, xs, ys, transpose_a, transpose_b, alpha, axis):
    def mul(a, b, **transposes):
        return F.linalg_gemm2(a, b, alpha=alpha, axis=axis, **transposes)

    return matmul_grads(mul, xs[0], xs[1], dys[0], transpose_a, transpose_b)


operator(
    "_linalg_gemm2",
    aliases=("linalg_gemm2",),
    inputs=("A", "B"),
    params=(*TRANSPOSES, Param("alpha", "float", 1.0), Param("axis", "int", -2)),
    infer=_gemm2_infer,
    ref=_gemm2_ref,
    grad=_gemm2_grad,
    samples=(
        *(sample(a, b, **kw) for a, b, kw in _STACKED),
        sample((3, 4), (4, 5), alpha=2.5),
        sample((3, 2, 4), (4, 2, 5), axis=0, alpha=0.5),
        sample((4, 2, 3), (5, 2, 4), axis=0, transpose_a=True, transpose_b=True),
    ),
    doc="alpha * A . B for matrices in the axes (axis, -1); the other axes are a batch.",
)
