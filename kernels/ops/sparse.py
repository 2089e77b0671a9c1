"""What sparse arrays are computed with: operators on their dense parts, and those that MXNet has
for sparse storage alone.

Of the latter, the rules and kernels for sparse arrays stand in ndarray/sparse; here is what they
mean for dense ones.
"""

from __future__ import annotations

from ...engine.error import IndexOutOfRange, OperatorError, ShapeError
from ..record import Param, Type, operator, sample, values
from ..shapes import must_be, same_dtype
from ..spec import STYPES
from .index import inside


def _csr_dot_infer(ins, columns, transpose):
    data, indptr, indices, x = ins
    rows = indptr.shape[0] - 1 if len(indptr.shape) == 1 else -1
    if rows < 0 or data.shape != indices.shape or len(data.shape) != 1:
        raise ShapeError(
            "_csr_dot",
            "data and indices must have one axis of equal size and indptr one element more than"
            f" rows, got {data.shape}, {indices.shape} and {indptr.shape}",
        )
    inner, outer = (rows, columns) if transpose else (columns, rows)
    if not x.shape or x.shape[0] != inner:
        raise ShapeError(
            "dot",
            f"rhs.shape[0] must be {inner} for lhs {(rows, columns)}"
            f"{' transposed' if transpose else ''}, got rhs {x.shape}",
        )
    return [Type((outer, *x.shape[1:]), same_dtype("dot", (data, x), ("lhs", "rhs")))]


def _csr_dot_ref(xp, data, indptr, indices, x, *, columns, transpose):
    n_rows = indptr.shape[0] - 1
    used = indices[indptr[0] : indptr[-1]]
    if indptr[0] < 0 or indptr[-1] > data.shape[0] or (xp.diff(indptr) < 0).any():
        raise OperatorError(
            "dot", "indptr of a csr matrix must rise from 0 to the number of its elements"
        )
    if used.size and not (0 <= used.min() and used.max() < columns):
        raise IndexOutOfRange("dot: an index of a csr matrix is outside its columns")
    data, indices = data[indptr[0] : indptr[-1]], used
    rows = xp.repeat(xp.arange(n_rows), xp.diff(indptr))
    out = xp.zeros((columns if transpose else n_rows, *x.shape[1:]), dtype=x.dtype)
    to, of = (indices, rows) if transpose else (rows, indices)
    xp.add.at(out, to, data.reshape(-1, *(1,) * (x.ndim - 1)) * x[of])
    return out


_CSR = (values([1.0, -2, 3]), values([0, 2, 2, 3], "int64"), values([0, 3, 1], "int64"))
operator(
    "_csr_dot",
    inputs=("data", "indptr", "indices", "rhs"),
    params=(Param("columns", "int"), Param("transpose", "bool", False)),
    infer=_csr_dot_infer,
    ref=_csr_dot_ref,
    samples=(
        sample(*_CSR, (4, 5), columns=4),
        sample(*_CSR, (3, 70), columns=4, transpose=True),
        sample(*_CSR, (3,), columns=4, transpose=True),
    ),
    doc="The csr matrix of (data, indptr, indices), or its transpose, times a dense array.",
)


def _assign_rows_infer(ins):
    data, rows, indices = ins
    if len(indices.shape) != 1 or not data.shape or data.shape[0] == 0 < indices.shape[0]:
        raise ShapeError(
            "_assign_rows",
            f"indices must have one axis and data rows, got {indices.shape} and {data.shape}",
        )
    must_be("_assign_rows", "rows", rows, (*indices.shape, *data.shape[1:]))
    same_dtype("_assign_rows", (data, rows), ("data", "rows"))
    return [data]


def _assign_rows_ref(xp, data, rows, indices):
    out = data.copy()
    out[xp.clip(indices.astype(xp.int64), 0, max(len(data) - 1, 0))] = rows
    return out


