"""Selection by indices: take, pick, one_hot, Embedding, and index arithmetic.

Indices come in any dtype and are truncated to whole numbers; no gradient flows to them.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine.error import DTypeError, IndexOutOfRange, OperatorError, ShapeError, compose
from ..record import LARGE, Array, Param, Type, operator, sample, values
from ..shapes import must_be, one_axis
from ..traits import RowGradient, RowScatter

MODES = ("clip", "raise", "wrap")


def _whole(xp, indices):
    return indices.astype(xp.int64)


def _bounded(xp, op, indices, n, mode):
    """Indices inside [0, n): clipped, wrapped around, or checked."""
    indices = _whole(xp, indices)
    if mode == "wrap":
        return xp.remainder(indices, max(n, 1))
    if mode == "index":
        indices = inside(xp, op, indices, n)
        return xp.where(indices < 0, indices + n, indices)
    if mode == "raise" and hasattr(xp, "checked"):
        return xp.checked(indices, n)
    if mode == "raise" and indices.size and bool(xp.any((indices < 0) | (indices >= n))):
        raise IndexOutOfRange(
            compose(
                f"{op}: indices must be in [0, {n}) with mode 'raise', got a range of "
                f"{int(indices.min())} to {int(indices.max())}",
                fix="use mode='clip' or mode='wrap'",
            )
        )
    return xp.clip(indices, 0, max(n - 1, 0))


def inside(xp: Any, op: str, indices: Array, n: int) -> Array:
    """Whole indices of an axis of size n. Negative ones count from the end; others are refused."""
    i = _whole(xp, indices)
    if hasattr(xp, "checked"):
        return xp.checked(i, n, negative=True)
    if i.size and bool(xp.any((i < -n) | (i >= n))):
        raise IndexOutOfRange(
            f"{op}: indices must be in [{-n}, {n}), got a range of {int(i.min())} to {int(i.max())}"
        )
    return i


def numbered(xp: Any, op: str, name: str, indices: Array, n: int) -> Array:
    """Whole indices in [0, n); others are refused."""
    i = _whole(xp, indices)
    if hasattr(xp, "checked"):
        return xp.checked(i, n)
    if i.size and bool(xp.any((i < 0) | (i >= n))):
        raise IndexOutOfRange(
            f"{op}: {name} must be in [0, {n}), got a range of {int(i.min())} to {int(i.max())}"
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


# "index": as Python's indices, negative ones count from the end, others raise
TAKE = (Param("axis", "int", 0), Param("mode", (*MODES, "index"), "clip"))
INDICES = values([[0, 2, -1], [1, 0, 7]])
operator(
    "take",
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
        sample((2, 3, 4), values([0, -1]), axis=1, mode="index"),
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
    traits=(RowScatter(lambda axis, mode, **_: axis == 0 and mode == "clip"),),
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


for _name, _aliases, _by_rows, _doc in (
    (
        "Embedding",
        ("_npx_embedding", "_sparse_Embedding"),
        lambda stype, sparse_grad, **_: sparse_grad,
        "Rows of weight (input_dim, output_dim) at data's indices, clipped: (*data.shape,"
        " output_dim).",
    ),
    (
        "_contrib_SparseEmbedding",
        (),
        lambda stype, **_: True,
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
        traits=(RowGradient(_by_rows),),
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
    _refuse_empty("_pick_grad", shape[at], n_picks)
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


# ---- places of what is not 0 ---------------------------------------------------------------------


def _places_infer(ins, count, vector):
    axes = max(len(ins[0].shape), 1)
    if vector and axes > 1:
        raise ShapeError("_places", f"data must be a vector for places in one, got {ins[0].shape}")
    return [Type((count,) if vector else (axes, count), "int64")]


def _places_ref(xp, x, count, vector):
    found = xp.nonzero(xp.atleast_1d(x))
    return found[0] if vector else xp.stack(found)


operator(
    "_places",
    params=(Param("count", "int"), Param("vector", "bool", False)),
    infer=_places_infer,
    ref=_places_ref,
    samples=(
        sample(values([[0, 1, 0], [2, 0, 5]]), count=3),
        sample(values([0.0, -0.0]), count=0),
        sample(values([[[3.0]]]), count=1),
        sample(values([4.0, 0.0, 3.0]), count=2, vector=True),
    ),
    doc=(
        "Where data is not 0, which is at `count` places: a row of indices for each axis, int64;"
        " vector: of one axis, the row itself."
    ),
)
operator(
    "_count_nonzero",
    infer=lambda ins: [Type((1,), "int64")],
    ref=lambda xp, x: xp.asarray([xp.count_nonzero(x)]),
    samples=(sample(values([[0, 1, 0], [2, 0, float("nan")]])), sample(values([0.0, -0.0]))),
    doc="How many elements are not 0: int64 (1,).",
)


def places_now(call: Any, x: Array, vector: bool = False) -> Array:
    """Where an array is not 0: a row of indices for each axis, int64; vector: of one axis, the row.
    Waits for the values."""
    return call("_places", x, count=int(call("_count_nonzero", x).asscalar()), vector=vector)
