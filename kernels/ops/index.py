"""Selection by indices: take, pick, gather, one_hot, Embedding, their scatters, and sorting.

Indices come in any dtype and are truncated to whole numbers; no gradient flows to them.
"""

from __future__ import annotations

from math import prod

from ...engine.error import DTypeError, IndexOutOfRange, OperatorError, ShapeError, compose
from ..extent import is_unknown
from ..record import LARGE, Param, Type, operator, sample, values
from ..shapes import must_be, one_axis, same_dtype

MODES = ("clip", "raise", "wrap")


def _whole(xp, indices):
    return indices.astype(xp.int64)


def _bounded(xp, op, indices, n, mode):
    """Indices inside [0, n): clipped, wrapped around, or checked."""
    indices = _whole(xp, indices)
    if mode == "wrap":
        return xp.remainder(indices, max(n, 1))
    if mode == "raise" and indices.size and bool(xp.any((indices < 0) | (indices >= n))):
        raise IndexOutOfRange(
            compose(
                f"{op}: indices must be in [0, {n}) with mode 'raise', got a range of "
                f"{int(indices.min())} to {int(indices.max())}",
                fix="use mode='clip' or mode='wrap'",
            )
        )
    return xp.clip(indices, 0, max(n - 1, 0))


def _inside(xp, op, indices, n):
    """Whole indices of an axis of size n. Negative ones count from the end; others are refused."""
    i = _whole(xp, indices)
    if i.size and bool(xp.any((i < -n) | (i >= n))):
        raise IndexOutOfRange(
            f"{op}: indices must be in [{-n}, {n}), got a range of {int(i.min())} to {int(i.max())}"
        )
    return i


def _refuse_empty(op, n, count):
    if n == 0 and count:
        raise ShapeError(op, "the indexed axis must not be empty")


# ---- take, Embedding -----------------------------------------------------------------------------
def _take_infer(ins, axis, mode):
    a, indices = ins
    axis = one_axis("take", axis, len(a.shape))
    if not a.shape:
        raise ShapeError("take", "a must have at least one axis, got ()")
    _refuse_empty("take", a.shape[axis], prod(indices.shape))
    return [Type(a.shape[:axis] + indices.shape + a.shape[axis + 1 :], a.dtype)]


def _take_ref(xp, a, indices, axis, mode):
    return xp.take(a, _bounded(xp, "take", indices, a.shape[axis], mode), axis=axis)


def _take_back_ref(xp, dy, indices, axis, mode, shape):
    axis = one_axis("take", axis, len(shape))
    rows = _bounded(xp, "take", indices, shape[axis], mode).reshape(-1)
    out = xp.zeros((shape[axis], *shape[:axis], *shape[axis + 1 :]), dtype=dy.dtype)
    dy = dy.reshape(*shape[:axis], rows.size, *shape[axis + 1 :])
    xp.add.at(out, rows, xp.moveaxis(dy, axis, 0))
    return xp.moveaxis(out, 0, axis)


TAKE = (Param("axis", "int", 0), Param("mode", MODES, "clip"))
INDICES = values([[0, 2, -1], [1, 0, 7]])
operator(
    "take",
    aliases=("_npi_take",),
    inputs=("a", "indices"),
    params=TAKE,
    infer=_take_infer,
    ref=_take_ref,
    grad=lambda F, dys, xs, ys, axis, mode: [
        F._take_grad(dys[0], xs[1], axis=axis, mode=mode, shape=xs[0].shape),
        None,
    ],
    samples=(
        sample((3, 4), INDICES),
        sample((3, 4), INDICES, axis=-1, mode="wrap"),
        sample((2, 3, 4), values([0, 2]), axis=1, mode="raise"),
    ),
    doc=(
        "Slices of a along an axis at indices: a.shape[:axis] + indices.shape + a.shape[axis + 1:]."
    ),
)


def _take_grad_infer(ins, axis, mode, shape):
    data, indices = ins
    at = one_axis("_take_grad", axis, len(shape))
    must_be("_take_grad", "data", data, (*shape[:at], *indices.shape, *shape[at + 1 :]))
    return [Type(shape, data.dtype)]


