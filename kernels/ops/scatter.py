"""Elements at places over several axes: gather_nd, its scatters, and rows copied by index."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..extent import is_unknown
from ..record import Param, Type, operator, sample, values
from ..shapes import same_dtype
from .index import inside


def _index_depth(op, shape, indices):
    if not indices or not 0 < indices[0] <= len(shape):
        raise ShapeError(
            op,
            f"indices must have shape (axes, ...) with one to data's {len(shape)} axes, got"
            f" {indices}",
        )
    return indices[0]


def _places(xp, op, indices, shape):
    """A tuple of index arrays, one for each leading axis."""
    return tuple(inside(xp, op, i, n) for i, n in zip(indices, shape))


def _scatter_infer(op):
    def infer(ins, shape):
        data, indices = ins[-2], ins[-1]
        depth = _index_depth(op, shape, indices.shape)
        if is_unknown(depth):
            return [Type(shape, data.dtype)]
        if data.shape != indices.shape[1:] + shape[depth:]:
            raise ShapeError(
                op,
                f"data must have shape {indices.shape[1:] + shape[depth:]} for indices"
                f" {indices.shape} and shape {shape}, got {data.shape}",
            )
        return [Type(shape, data.dtype)]

    return infer


def _gather_infer(ins):
    shape, indices = ins[0].shape, ins[1].shape
    return [Type(indices[1:] + shape[_index_depth("gather_nd", shape, indices) :], ins[0].dtype)]


def _scatter_ref(op, add):
    def ref(xp, data, indices, shape):
        out = xp.zeros(shape, dtype=data.dtype)
        places = _places(xp, op, indices, shape)
        if add:
            xp.add.at(out, places, data)
        else:
            out[places] = data
        return out

    return ref


def _set_infer(ins, shape):
    same_dtype("_scatter_set_nd", ins[:2], ("lhs", "rhs"))
    if ins[0].shape != shape:
        raise ShapeError(
            "_scatter_set_nd", f"lhs must have the given shape {shape}, got {ins[0].shape}"
        )
    return _scatter_infer("_scatter_set_nd")(ins, shape)


def _set_ref(xp, lhs, rhs, indices, shape):
    out = lhs.copy()
    out[_places(xp, "_scatter_set_nd", indices, shape)] = rhs
    return out


PLACES = values([[0, 2, -1], [1, 0, 2]])
operator(
    "gather_nd",
    aliases=("_npi_gather_nd", "_npx_gather_nd"),
    inputs=("data", "indices"),
    infer=_gather_infer,
    ref=lambda xp, data, indices: data[_places(xp, "gather_nd", indices, data.shape)],
    grad=lambda F, dys, xs, ys: [F._backward_gather_nd(dys[0], xs[1], shape=xs[0].shape), None],
    samples=(
        sample((3, 4), PLACES),
        sample((3, 4), values([[0, 2, 2]])),
        sample((3, 4), values([[[0, 1]], [[3, 3]]])),
    ),
    doc=(
        "data[indices[0], indices[1], ...]: indices.shape[1:] + the axes of data that are not"
        " indexed."
    ),
)
operator(
    "_backward_gather_nd",
    inputs=("data", "indices"),
    params=(Param("shape", "shape"),),
    infer=_scatter_infer("_backward_gather_nd"),
    ref=_scatter_ref("_backward_gather_nd", add=True),
    grad=lambda F, dys, xs, ys, shape: [F.gather_nd(dys[0], xs[1]), None],
    samples=(sample((3,), PLACES, shape=(3, 4)), sample((3, 2), values([[1, 1, 0]]), shape=(2, 2))),
    doc="data added up at indices in zeros of a shape.",
)
operator(
    "scatter_nd",
    inputs=("data", "indices"),
    params=(Param("shape", "shape"),),
    infer=_scatter_infer("scatter_nd"),
    fill=lambda ins, shape: [
        ins[0] or (ins[1] and Type(ins[1].shape[1:] + shape[ins[1].shape[0] :], ins[1].dtype)),
        ins[1],
    ],
    ref=_scatter_ref("scatter_nd", add=False),
    grad=lambda F, dys, xs, ys, shape: [F.gather_nd(dys[0], xs[1]), None],
    samples=(sample((3,), PLACES, shape=(3, 4)), sample((2, 2), values([[2, 0]]), shape=(3, 2))),
    doc="data at indices in zeros of a shape; of equal indices the last counts.",
)
operator(
    "_scatter_set_nd",
    aliases=("_npi_scatter_set_nd",),
    inputs=("lhs", "rhs", "indices"),
    inplace=((0, 0),),
    params=(Param("shape", "shape"),),
    infer=_set_infer,
    ref=_set_ref,
    grad=lambda F, dys, xs, ys, shape: [
        F._scatter_set_nd(dys[0], F.zeros_like(xs[1]), xs[2], shape=shape),
        F.gather_nd(dys[0], xs[2]),
        None,
    ],
    samples=(
        sample((3, 4), (3,), PLACES, shape=(3, 4)),
        sample((3, 2), (2, 2), values([[2, 0]]), shape=(3, 2)),
    ),
    doc="lhs with the elements at indices replaced by rhs; of equal indices the last counts.",
)


def _copy_rows_infer(ins):
    old, index, new = ins
    same_dtype("_contrib_index_copy", (old, new), ("old_tensor", "new_tensor"))
    if len(index.shape) != 1 or new.shape != index.shape + old.shape[1:]:
        raise ShapeError(
            "_contrib_index_copy",
            "new_tensor must hold a row of old_tensor for each index, got old_tensor "
            f"{old.shape}, index_vector {index.shape} and new_tensor {new.shape}",
        )
    return [old]


def _copy_rows_grad(F, dys, xs, ys):
    dy, rows = dys[0], F.reshape_to(xs[1], shape=(1, xs[1].shape[0]))
    return [
        F._scatter_set_nd(dy, F.zeros_like(xs[2]), rows, shape=dy.shape),
        None,
        F.gather_nd(dy, rows),
    ]


operator(
    "_contrib_index_copy",
    inputs=("old_tensor", "index_vector", "new_tensor"),
    infer=_copy_rows_infer,
    ref=lambda xp, old, index, new: _set_ref(xp, old, new, index.reshape(1, -1), old.shape),
    grad=_copy_rows_grad,
    inplace=((0, 0),),
    samples=(sample((3, 2), values([2, 0]), (2, 2)),),
    doc="old_tensor with the rows at index_vector replaced by new_tensor's.",
)