operator(
    "_assign_rows",
    inputs=("data", "rows", "indices"),
    infer=_assign_rows_infer,
    ref=_assign_rows_ref,
    inplace=((0, 0),),
    samples=(sample((4, 3), (2, 3), values([2, 0], "int64")),),
    doc="data with the rows at indices (clipped) replaced.",
)


# ---- MXNet's operators ---------------------------------------------------------------------------


def _cast_storage_infer(ins, stype):
    (x,) = ins
    if stype == "row_sparse" and not x.shape:
        raise ShapeError("cast_storage", "a row_sparse array has at least one axis, got ()")
    if stype == "csr" and len(x.shape) != 2:
        raise ShapeError("cast_storage", f"a csr array has two axes, got the shape {x.shape}")
    return [x]


operator(
    "cast_storage",
    aliases=("_sparse_cast_storage",),
    params=(Param("stype", STYPES),),
    infer=_cast_storage_infer,
    ref=lambda xp, x, *, stype: x.copy(),
    grad=lambda F, dys, xs, ys, stype: [dys[0]],
    inplace=((0, 0),),
    samples=(sample((3, 4), stype="default"),),
    doc="The same values in another storage type: default, row_sparse or csr.",
)


def _retain_infer(ins):
    data, indices = ins
    if not data.shape or len(indices.shape) != 1:
        raise ShapeError(
            "retain", f"indices must have one axis, got data {data.shape}, indices {indices.shape}"
        )
    return [data]


def _retain_ref(xp, data, indices):
    out = xp.zeros_like(data)
    at = inside(xp, "_sparse_retain", indices, len(data))
    out[at] = data[at]
    return out


operator(
    "_sparse_retain",
    inputs=("data", "indices"),
    infer=_retain_infer,
    ref=_retain_ref,
    grad=lambda F, dys, xs, ys: [F._sparse_retain(dys[0], xs[1]), None],
    samples=(sample((4, 3), values([0, 2])),),
    doc="The rows at indices; all others become zero. Of row_sparse data only those are stored.",
)


def _nnz_infer(ins, axis):
    shape = ins[0].shape
    if len(shape) != 2 or axis not in (None, 0, 1):
        raise ShapeError(
            "_contrib_getnnz",
            f"data must be a matrix and axis 0, 1 or None, got {shape} and axis={axis}",
        )
    return [Type((1,) if axis is None else (shape[1 - axis],), "int64")]


def _nnz_ref(xp, x, *, axis):
    return xp.atleast_1d(xp.count_nonzero(x, axis=axis))


operator(
    "_contrib_getnnz",
    params=(Param("axis", "int?", None),),
    infer=_nnz_infer,
    ref=_nnz_ref,
    samples=(
        sample(values([[0, 1], [2, 0]])),
        sample(values([[0, 1], [2, 3]]), axis=1),
        sample(values([[0, 1], [2, 3]]), axis=0),
    ),
    doc="The number of stored (of a dense matrix: nonzero) elements, in all or along an axis.",
)


def _edge_id_infer(ins):
    data, u, v = ins
    if len(data.shape) != 2 or u.shape != v.shape or len(u.shape) != 1:
        raise ShapeError(
            "_contrib_edge_id",
            f"data must be a matrix, u and v vectors of equal size, got {data.shape}, {u.shape} and"
            f" {v.shape}",
        )
    return [Type(u.shape, data.dtype)]


def _edge_id_ref(xp, data, u, v):
    u, v = (inside(xp, "_contrib_edge_id", i, n) for i, n in zip((u, v), data.shape))
    found = data[u, v]
    return xp.where(found != 0, found, -1)


operator(
    "_contrib_edge_id",
    inputs=("data", "u", "v"),
    infer=_edge_id_infer,
    ref=_edge_id_ref,
    samples=(sample(values([[0, 1], [2, 0]]), values([0, 1]), values([1, 1])),),
    doc="data[u, v] for pairs of a graph's nodes, -1 where no element is stored.",
)
