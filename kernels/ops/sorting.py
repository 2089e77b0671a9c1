"""Sorting, the positions that sort, the k largest, and elements at positions along one axis."""

from __future__ import annotations

from math import prod

from ...engine.error import IndexOutOfRange, ShapeError
from ..record import LARGE, NATIVE_INTS, Param, Type, operator, sample, values
from ..shapes import one_axis
from ..traits import Decomposition
from .index import inside


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


def _ranked_infer(ins, axis, ranks):
    shape, axis = ins[0].shape, one_axis("_ranked", axis, len(ins[0].shape))
    if not shape or not ranks or list(ranks) != sorted(ranks):
        raise ShapeError("_ranked", f"needs an axis and ascending ranks, got {shape} and {ranks}")
    if not 0 <= ranks[0] <= ranks[-1] < shape[axis]:
        raise ShapeError("_ranked", f"ranks must be in [0, {shape[axis]}), got {ranks}")
    return [ins[0]._replace(shape=(*shape[:axis], len(ranks), *shape[axis + 1 :]))]


def _of_ranks(F, x, axis, ranks):
    """The slices of a sorted array at its ranks, as one array."""
    axis = one_axis("_ranked", axis, len(x.shape))
    parts = [F.slice_axis(x, axis=axis, begin=r, end=r + 1) for r in ranks]
    return F.Concat(*parts, dim=axis) if len(parts) > 1 else parts[0]


def _ranked_grad(F, dys, xs, ys, axis, ranks):
    order = F.argsort(xs[0], axis=axis, is_ascend=True, dtype="int64")
    return [_put_back(F, dys[0], _of_ranks(F, order, axis, ranks), xs[0], axis)]


operator(
    "_ranked",
    params=(Param("axis", "int", -1), Param("ranks", "shape")),
    infer=_ranked_infer,
    ref=lambda xp, x, axis, ranks: xp.take(
        _sort_ref(xp, x, axis, True), xp.asarray(ranks), axis=axis
    ),
    traits=(
        Decomposition(
            lambda F, x, axis, ranks: [
                _of_ranks(F, F.sort(x, axis=axis, is_ascend=True), axis, ranks)
            ]
        ),
    ),
    grad=_ranked_grad,
    samples=(
        sample((3, 4), ranks=(1,)),
        sample((5, 2), axis=0, ranks=(0, 2, 2, 4)),
        sample(values([3, float("nan"), -1, 2]), ranks=(0, 3)),
    ),
    doc="The elements of these ascending ranks along an axis: those of data sorted, NaN last.",
)
operator(
    "argsort",
    params=(*DIRECTION, Param("dtype", "dtype", "float32")),
    ref=_argsort_ref,
    infer=lambda ins, axis, is_ascend, dtype: [
        Type(_sorted_shape("argsort", ins[0].shape, axis), dtype)
    ],
    samples=(*SORTS, sample((3, 4), dtype="int32")),
    doc="The positions that sort data along an axis; stable, NaN last.",
)


def _search_infer(ins, side):
    a, v = ins
    if len(a.shape) != 1:
        raise ShapeError("_searchsorted", f"a must be a vector, got shape {a.shape}")
    return [Type(v.shape, "int64")]


operator(
    "_searchsorted",
    inputs=("a", "v"),
    params=(Param("side", ("left", "right"), "left"),),
    infer=_search_infer,
    ref=lambda xp, a, v, side: xp.searchsorted(a, v, side=side),
    samples=(
        sample(values([-1, 0, 0, 2]), (2, 3)),
        sample(values([-1, 0, 0, 2]), values([0, 5, -1]), side="right"),
    ),
    doc="Where elements of v belong in the sorted vector a; side: of equal ones.",
)


def _starts_infer(ins):
    if len(ins[0].shape) != 1:
        raise ShapeError("_starts", f"data must be a vector, got shape {ins[0].shape}")
    return [Type(ins[0].shape, "bool")]


