"""Products of arrays: dot, matmul, inner, outer, tensordot, kron, cross, powers and chains of
matrices. Every sum of products is one `dot` or `batch_dot`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ....engine.error import DTypeError, OperatorError, ShapeError
from ...front import alike, as_float, broadcast, cast, dtype_of, front, reshaped
from ...record import Array, Param, sample
from ...shapes import one_axis
from .einsum import permuted, product, whole

AB = ("a", "b")


def turned(F: Any, x: Array) -> Array:
    """Matrices transposed."""
    return F.SwapAxis(x, dim1=-2, dim2=-1)


# ---- dot, matmul ---------------------------------------------------------------------------------


def _check(op: str, a: Array, i: int, b: Array, j: int) -> None:
    if a.shape[i] != b.shape[j]:
        raise ShapeError(
            op,
            f"a.shape[{i}] must equal b.shape[{j}], got a {tuple(a.shape)} and b {tuple(b.shape)}",
        )


def dot(F: Any, a: Array, b: Array) -> Array:
    """The last axis of a with the last but one of b."""
    a, b = alike(F, a, b)
    if not a.shape or not b.shape:
        return F.broadcast_mul(a, b)
    n = len(b.shape)
    _check("np.dot", a, -1, b, -2 if n > 1 else 0)
    if n > 2:
        b = F.transpose(b, axes=(n - 2, *range(n - 2), n - 1))
    return product(F, a, b)


def matmul(F: Any, a: Array, b: Array) -> Array:
    """Matrix products of the last two axes; the others broadcast."""
    a, b = alike(F, a, b)
    na, nb = len(a.shape), len(b.shape)
    if not na or not nb:
        raise ShapeError(
            "np.matmul",
            f"operands need an axis, got a {tuple(a.shape)} and b {tuple(b.shape)}",
            fix="a * b",
        )
    _check("np.matmul", a, -1, b, -2 if nb > 1 else 0)
    lead_a, lead_b = tuple(a.shape[:-2]), tuple(b.shape[:-2])
    if prod(lead_b) == 1 and len(lead_b) <= len(lead_a):  # one matrix or vector on the right
        return product(F, a, reshaped(F, b, tuple(b.shape[-2:])))
    if lead_a == lead_b:
        return whole(F, F.batch_dot, a, b)
    if na == 1:
        a = reshaped(F, a, (1, a.shape[0]))
    a, b = batched(F, "np.matmul", a, b)
    y = whole(F, F.batch_dot, a, b)
    return reshaped(F, y, (*y.shape[:-2], y.shape[-1])) if na == 1 else y


def batched(F: Any, op: str, a: Array, b: Array) -> list[Array]:
    """Stacks of matrices, with one batch shape."""
    lead = common_shape(op, tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return [broadcast(F, x, (*lead, *x.shape[-2:])) for x in (a, b)]


def common_shape(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The broadcast shape of two. Raises ShapeError."""
    n = max(len(a), len(b))
    pairs = list(zip((1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b))
    if any(p != q and 1 not in (p, q) for p, q in pairs):
        raise ShapeError(op, f"batch axes must be equal, or 1, got a {a} and b {b}")
    return tuple([q if p == 1 else p for p, q in pairs])


front(
    "_np_dot",
    dot,
    inputs=AB,
    ref=lambda xp, a, b: np.dot(a, b),
    samples=(
        sample((3, 4), (4, 5)),
        sample((4,), (4,)),
        sample((2, 3, 4), (4,)),
        sample((4,), (4, 3)),
        sample((2, 3), (4, 3, 2)),
        sample((), (2, 3)),
        sample((), ()),
        sample((0, 3), (3, 2)),
        sample((2, 0), (0, 3)),
    ),
    doc=(
        "The last axis of a times the last but one of b (the only one of a vector), summed; the"
        " product of scalars."
    ),
)

front(
    "_npi_matmul",
    matmul,
    inputs=AB,
    ref=lambda xp, a, b: np.matmul(a, b),
    samples=(
        sample((3, 4), (4, 5)),
        sample((4,), (4,)),
        sample((2, 3, 4), (4,)),
        sample((4,), (2, 4, 3)),
        sample((2, 3, 4), (2, 4, 5)),
        sample((2, 3, 4), (4, 5)),
        sample((3, 4), (2, 4, 5)),
        sample((2, 1, 3, 4), (5, 4, 2)),
        sample((0, 3, 4), (4, 2)),
    ),
    doc="Matrix products a @ b of the last two axes; the axes before them broadcast.",
)


def _inner(F: Any, a: Array, b: Array) -> Array:
    a, b = alike(F, a, b)
    if not a.shape or not b.shape:
        return F.broadcast_mul(a, b)
    _check("np.inner", a, -1, b, -1)
    return product(F, a, b, **({"transpose_b": True} if len(b.shape) > 1 else {}))


front(
    "_npi_inner",
    _inner,
    inputs=AB,
    ref=lambda xp, a, b: np.inner(a, b),
    samples=(
        sample((3,), (3,)),
        sample((2, 3), (4, 3)),
        sample((2, 3), (3,)),
        sample((3,), (2, 3)),
        sample((), (3,)),
    ),
    doc="The product of the last axes of a and b, summed.",
)


def _outer(F: Any, a: Array, b: Array) -> Array:
    a, b = alike(F, a, b)
    return F.broadcast_mul(reshaped(F, a, (prod(a.shape), 1)), reshaped(F, b, (1, prod(b.shape))))


front(
    "_npi_outer",
    _outer,
    inputs=AB,
    ref=lambda xp, a, b: np.outer(a, b),
    samples=(sample((3,), (4,)), sample((2, 3), (2,)), sample((), (3,))),
    doc="All products of an element of a and one of b, a matrix.",
)


def _vdot(F: Any, a: Array, b: Array) -> Array:
    a, b = alike(F, a, b)
    n, m = prod(a.shape), prod(b.shape)
    if n != m:
        raise ShapeError(
            "np.vdot",
            f"a and b must have equally many elements, got a {tuple(a.shape)} and"
            f" b {tuple(b.shape)}",
        )
    return product(F, reshaped(F, a, (n,)), reshaped(F, b, (n,)))


front(
    "_npi_vdot",
    _vdot,
    inputs=AB,
    ref=lambda xp, a, b: np.vdot(a, b),
    samples=(sample((3,), (3,)), sample((2, 3), (3, 2)), sample((), ())),
    doc="The sum of the products of all elements, in order.",
)


def _vecdot(F: Any, x1: Array, x2: Array, axis: int) -> Array:
    x1, x2 = alike(F, x1, x2)
    return F.sum(F.broadcast_mul(x1, x2), axis=axis, to_scalar=True)


front(
    "_npi_vecdot",
    _vecdot,
    inputs=("x1", "x2"),
    params=(Param("axis", "int", -1),),
    ref=lambda xp, x1, x2, axis: np.sum(x1 * x2, axis=axis, dtype=np.result_type(x1, x2)),
    samples=(sample((3,), (3,)), sample((2, 3), (2, 3), axis=0), sample((4, 2, 3), (2, 3))),
    doc="The sum of products along an axis; the others broadcast.",
)


# ---- tensordot -----------------------------------------------------------------------------------


def _tensordot(F: Any, a: Array, b: Array, over_a: Sequence[int], over_b: Sequence[int]) -> Array:
    a, b = alike(F, a, b)
    na, nb = len(a.shape), len(b.shape)
    over_a = [one_axis("np.tensordot", i, na) for i in over_a]
    over_b = [one_axis("np.tensordot", i, nb) for i in over_b]
    sizes = [[x.shape[i] for i in over] for x, over in ((a, over_a), (b, over_b))]
    if sizes[0] != sizes[1] or len(set(over_a)) < len(over_a) or len(set(over_b)) < len(over_b):
        raise ShapeError(
            "np.tensordot",
            f"axes {tuple(over_a)} of a {tuple(a.shape)} and {tuple(over_b)} of b {tuple(b.shape)}"
            " must be different ones of equal sizes",
        )
    free_a = [i for i in range(na) if i not in over_a]
    free_b = [i for i in range(nb) if i not in over_b]
    k, made = prod(sizes[0]), [*[a.shape[i] for i in free_a], *[b.shape[i] for i in free_b]]
    a_first = over_a == list(range(len(over_a))) and bool(free_a)  # a is transposed as it lies
    b_last = [*free_b, *over_b] == list(range(nb)) and bool(free_b)
    a = permuted(F, a, tuple([*over_a, *free_a] if a_first else [*free_a, *over_a]))
    b = permuted(F, b, tuple([*free_b, *over_b] if b_last else [*over_b, *free_b]))
    m, n = prod(made[: len(free_a)]), prod(made[len(free_a) :])
    a = reshaped(F, a, (k, m) if a_first else (m, k))
    b = reshaped(F, b, (n, k) if b_last else (k, n))
    y = whole(F, F.dot, a, b, transpose_a=a_first, transpose_b=b_last)
    return reshaped(F, y, tuple(made))


def _tensordot_count(F: Any, a: Array, b: Array, axes: int) -> Array:
    na = len(a.shape)
    if not 0 <= axes <= min(na, len(b.shape)):
        raise OperatorError(
            "np.tensordot",
            f"axes must be between 0 and the number of axes, got {axes} for a {tuple(a.shape)} and"
            f" b {tuple(b.shape)}",
        )
    return _tensordot(F, a, b, range(na - axes, na), range(axes))


def _tensordot_axes(
    F: Any, a: Array, b: Array, a_axes_summed: tuple[int, ...], b_axes_summed: tuple[int, ...]
) -> Array:
    return _tensordot(F, a, b, a_axes_summed, b_axes_summed)


front(
    "_npi_tensordot_int_axes",
    _tensordot_count,
    inputs=AB,
    params=(Param("axes", "int", 2),),
    ref=lambda xp, a, b, axes: np.tensordot(a, b, axes),
    samples=(
        sample((2, 3, 4), (3, 4, 5)),
        sample((2, 3), (3, 4), axes=1),
        sample((2,), (3,), axes=0),
        sample((), (2, 3), axes=0),
    ),
    doc="Products over the last axes of a and the first of b.",
)

front(
    "_npi_tensordot",
    _tensordot_axes,
    inputs=AB,
    params=(Param("a_axes_summed", "shape", ()), Param("b_axes_summed", "shape", ())),
    ref=lambda xp, a, b, a_axes_summed, b_axes_summed: np.tensordot(
        a, b, (a_axes_summed, b_axes_summed)
    ),
    samples=(
        sample((2, 3), (4, 3), a_axes_summed=(1,), b_axes_summed=(1,)),
        sample((3, 2), (3, 4), a_axes_summed=(0,), b_axes_summed=(0,)),
        sample((2, 3, 4), (4, 2, 5), a_axes_summed=(0, 2), b_axes_summed=(1, 0)),
        sample((2, 3, 4), (5, 2, 4), a_axes_summed=(0, -1), b_axes_summed=(1, 2)),
    ),
    doc="Products over given axes of a and b.",
)


# ---- kron, cross ---------------------------------------------------------------------------------


def _kron(F: Any, a: Array, b: Array) -> Array:
    a, b = alike(F, a, b)
    n = max(len(a.shape), len(b.shape))
    sa, sb = [(1,) * (n - len(x.shape)) + tuple(x.shape) for x in (a, b)]
    wide_a = tuple([m for size in sa for m in (size, 1)])
    wide_b = tuple([m for size in sb for m in (1, size)])
    y = F.broadcast_mul(reshaped(F, a, wide_a), reshaped(F, b, wide_b))
    return reshaped(F, y, tuple([p * q for p, q in zip(sa, sb)]))


front(
    "_npi_kron",
    _kron,
    inputs=AB,
    ref=lambda xp, a, b: np.kron(a, b),
    samples=(
        sample((2, 3), (3, 2)),
        sample((2,), (3, 2)),
        sample((2, 2, 2), (2,)),
        sample((), (2,)),
    ),
    doc="The Kronecker product: blocks of b, times the elements of a.",
)


def _cross(
    F: Any, a: Array, b: Array, axisa: int, axisb: int, axisc: int, axis: int | None
) -> Array:
    if axis is not None:
        axisa = axisb = axisc = axis
    xs = []
    a, b = alike(F, a, b)
    if dtype_of(a) == "bool":
        raise DTypeError("np.cross", "subtracts, which bools cannot", fix="a.astype('int32')")
    for x, at, name in zip((a, b), (axisa, axisb), AB):
        if not x.shape:
            raise ShapeError("np.cross", f"{name} needs an axis, got the shape ()")
        at = one_axis("np.cross", at, len(x.shape))
        if x.shape[at] not in (2, 3):
            raise ShapeError(
                "np.cross",
                f"vectors must have 2 or 3 elements, got {name} {tuple(x.shape)}, axis {at}",
            )
        ps = [F.slice_axis(x, axis=at, begin=i, end=i + 1) for i in range(x.shape[at])]
        xs.append([reshaped(F, p, (*x.shape[:at], *x.shape[at + 1 :])) for p in ps])
    pa, pb = xs

    def part(i: int, j: int) -> Array | None:
        """a_i b_j - a_j b_i; the third element of a vector of two is 0."""
        found = [
            F.broadcast_mul(pa[k], pb[m]) if k < len(pa) and m < len(pb) else None
            for k, m in ((i, j), (j, i))
        ]
        if found[0] is None:
            return F.negative(found[1])
        return found[0] if found[1] is None else F.elemwise_sub(*found)

    if len(pa) == len(pb) == 2:
        return part(0, 1)
    parts: list[Any] = [part(1, 2), part(2, 0), part(0, 1)]
    n = len(parts[0].shape)
    return F.stack(*parts, axis=one_axis("np.cross", axisc, n, 1))


front(
    "_npi_cross",
    _cross,
    inputs=AB,
    params=(
        Param("axisa", "int", -1),
        Param("axisb", "int", -1),
        Param("axisc", "int", -1),
        Param("axis", "int?", None),
    ),
    ref=lambda xp, a, b, **axes: _cross_of(a, b, **axes),
    samples=(
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((3, 4), (4, 3), axisa=0, axisc=0),
        sample((3, 4), (3, 4), axis=0),
        sample((2,), (3,)),
        sample((3,), (2,)),
        sample((4, 2), (4, 2)),
    ),
    doc="The cross product of vectors of 2 or 3 elements, which lie along axes.",
)


def _cross_of(a: Any, b: Any, axisa: int, axisb: int, axisc: int, axis: int | None) -> Any:
    """np.cross, and of vectors of two elements, too."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    flat = a.shape[-1] == b.shape[-1] == 2
    full = [
        np.concatenate([x, np.zeros((*x.shape[:-1], 3 - x.shape[-1]), x.dtype)], -1) for x in (a, b)
    ]
    y = np.cross(full[0], full[1])
    return y[..., 2] if flat else np.moveaxis(y, -1, axisc)


# ---- one matrix, many times ----------------------------------------------------------------------


def _square(op: str, a: Array) -> int:
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(op, f"a must hold square matrices, got {tuple(a.shape)}")
    return a.shape[-1]


def identity_like(F: Any, a: Array) -> Array:
    """Unit matrices of a's shape and dtype."""
    n = a.shape[-1]
    return F.broadcast_add(F.zeros_like(a), F._eye(N=n, M=n, dtype=dtype_of(a)))


def _matrix_power(F: Any, a: Array, n: int) -> Array:
    _square("np.linalg.matrix_power", a)
    if n < 0:
        a, n = F._npi_inv(as_float(F, a)), -n
    if n == 0:
        return identity_like(F, a)
    found = None
    while True:
        if n & 1:
            found = a if found is None else matmul(F, found, a)
        n >>= 1
        if not n:
            return F.identity(found) if found is a else found
        a = matmul(F, a, a)


front(
    "_npi_matrix_power",
    _matrix_power,
    inputs=("a",),
    params=(Param("n", "int"),),
    ref=lambda xp, a, n: np.linalg.matrix_power(a, n),
    samples=(
        sample((3, 3), n=5),
        sample((2, 3, 3), n=2),
        sample((3, 3), n=0),
        sample((3, 3), n=1),
        sample((2, 2), n=-3),
    ),
    doc="Square matrices to the power of a whole number; the inverse's for n < 0.",
)


def chain_order(shapes: Sequence[tuple[int, int]]) -> Any:
    """The cheapest bracketing of a product of matrices, as nested pairs of their numbers."""
    best: dict = {(i, i): (0, i) for i in range(len(shapes))}
    for length in range(1, len(shapes)):
        for i in range(len(shapes) - length):
            j = i + length
            options = []
            for k in range(i, j):
                size = shapes[i][0] * shapes[k][1] * shapes[j][1]
                options.append((best[i, k][0] + best[k + 1, j][0] + size, k))
            cost, k = min(options)
            best[i, j] = (cost, (best[i, k][1], best[k + 1, j][1]))
    return best[0, len(shapes) - 1][1]


def _multi_dot(F: Any, *data: Array, num_args: int) -> Array:
    xs = alike(F, *data)
    if num_args < 2:
        raise OperatorError("np.linalg.multi_dot", f"needs at least 2 arrays, got {num_args}")
    ndims = [len(x.shape) for x in xs]
    if not all(n == 2 for n in ndims[1:-1]) or not {ndims[0], ndims[-1]} <= {1, 2}:
        raise ShapeError(
            "np.linalg.multi_dot",
            f"needs matrices, first and last may be vectors, got {[tuple(x.shape) for x in xs]}",
        )
    if ndims[0] == 1:
        xs[0] = reshaped(F, xs[0], (1, xs[0].shape[0]))
    if ndims[-1] == 1:
        xs[-1] = reshaped(F, xs[-1], (xs[-1].shape[0], 1))

    def chain(pair: Any) -> Array:
        return xs[pair] if isinstance(pair, int) else dot(F, chain(pair[0]), chain(pair[1]))

    y = chain(chain_order([tuple(x.shape) for x in xs]))
    shape = tuple(y.shape)
    return reshaped(F, y, shape[ndims[0] == 1 : 2 - (ndims[-1] == 1)])


front(
    "_npi_multi_dot",
    _multi_dot,
    inputs=("*data",),
    variadic_key="num_args",
    params=(Param("num_args", "int"),),
    ref=lambda xp, *data, num_args: np.linalg.multi_dot(data),
    samples=(
        sample((2, 5), (5, 3), (3, 4), num_args=3),
        sample((2,), (2, 3), (3,), num_args=3),
        sample((6, 2), (2, 5), (5, 3), (3, 4), num_args=4),
    ),
    doc="The product of several matrices in the order that needs the fewest multiplications.",
)


# ---- diagonals, powers of a vector ---------------------------------------------------------------


def _trace(F: Any, data: Array, offset: int, axis1: int, axis2: int, dtype: str | None) -> Array:
    if len(data.shape) < 2:
        raise ShapeError("np.trace", f"a must have at least 2 axes, got {tuple(data.shape)}")
    n = len(data.shape)
    i, j = (one_axis("np.trace", axis, n) for axis in (axis1, axis2))
    if i == j:
        raise ShapeError("np.trace", f"axis1 and axis2 must differ, got {axis1} and {axis2}")
    x = cast(F, data, dtype or ("int64" if dtype_of(data) == "bool" else dtype_of(data)))
    if max(data.shape[i] - max(-offset, 0), 0) == 0 or max(data.shape[j] - max(offset, 0), 0) == 0:
        return F.sum(F.slice_axis(x, axis=i, begin=0, end=0), axis=(i, j), to_scalar=True)
    return F.sum(F.diag(x, k=offset, axis1=i, axis2=j), axis=-1, to_scalar=True)


front(
    "_np_trace",
    _trace,
    inputs=("data",),
    params=(
        Param("offset", "int", 0),
        Param("axis1", "int", 0),
        Param("axis2", "int", 1),
        Param("dtype", "dtype?", None),
    ),
    ref=lambda xp, data, offset, axis1, axis2, dtype: np.trace(
        data, offset, axis1, axis2, dtype or ("int64" if data.dtype == bool else data.dtype)
    ),
    samples=(
        sample((3, 3)),
        sample((3, 4), offset=1),
        sample((2, 3, 4), offset=-1, axis1=2, axis2=0),
        sample((2, 3), offset=5),
    ),
    doc="The sum of a diagonal over two axes. Of bools an int64; else of the dtype of a, or dtype.",
)


def _vander(F: Any, x: Array, N: int | None, increasing: bool) -> Array:
    if len(x.shape) != 1:
        raise ShapeError("np.vander", f"x must be a vector, got {tuple(x.shape)}")
    rows, n = x.shape[0], x.shape[0] if N is None else N
    if n < 0:
        raise OperatorError("np.vander", f"N must not be negative, got {n}")
    x = cast(F, x, "int64" if dtype_of(x) == "bool" else dtype_of(x))
    if n == 0 or rows == 0:
        return broadcast(
            F, F.slice_axis(reshaped(F, x, (rows, 1)), axis=1, begin=0, end=min(n, 1)), (rows, n)
        )
    power = reshaped(F, x, (rows, 1))
    found, width = F.ones_like(power), 1
    while width < n:  # twice as many columns: those there are, times x ** width
        found = F.Concat(found, F.broadcast_mul(found, power), dim=1)
        power, width = F.elemwise_mul(power, power), 2 * width
    if width > n:
        found = F.slice_axis(found, axis=1, begin=0, end=n)
    return found if increasing else F.reverse(found, axis=1)


front(
    "_npi_vander",
    _vander,
    inputs=("x",),
    params=(Param("N", "int?", None), Param("increasing", "bool", False)),
    ref=lambda xp, x, N, increasing: np.vander(x, N, increasing).astype(
        "int64" if x.dtype == bool else x.dtype
    ),
    samples=(
        sample((3,)),
        sample((4,), N=6),
        sample((3,), N=2, increasing=True),
        sample((2,), N=1),
    ),
    doc="Powers of x as columns, falling, or rising with increasing.",
)


def _polyval(F: Any, p: Array, x: Array) -> Array:
    p, x = alike(F, p, x)
    if len(p.shape) != 1:
        raise ShapeError("np.polyval", f"p must be a vector of coefficients, got {tuple(p.shape)}")
    y = None
    for i in range(p.shape[0]):
        c = reshaped(F, F.slice_axis(p, axis=0, begin=i, end=i + 1), (1,) * len(x.shape))
        y = F.broadcast_mul(F.ones_like(x), c) if y is None else F.broadcast_add(y * x, c)
    return F.zeros_like(x) if y is None else y


front(
    "_npi_polyval",
    _polyval,
    inputs=("p", "x"),
    ref=lambda xp, p, x: np.polyval(p, x).astype(np.result_type(p, x)),
    samples=(sample((3,), (2, 4)), sample((1,), (3,)), sample((5,), ()), sample((0,), (2,))),
    doc="The polynomial with coefficients p, that of the highest power first, at x.",
)