operator(
    "_take_grad",
    inputs=("data", "indices"),
    params=(*TAKE, Param("shape", "shape")),
    infer=_take_grad_infer,
    ref=_take_back_ref,
    grad=lambda F, dys, xs, ys, axis, mode, shape: [
        F.take(dys[0], xs[1], axis=axis, mode=mode),
        None,
    ],
    samples=(
        sample((2, 3, 4), INDICES, shape=(3, 4)),
        sample((2, 2), values([0, 0]), axis=1, shape=(2, 3)),
    ),
    doc="The gradient of take: data added up at indices in zeros of a shape.",
)


def _embedding_infer(ins, input_dim, output_dim, dtype, sparse_grad):
    data, weight = ins
    if weight.shape != (input_dim, output_dim):
        raise ShapeError(
            "Embedding",
            f"weight must have shape (input_dim, output_dim) = {(input_dim, output_dim)}, "
            f"got {weight.shape}",
        )
    _refuse_empty("Embedding", input_dim, prod(data.shape))
    return [Type((*data.shape, output_dim), weight.dtype)]


def _embedding_fill(ins, input_dim, output_dim, dtype, sparse_grad):
    return [ins[0], ins[1] or Type((input_dim, output_dim), dtype)]


for _name, _aliases, _doc in (
    (
        "Embedding",
        ("_npx_embedding", "_sparse_Embedding"),
        "Rows of weight (input_dim, output_dim) at data's indices, clipped: (*data.shape,"
        " output_dim).",
    ),
    (
        "_contrib_SparseEmbedding",
        (),
        "Embedding with a row_sparse gradient, in its older form: Embedding(sparse_grad=True) is"
        " the newer one. Source: MXNet 1.9.1 indexing_op.cc.",
    ),
):
    operator(
        _name,
        aliases=_aliases,
        inputs=("data", "weight"),
        params=(
            Param("input_dim", "int", limits=LARGE),
            Param("output_dim", "int"),
            Param("dtype", "dtype", "float32"),
            Param("sparse_grad", "bool", False),
        ),
        infer=_embedding_infer,
        fill=_embedding_fill,
        ref=lambda xp, data, weight, **_: _take_ref(xp, weight, data, 0, "clip"),
        grad=lambda F, dys, xs, ys, **_: [
            None,
            F._take_grad(dys[0], xs[0], axis=0, mode="clip", shape=xs[1].shape),
        ],
        samples=(
            sample(INDICES, (3, 4), input_dim=3, output_dim=4),
            sample(values([1, 1]), (2, 1), input_dim=2, output_dim=1),
        ),
        doc=_doc,
    )


# ---- pick ----------------------------------------------------------------------------------------
def _pick_axis(op, shape, index, axis):
    """The picked axis; `index` must have data's shape without it, or with size 1 there."""
    if axis is None:
        raise ShapeError(op, "axis must be a number, got None")
    axis = one_axis(op, axis, len(shape))
    if not shape:
        raise ShapeError(op, "data must have at least one axis, got ()")
    if index not in (
        shape[:axis] + shape[axis + 1 :] or (1,),
        shape[:axis] + (1,) + shape[axis + 1 :],
    ):
        raise ShapeError(
            op,
            f"index must have data's shape without axis {axis}, got data {shape} and index {index}",
        )
    _refuse_empty(op, shape[axis], prod(index))
    return axis


def _picked_shape(shape, axis, keepdims):
    kept = shape[:axis] + (1,) + shape[axis + 1 :]
    return kept if keepdims else shape[:axis] + shape[axis + 1 :] or (1,)


def _pick_infer(ins, axis, keepdims, mode):
    axis = _pick_axis("pick", ins[0].shape, ins[1].shape, axis)
    return [Type(_picked_shape(ins[0].shape, axis, keepdims), ins[0].dtype)]


def _pick_fill(ins, axis, **_):
    x = ins[0]
    if x is None or ins[1] is not None or axis is None:
        return ins
    return [x, Type(_picked_shape(x.shape, one_axis("pick", axis, len(x.shape)), False), x.dtype)]


def _pick_index(xp, shape, index, axis, mode):
    return _bounded(xp, "pick", index, shape[axis], mode).reshape(_picked_shape(shape, axis, True))


def _pick_ref(xp, x, index, axis, keepdims, mode):
    axis = one_axis("pick", axis, x.ndim)
    y = xp.take_along_axis(x, _pick_index(xp, x.shape, index, axis, mode), axis=axis)
    return y.reshape(_picked_shape(x.shape, axis, keepdims))