def _starts_ref(xp, x):
    apart = (x[1:] != x[:-1]) & ((x[1:] == x[1:]) | (x[:-1] == x[:-1]))
    return xp.concatenate([xp.ones(x[:1].shape, bool), apart])


operator(
    "_starts",
    infer=_starts_infer,
    ref=_starts_ref,
    samples=(
        sample(values([-1, 0, 0, 2])),
        sample(values([1, float("nan"), float("nan")])),
        sample((0,)),
    ),
    doc="Where an element of a sorted vector is not the one before it; all NaN are equal.",
)


def _counts_infer(ins, size):
    if len(ins[0].shape) != 1 or ins[0].dtype not in NATIVE_INTS:
        raise ShapeError("_counts", f"data must be a vector of whole numbers, got {ins[0]}")
    return [Type((size,), "int64")]


def _counts_ref(xp, x, size):
    if x.size and (int(x.min()) < 0 or int(x.max()) >= size):
        raise IndexOutOfRange(f"_counts: numbers must be in [0, {size})")
    return xp.bincount(x, minlength=size)


operator(
    "_counts",
    params=(Param("size", "int", limits=LARGE),),
    infer=_counts_infer,
    ref=_counts_ref,
    samples=(
        sample(values([0, 2, 2], "int64"), size=4),
        sample(values([7, 0, 7, 7, 1], "int32"), size=2000),
    ),
    doc="How often each number in [0, size) occurs.",
)


def _extremes_infer(ins):
    if not prod(ins[0].shape) or ins[0].dtype not in NATIVE_INTS:
        raise ShapeError("_extremes", f"data must be whole numbers, at least one, got {ins[0]}")
    return [Type((2,), "int64")]


operator(
    "_extremes",
    infer=_extremes_infer,
    ref=lambda xp, x: xp.stack([x.min(), x.max()]).astype(xp.int64),
    samples=(sample(values([3, -2, 5, 1], "int32")), sample(values([[7]], "int64"))),
    doc="The least and the largest of whole numbers, in one pass.",
)


def _same_infer(ins):
    if ins[0] != ins[1]:
        raise ShapeError("_same", f"both arrays must have one shape and dtype, got {ins}")
    return [Type((1,), "bool")]


operator(
    "_same",
    inputs=("lhs", "rhs"),
    infer=_same_infer,
    ref=lambda xp, x, y: xp.asarray([xp.all(x == y)]),
    samples=(
        sample(values([[1.0, -0.0]]), values([[1.0, 0.0]])),
        sample(values([1, 2, 3], "int64"), values([1, 2, 4], "int64")),
        sample(values([1.0, float("nan")]), values([1.0, float("nan")])),
    ),
    doc="Are two arrays equal in all elements? bool (1,); it ends where they differ.",
)


def _among_infer(ins, invert):
    x, tests = ins
    if x.dtype != tests.dtype or x.dtype not in NATIVE_INTS or not prod(tests.shape):
        rule = f"data and tests must be whole numbers of one dtype, tests not empty, got {ins}"
        raise ShapeError("_among", rule)
    return [Type(x.shape, "bool")]


operator(
    "_among",
    inputs=("data", "tests"),
    params=(Param("invert", "bool", False),),
    infer=_among_infer,
    ref=lambda xp, x, tests, invert: xp.isin(x, tests, invert=invert),
    samples=(
        sample(values([[1, 2], [3, -4]], "int32"), values([3, 1, 9], "int32")),
        sample(
            values([5, 2**62, -(2**62), 0], "int64"),
            values([2**62, 5, -7], "int64"),
            invert=True,
        ),
    ),
    doc="Where whole numbers are among others; invert: where they are not.",
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
        data, inside(xp, "_take_along_axis", indices, data.shape[axis]), axis=axis
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
    places[axis] = inside(xp, "_put_along_axis", indices, size)
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