def _pick_back_ref(xp, dy, index, axis, mode, shape):
    axis = one_axis("pick", axis, len(shape))
    out = xp.zeros(shape, dtype=dy.dtype)
    xp.put_along_axis(
        out,
        _pick_index(xp, shape, index, axis, mode),
        dy.reshape(_picked_shape(shape, axis, True)),
        axis=axis,
    )
    return out


PICK_MODE = Param("mode", ("clip", "wrap"), "clip")
operator(
    "pick",
    aliases=("_npx_pick", "choose_element_0index"),
    inputs=("data", "index"),
    infer=_pick_infer,
    fill=_pick_fill,
    ref=_pick_ref,
    params=(Param("axis", "int?", -1), Param("keepdims", "bool", False), PICK_MODE),
    grad=lambda F, dys, xs, ys, axis, keepdims, mode: [
        F._pick_grad(dys[0], xs[1], axis=axis, mode=mode, shape=xs[0].shape),
        None,
    ],
    samples=(
        sample((3, 4), values([0, 5, -1])),
        sample((2, 3), values([[1, 0, 1]]), axis=0, keepdims=True),
        sample((3, 4), values([0, 5, -1]), mode="wrap"),
        sample((3,), values([1]), axis=0),
    ),
    doc=(
        "One element along an axis for each index: data's shape without the axis (size 1 with"
        " keepdims)."
    ),
)


def _pick_grad_infer(ins, axis, mode, shape):
    at = one_axis("_pick_grad", axis, len(shape))
    n_picks = prod(shape[:at] + shape[at + 1 :])
    for t, name in zip(ins, ("data", "index")):
        if prod(t.shape) != n_picks:
            raise ShapeError(
                "_pick_grad",
                f"{name} must have {n_picks} elements for shape {shape} without axis {axis}, "
                f"got {t.shape}",
            )
    return [Type(shape, ins[0].dtype)]


operator(
    "_pick_grad",
    inputs=("data", "index"),
    params=(Param("axis", "int", -1), PICK_MODE, Param("shape", "shape")),
    infer=_pick_grad_infer,
    ref=_pick_back_ref,
    grad=lambda F, dys, xs, ys, axis, mode, shape: [
        F.reshape_to(F.pick(dys[0], xs[1], axis=axis, mode=mode), shape=xs[0].shape),
        None,
    ],
    samples=(
        sample((3,), values([0, 5, -1]), shape=(3, 4)),
        sample((2, 1), values([1, 0]), axis=1, shape=(2, 3)),
    ),
    doc="The gradient of pick: data at the picked places, zeros elsewhere.",
)


def _batch_take_infer(ins):
    a, indices = ins
    if len(a.shape) != 2:
        raise ShapeError("batch_take", f"a must have two axes, got {a.shape}")
    if indices.dtype not in ("int32", "int64"):
        raise DTypeError(
            "batch_take",
            f"indices must be int32 or int64, got {indices.dtype}",
            fix="indices.astype('int32')",
        )
    _pick_axis("batch_take", a.shape, indices.shape, 1)
    return [Type(a.shape[:1], a.dtype)]


operator(
    "batch_take",
    inputs=("a", "indices"),
    infer=_batch_take_infer,
    ref=lambda xp, a, indices: _pick_ref(xp, a, indices, 1, False, "clip"),
    grad=lambda F, dys, xs, ys: [
        F._pick_grad(dys[0], xs[1], axis=1, mode="clip", shape=xs[0].shape),
        None,
    ],
    samples=(sample((3, 4), values([0, 5, -1], "int32")),),
    doc="a[i, indices[i]] for each row i: (rows,).",
)


# ---- gather and scatter over several axes --------------------------------------------------------
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
    return tuple(_inside(xp, op, i, n) for i, n in zip(indices, shape))


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


# ---- one_hot and index arithmetic ----------------------------------------------------------------
def _one_hot_infer(ins, depth, on_value, off_value, dtype):
    if depth < 0:
        raise OperatorError("one_hot", f"depth must not be negative, got {depth}")
    return [Type((*ins[0].shape, depth), dtype)]


operator(
    "one_hot",
    aliases=("_npx_one_hot",),
    inputs=("indices",),
    infer=_one_hot_infer,
    params=(
        Param("depth", "int", limits=LARGE),
        Param("on_value", "float", 1.0),
        Param("off_value", "float", 0.0),
        Param("dtype", "dtype", "float32"),
    ),
    ref=lambda xp, indices, depth, on_value, off_value, dtype: xp.where(
        _whole(xp, indices)[..., None] == xp.arange(depth), on_value, off_value
    ),
    samples=(
        sample(values([0, 2, 5, -1]), depth=3),
        sample(values([[1]], "int32"), depth=2, on_value=5, off_value=-1, dtype="int32"),
    ),
    doc="on_value at each index of a new last axis of size depth, off_value elsewhere.",
)


def _known_shape(op, shape):
    if not shape or any(n == 0 or n < (-1 if i == 0 else 1) for i, n in enumerate(shape)):
        raise OperatorError(
            op, f"shape must hold positive sizes (the first may be -1), got {shape}"
        )
    return shape


def _ravel_infer(ins, shape):
    shape, given = _known_shape("ravel_multi_index", shape), ins[0].shape
    if not given or given[0] != len(shape):
        raise ShapeError(
            "ravel_multi_index",
            f"data must have shape ({len(shape)}, ...) for shape {shape}, got {given}",
        )
    return [Type(given[1:], ins[0].dtype)]


def _ravel_ref(xp, data, shape):
    flat = 0
    for i, n in zip(_whole(xp, data), shape):
        flat = flat * n + i
    return flat


def _unravel_ref(xp, data, shape):
    rest, out = _whole(xp, data), []
    for n in reversed(shape[1:]):
        out.append(rest % n)
        rest = rest // n
    first = rest if shape[0] == -1 else rest % shape[0]
    return xp.stack([first, *reversed(out)], axis=0)


operator(
    "_ravel_multi_index",
    aliases=("ravel_multi_index",),
    params=(Param("shape", "shape?", None),),
    infer=_ravel_infer,
    ref=_ravel_ref,
    samples=(
        sample(values([[1, 2], [0, 3]]), shape=(3, 4)),
        sample(values([[1], [0]]), shape=(-1, 4)),
    ),
    doc="Positions in a flattened array of a shape, from one row of indices for each axis.",
)
operator(
    "_unravel_index",
    aliases=("unravel_index",),
    params=(Param("shape", "shape?", None),),
    infer=lambda ins, shape: [
        Type((len(_known_shape("unravel_index", shape)), *ins[0].shape), ins[0].dtype)
    ],
    ref=_unravel_ref,
    samples=(sample(values([4, 11]), shape=(3, 4)), sample(values([14]), shape=(-1, 4))),
    doc="One row of indices for each axis, from positions in a flattened array of a shape.",
)


# ---- sorting -------------------------------------------------------------------------------------
def _flat(xp, x, axis):
    return (
        (x.reshape(-1), 0) if axis is None or x.ndim == 0 else (x, one_axis("sort", axis, x.ndim))
    )


def _sorted_positions(xp, x, axis, is_ascend):
    """Stable; NaN last in both directions."""
    key = x if is_ascend else -x if x.dtype.kind == "f" else ~x
    return xp.argsort(key, axis=axis, stable=True)


def _sorted_shape(op, shape, axis):
    if axis is None:
        return (prod(shape),) if shape else (1,)
    one_axis(op, axis, len(shape))
    return shape or (1,)


def _sort_ref(xp, x, axis, is_ascend):
    x, axis = _flat(xp, x, axis)
    return xp.take_along_axis(x, _sorted_positions(xp, x, axis, is_ascend), axis=axis)


def _argsort_ref(xp, x, axis, is_ascend, dtype):
    x, axis = _flat(xp, x, axis)
    return _sorted_positions(xp, x, axis, is_ascend)


def _put_back(F, dy, positions, x, axis):
    """The gradient of choosing x's elements at positions along an axis (None: of the flattened
    x)."""
    shape = tuple(x.shape)
    if axis is None or not shape:
        return F.reshape_to(F._put_along_axis(dy, positions, axis=0, size=prod(shape)), shape=shape)
    return F._put_along_axis(
        dy, positions, axis=axis, size=shape[one_axis("sort", axis, len(shape))]
    )


DIRECTION = (Param("axis", "int?", -1), Param("is_ascend", "bool", True))
SORTS = (sample((3, 4)), sample((3, 4), axis=0, is_ascend=False), sample((2, 3), axis=None))
operator(
    "sort",
    output_names=("output0",),
    aliases=("_npi_sort",),
    params=DIRECTION,
    ref=_sort_ref,
    samples=SORTS,
    infer=lambda ins, axis, is_ascend: [
        Type(_sorted_shape("sort", ins[0].shape, axis), ins[0].dtype)
    ],
    grad=lambda F, dys, xs, ys, axis, is_ascend: [
        _put_back(
            F, dys[0], F.argsort(xs[0], axis=axis, is_ascend=is_ascend, dtype="int64"), xs[0], axis
        )
    ],
    doc="data sorted along an axis, or flattened where axis is None; NaN last.",
)
operator(
    "argsort",
    aliases=("_npi_argsort",),
    params=(*DIRECTION, Param("dtype", "dtype", "float32")),
    ref=_argsort_ref,
    infer=lambda ins, axis, is_ascend, dtype: [
        Type(_sorted_shape("argsort", ins[0].shape, axis), dtype)
    ],
    samples=(*SORTS, sample((3, 4), dtype="int32")),
    doc="The positions that sort data along an axis; stable, NaN last.",
)


def _along(op, data, indices, axis):
    axis = one_axis(op, axis, len(data))
    if len(data) != len(indices) or any(
        a != b for i, (a, b) in enumerate(zip(data, indices)) if i != axis
    ):
        raise ShapeError(
            op,
            f"data and indices must agree but for axis {axis}, got data {data} and indices"
            f" {indices}",
        )
    return axis


def _take_along_ref(xp, data, indices, axis):
    axis = one_axis("_take_along_axis", axis, data.ndim)
    return xp.take_along_axis(
        data, _inside(xp, "_take_along_axis", indices, data.shape[axis]), axis=axis
    )


def _put_infer(ins, axis, size):
    data, indices = ins
    if data.shape != indices.shape:
        raise ShapeError(
            "_put_along_axis",
            f"data and indices must have one shape, got {data.shape} and {indices.shape}",
        )
    axis = one_axis("_put_along_axis", axis, len(data.shape))
    return [Type(data.shape[:axis] + (size,) + data.shape[axis + 1 :], data.dtype)]


def _put_ref(xp, data, indices, axis, size):
    axis = one_axis("_put_along_axis", axis, data.ndim)
    out = xp.zeros(data.shape[:axis] + (size,) + data.shape[axis + 1 :], dtype=data.dtype)
    places = list(xp.indices(data.shape))
    places[axis] = _inside(xp, "_put_along_axis", indices, size)
    xp.add.at(out, tuple(places), data)
    return out


operator(
    "_take_along_axis",
    inputs=("data", "indices"),
    params=(Param("axis", "int", -1),),
    infer=lambda ins, axis: (
        [Type(ins[1].shape, ins[0].dtype)]
        if _along("_take_along_axis", ins[0].shape, ins[1].shape, axis) >= 0
        else []
    ),
    ref=_take_along_ref,
    grad=lambda F, dys, xs, ys, axis: [
        F._put_along_axis(dys[0], xs[1], axis=axis, size=xs[0].shape[axis]),
        None,
    ],
    samples=(sample((2, 3), values([[0, 2], [1, 1]])), sample((2, 3), values([[0, 1, 1]]), axis=0)),
    doc="data at indices along an axis; the other axes run with the indices'.",
)
operator(
    "_put_along_axis",
    inputs=("data", "indices"),
    params=(Param("axis", "int", -1), Param("size", "int", limits=LARGE)),
    infer=_put_infer,
    ref=_put_ref,
    grad=lambda F, dys, xs, ys, axis, size: [F._take_along_axis(dys[0], xs[1], axis=axis), None],
    samples=(
        sample((2, 2), values([[0, 2], [1, 1]]), size=3),
        sample((1, 3), values([[0, 1, 1]]), axis=0, size=2),
    ),
    doc="data added up at indices along an axis of a new size, zeros elsewhere.",
)


def _topk_count(op, shape, axis, k):
    n = prod(shape) if axis is None or not shape else shape[one_axis(op, axis, len(shape))]
    if k > n:
        raise ShapeError(op, f"k must be at most {n} for data {shape} and axis {axis}, got {k}")
    return k if k > 0 else n


def _topk_infer(ins, axis, k, ret_typ, is_ascend, dtype):
    shape = ins[0].shape
    k = _topk_count("topk", shape, axis, k)
    if ret_typ == "mask":
        return [ins[0]]
    out = list(_sorted_shape("topk", shape, axis))
    out[0 if axis is None else axis] = k
    value, position = Type(tuple(out), ins[0].dtype), Type(tuple(out), dtype)
    return {"value": [value], "indices": [position], "both": [value, position]}[ret_typ]


def _topk_ref(xp, x, axis, k, ret_typ, is_ascend, dtype):
    shape, k = x.shape, _topk_count("topk", x.shape, axis, k)
    x, axis = _flat(xp, x, axis)
    positions = xp.take(_sorted_positions(xp, x, axis, is_ascend), xp.arange(k), axis=axis)
    if ret_typ == "indices":
        return positions
    if ret_typ == "mask":
        out = xp.zeros(x.shape, dtype=x.dtype)
        xp.put_along_axis(out, positions, 1, axis=axis)
        return out.reshape(shape)
    value = xp.take_along_axis(x, positions, axis=axis)
    return (value, positions) if ret_typ == "both" else value


def _topk_grad(F, dys, xs, ys, axis, k, ret_typ, is_ascend, dtype):
    if ret_typ in ("indices", "mask") or dys[0] is None:
        return [None]
    positions = F.topk(xs[0], axis=axis, k=k, ret_typ="indices", is_ascend=is_ascend, dtype="int64")
    return [_put_back(F, dys[0], positions, xs[0], axis)]


TOPK = {"axis": 0, "k": 2}
operator(
    "topk",
    # of two outputs, inside MXNet, where values are asked for
    output_names=lambda ret_typ, **_: ("output0",) if ret_typ == "value" else (),
    aliases=("_npx_topk",),
    infer=_topk_infer,
    ref=_topk_ref,
    grad=_topk_grad,
    n_outputs=lambda ret_typ, **_: 2 if ret_typ == "both" else 1,
    params=(
        Param("axis", "int?", -1),
        Param("k", "int", 1),
        Param("ret_typ", ("both", "indices", "mask", "value"), "indices"),
        Param("is_ascend", "bool", False),
        Param("dtype", "dtype", "float32"),
    ),
    samples=(
        sample((3, 4)),
        sample((3, 4), ret_typ="value", is_ascend=True, **TOPK),
        sample((3, 4), ret_typ="both", k=2),
        sample((3, 4), ret_typ="mask", **TOPK),
        sample((2, 3), axis=None, k=3, ret_typ="value"),
        sample((2, 3), k=0, dtype="int32"),
    ),
    doc=(
        "The k largest (or smallest) elements along an axis: their positions, values, both, or a"
        " mask of 0 and 1."
    ),
)


# ---- cumulative sum ------------------------------------------------------------------------------
def _cumsum_infer(ins, axis, dtype):
    shape = ins[0].shape
    if axis is not None:
        one_axis("cumsum", axis, len(shape))
    return [Type((prod(shape),) if axis is None else shape, dtype or ins[0].dtype)]


def _cumsum_ref(xp, a, axis, dtype):
    flat = a.reshape(-1) if axis is None or a.ndim == 0 else a
    total = xp.cumsum(flat, axis=axis or 0, dtype=xp.float64 if a.dtype.kind == "f" else xp.int64)
    return total if axis is None else total.reshape(a.shape)


def _cumsum_grad(F, dys, xs, ys, axis, dtype):
    x, dy = xs[0], dys[0]
    if dy.dtype != x.dtype:
        dy = F.Cast(dy, dtype=x.dtype)
    if not x.shape:
        return [F.reshape_to(dy, shape=())]
    along = axis or 0
    dx = F.reverse(F._np_cumsum(F.reverse(dy, axis=along), axis=along), axis=along)
    return [F.reshape_to(dx, shape=x.shape) if axis is None else dx]


operator(
    "_np_cumsum",
    aliases=("cumsum",),
    inputs=("a",),
    params=(Param("axis", "int?", None), Param("dtype", "dtype?", None)),
    infer=_cumsum_infer,
    ref=_cumsum_ref,
    grad=_cumsum_grad,
    samples=(
        sample((3, 4), axis=0),
        sample((2, 3, 4), axis=-2),
        sample((2, 3)),
        sample((3,), dtype="float64"),
    ),
    doc=(
        "Sums of all elements up to each one along an axis; of the flattened array where axis is"
        " None."
    ),
)
