"""Reductions over axes: sums, products, extremes, norms, moments, positions of extremes, checks for
infinity."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import (
    COUNT,
    FLOATS,
    Array,
    Param,
    Sample,
    Shape,
    Type,
    dtype_name,
    operator,
    sample,
    uniform,
    values,
)
from ..shapes import many_axes
from ..traits import (
    Decomposition,
    Reduction,
)

TO_SCALAR = Param(
    "to_scalar",
    "bool",
    False,
    doc="shape () where all axes are reduced, as in NumPy",
    keyword=True,
)
AXES = (
    Param("axis", "shape?", None),
    Param("keepdims", "bool", False),
    Param("exclude", "bool", False),
    TO_SCALAR,
)
DTYPE = Param(
    "dtype", "dtype?", None, doc="of the result of whole numbers; None: data's", keyword=True
)


def reduced_shape(
    shape: Shape, axes: Collection[int], keepdims: bool, to_scalar: bool = False
) -> tuple[int, ...]:
    """The shape after a reduction: (1,) where every axis of an array is reduced, as MXNet has it;
    () with to_scalar."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    if keepdims or not shape:
        return kept
    return tuple(n for i, n in enumerate(shape) if i not in axes) or (() if to_scalar else (1,))


def spread(F: Any, dy: Array, shape: Shape, axes: Collection[int]) -> Array:
    """A gradient of reduced shape, repeated along the reduced axes."""
    dy = F.reshape_to(dy, shape=reduced_shape(shape, axes, True))
    if tuple(dy.shape) == tuple(shape):
        return dy
    # broadcast_to reads 0 as "keep", and nothing is there to repeat
    if 0 in shape:
        return F._zeros(shape=shape, dtype=dy.dtype)
    return F.broadcast_to(dy, shape=shape)


def along(F: Any, x: Array, name: str) -> Array:
    """A reduction over the last axis, which stays with size 1."""
    return getattr(F, name)(x, axis=(len(x.shape) - 1,), keepdims=True)


def _accumulator(xp, x):
    return xp.float64 if x.dtype.kind == "f" else xp.int64


def _clean(xp, x, filler):
    return xp.where(xp.isnan(x), filler, x) if x.dtype.kind == "f" else x


def reduction(
    name: str,
    ref: Callable[[Any, Array, Shape], Array],
    grad: Callable[[Any, Array, Array, Array, Shape], Array] | None,
    *,
    empty: bool = True,
    wide: bool = False,
    out: str | None = None,
    traits: tuple = (),
    aliases: tuple[str, ...] = (),
    samples: tuple[Sample, ...] | None = None,
    doc: str = "",
) -> None:
    """Registers a reduction. ref: (xp, x, axes) -> array with the axes kept at size 1.
    grad: (F, dy, x, y, axes) -> gradient; dy and y have x's rank, 1 at the reduced axes. empty:
        zero elements have a value. wide: of whole numbers the result may have another dtype. out:
        the dtype of the result, where it is one for all.
    """

    def infer(ins, axis, keepdims, exclude, to_scalar, dtype=None):
        own = ins[0].dtype
        if dtype is not None and {own, dtype} & set(FLOATS):
            raise OperatorError(name, f"dtype is for whole numbers, got {dtype} of {own}")
        shape = ins[0].shape
        axes = many_axes(name, axis, len(shape), exclude)
        if not empty and any(shape[a] == 0 for a in axes):
            raise ShapeError(
                name, f"the reduced axes must not be empty, got shape {shape} and axis {axis}"
            )
        return [Type(reduced_shape(shape, axes, keepdims, to_scalar), out or dtype or own)]

    def full_ref(xp, x, axis, keepdims, exclude, to_scalar=False, dtype=None):
        axes = many_axes(name, axis, x.ndim, exclude)
        # over no axis: of each element
        y = ref(xp, x, axes) if axes else ref(xp, x[None], (0,))[0]
        return y.reshape(reduced_shape(x.shape, axes, keepdims, to_scalar))

    def full_grad(F, dys, xs, ys, axis, keepdims, exclude, to_scalar, dtype=None):
        shape = tuple(xs[0].shape)
        if dtype is not None:  # whole numbers have no gradient
            return [None]
        axes = many_axes(name, axis, len(shape), exclude)
        assert grad is not None
        return [grad(F, dys[0], xs[0], ys[0], axes)]

    operator(
        name,
        aliases=aliases,
        params=(*AXES, DTYPE) if wide else AXES,
        traits=(Reduction(name), *traits),
        infer=infer,
        ref=full_ref,
        grad=full_grad if grad else None,
        doc=doc,
        samples=samples
        or (
            sample((3, 4)),
            sample((2, 3, 4), axis=1),
            sample((2, 3, 4), axis=(0, -1), keepdims=True),
            sample((2, 3, 4), axis=1, exclude=True),
            sample((3, 4), to_scalar=True),
        ),
    )


reduction(
    "sum",
    lambda xp, x, axes: xp.sum(x, axis=axes, keepdims=True, dtype=_accumulator(xp, x)),
    lambda F, dy, x, y, axes: spread(F, dy, x.shape, axes),
    wide=True,
    aliases=("_sparse_sum", "sum_axis"),
    doc="The sum over axes.",
)
reduction(
    "nansum",
    lambda xp, x, axes: xp.sum(
        _clean(xp, x, 0), axis=axes, keepdims=True, dtype=_accumulator(xp, x)
    ),
    lambda F, dy, x, y, axes: spread(F, dy, x.shape, axes) * F.broadcast_equal(x, x),
    samples=(sample(values([[1, float("nan"), 2], [3, 4, 5]])), sample((2, 3, 4), axis=1)),
    wide=True,
    doc="The sum over axes, NaN counted as 0.",
)


def _count(shape, axes) -> int:
    return max(prod(shape[a] for a in axes), 1)


def _mean(xp, x, axes):
    return xp.sum(x, axis=axes, keepdims=True, dtype=xp.float64) / float(
        prod(x.shape[a] for a in axes)
    )


reduction(
    "mean",
    lambda xp, x, axes: _mean(xp, x, axes),
    lambda F, dy, x, y, axes: spread(F, dy, x.shape, axes) / _count(x.shape, axes),
    aliases=("_sparse_mean",),
    doc="The mean over axes; of integers towards 0.",
)
reduction(
    "_square_sum",
    lambda xp, x, axes: xp.sum(x.astype(_accumulator(xp, x)) ** 2, axis=axes, keepdims=True),
    lambda F, dy, x, y, axes: spread(F, dy, x.shape, axes) * x * 2,
    doc="The sum of squares over axes.",
)


def _extreme_grad(F, dy, x, y, axes):
    return spread(F, dy, x.shape, axes) * F.broadcast_equal(x, spread(F, y, x.shape, axes))


reduction(
    "max",
    lambda xp, x, axes: xp.max(x, axis=axes, keepdims=True),
    _extreme_grad,
    empty=False,
    aliases=("max_axis",),
    doc="The maximum over axes; NaN if there is one. Equal maxima all take the gradient.",
)
reduction(
    "min",
    lambda xp, x, axes: xp.min(x, axis=axes, keepdims=True),
    _extreme_grad,
    empty=False,
    aliases=("min_axis",),
    doc="The minimum over axes; NaN if there is one. Equal minima all take the gradient.",
)


# ---- truth: of elements of any dtype, as they are ------------------------------------------------
def _truth(name: str, of_bools: str, doc: str) -> None:
    def rule(F, x, **attrs):
        if not prod(x.shape):
            return None
        return [getattr(F, of_bools)(F.Cast(x, dtype="bool"), **attrs)]

    reduction(
        f"_{name}",
        lambda xp, x, axes: getattr(xp, name)(x != 0, axis=axes, keepdims=True),
        None,
        out="bool",
        traits=(Decomposition(rule),),
        doc=doc,
    )


_truth("any", "max", "Over axes: is any element not 0? A bool.")
_truth("all", "min", "Over axes: is no element 0? A bool.")


# ---- products: the gradient is the product of all the others, right where there are zeros --------
def _others_ref(xp, x):
    if x.shape[-1] == 0:
        return x
    dtype = _accumulator(xp, x)
    one = xp.ones(x.shape[:-1] + (1,), dtype=dtype)
    before = xp.concatenate([one, xp.cumprod(x[..., :-1].astype(dtype), axis=-1)], axis=-1)
    after = xp.concatenate([one, xp.cumprod(x[..., :0:-1].astype(dtype), axis=-1)], axis=-1)[
        ..., ::-1
    ]
    return before * after


def _others_grad(F, dys, xs, ys):
    # d y_i / d x_k is the product without i and k: row i of `rows` is x with 1 at i, its diagonal
    # does not count
    x, n = xs[0], xs[0].shape[-1]
    lead = tuple(x.shape[:-1])
    eye = F.reshape_to(F._eye(N=n, dtype=x.dtype), shape=(1,) * len(lead) + (n, n))
    row = F.reshape_to(x, shape=(*lead, 1, n))
    rows = row * (1 - eye) + eye
    terms = F._prod_others(rows) * (1 - eye) * F.reshape_to(dys[0], shape=(*lead, n, 1))
    return [F.reshape_to(F.sum(terms, axis=(-2,)), shape=x.shape)]


operator(
    "_prod_others",
    infer=lambda ins: [ins[0]],
    ref=_others_ref,
    grad=_others_grad,
    samples=(sample((2, 4)), sample(uniform((3,), 0.5, 2)), sample((2, 1))),
    doc="Along the last axis: the product of all elements but this one.",
)


def _prod_grad(F, dy, x, y, axes):
    return spread(F, dy, x.shape, axes) * _others_over(F, x, axes)


def _nanprod_grad(F, dy, x, y, axes):
    number = F.broadcast_equal(x, x)
    return (
        spread(F, dy, x.shape, axes)
        * number
        * _others_over(F, F.where(number, x, F.ones_like(x)), axes)
    )


def _others_over(F, x, axes):
    shape = tuple(x.shape)
    if not axes or 0 in shape:
        return F.ones_like(x)
    order = tuple(a for a in range(len(shape)) if a not in axes) + axes
    moved = tuple(shape[a] for a in order)
    y = F.reshape_to(
        F.transpose(x, axes=order),
        shape=(*moved[: len(shape) - len(axes)], prod(shape[a] for a in axes)),
    )
    back = tuple(order.index(a) for a in range(len(shape)))
    return F.transpose(F.reshape_to(F._prod_others(y), shape=moved), axes=back)


reduction(
    "prod",
    lambda xp, x, axes: xp.prod(x, axis=axes, keepdims=True, dtype=_accumulator(xp, x)),
    _prod_grad,
    samples=(
        sample((3, 2)),
        sample((2, 3, 4), axis=1),
        sample((2, 3, 2), axis=(0, -1), keepdims=True),
        sample((2, 3, 4), axis=1, exclude=True),
    ),
    wide=True,
    doc="The product over axes.",
)
reduction(
    "nanprod",
    lambda xp, x, axes: xp.prod(
        _clean(xp, x, 1), axis=axes, keepdims=True, dtype=_accumulator(xp, x)
    ),
    _nanprod_grad,
    samples=(sample(values([[1, float("nan"), 2], [3, 4, 5]])), sample((2, 3, 2), axis=1)),
    wide=True,
    doc="The product over axes, NaN counted as 1.",
)


# ---- norm, moments -------------------------------------------------------------------------------
def _norm_infer(ins, ord, axis, out_dtype, keepdims):
    if ord not in (1, 2):
        raise OperatorError("norm", f"ord must be 1 or 2, got {ord}")
    shape = ins[0].shape
    return [
        Type(
            reduced_shape(shape, many_axes("norm", axis, len(shape)), keepdims),
            out_dtype or ins[0].dtype,
        )
    ]


def _norm_ref(xp, x, ord, axis, out_dtype, keepdims):
    axes = many_axes("norm", axis, x.ndim)
    x = x.astype(xp.float64)
    total = xp.sum(xp.abs(x) if ord == 1 else x * x, axis=axes)
    return (total if ord == 1 else xp.sqrt(total)).reshape(reduced_shape(x.shape, axes, keepdims))


def _norm_grad(F, dys, xs, ys, ord, axis, out_dtype, keepdims):
    x = xs[0]
    axes = many_axes("norm", axis, len(x.shape))
    if 0 in x.shape:
        return [F.zeros_like(x)]
    dtype = dtype_name(x.dtype)
    like_x = lambda v: F.Cast(v, dtype=dtype) if dtype_name(v.dtype) != dtype else v
    dy = spread(F, like_x(dys[0]), x.shape, axes)
    if ord == 1:
        return [dy * F.sign(x)]
    y = like_x(ys[0])
    y = y + F._equal_scalar(y, scalar=0.0)  # of zeros the gradient is zero
    return [dy * x / spread(F, y, x.shape, axes)]


operator(
    "norm",
    aliases=("_sparse_norm",),
    infer=_norm_infer,
    ref=_norm_ref,
    grad=_norm_grad,
    params=(
        Param("ord", "int", 2),
        Param("axis", "shape?", None),
        Param("out_dtype", "dtype?", None),
        Param("keepdims", "bool", False),
    ),
    samples=(
        sample((3, 4)),
        sample((2, 3, 4), ord=1, axis=1),
        sample((2, 3, 4), axis=(0, 2), keepdims=True),
        sample((3, 4), ord=1, out_dtype="float64"),
    ),
    doc="The sum of |x| (ord 1) or the root of the sum of squares (ord 2) over axes.",
)


def _moments_infer(ins, axes, keepdims):
    shape = ins[0].shape
    out = Type(reduced_shape(shape, many_axes("moments", axes, len(shape)), keepdims), ins[0].dtype)
    return [out, out]


def _moments_ref(xp, x, axes, keepdims):
    axes = many_axes("moments", axes, x.ndim)
    mean = _mean(xp, x, axes)
    shape = reduced_shape(x.shape, axes, keepdims)
    return mean.reshape(shape), _mean(xp, (x - mean) ** 2, axes).reshape(shape)


def _moments_body(F, x, axes, keepdims):
    along = many_axes("moments", axes, len(x.shape))
    if not x.shape or 0 in x.shape:
        return None
    mean = F.mean(x, axis=along, keepdims=True)
    var = F.mean(F.square(F.broadcast_sub(x, mean)), axis=along, keepdims=True)
    shape = reduced_shape(x.shape, along, keepdims)
    return [F.reshape_to(v, shape=shape) for v in (mean, var)]


def _moments_grad(F, dys, xs, ys, axes, keepdims):
    x = xs[0]
    axes = many_axes("moments", axes, len(x.shape))
    parts = []
    if dys[0] is not None:
        parts.append(spread(F, dys[0], x.shape, axes))
    if dys[1] is not None:
        parts.append(spread(F, dys[1], x.shape, axes) * (x - spread(F, ys[0], x.shape, axes)) * 2)
    total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return [total / _count(x.shape, axes)]


operator(
    "moments",
    params=(Param("axes", "shape?", None), Param("keepdims", "bool", False)),
    infer=_moments_infer,
    ref=_moments_ref,
    traits=(Decomposition(_moments_body),),
    grad=_moments_grad,
    n_outputs=2,
    output_names=("output0", "output1"),
    samples=(
        sample((3, 4), axes=(0,)),
        sample((2, 3, 4), axes=(0, 2), keepdims=True),
        sample((3,)),
    ),
    doc="The mean and the variance (over N, not N - 1) over axes.",
)


# ---- positions of extremes -----------------------------------------------------------------------
def _position_dtype(dtype):
    return "int64" if dtype == "bool" else dtype


def _position(name, pick, doc):
    def infer(ins, axis, keepdims, dtype=None, to_scalar=False):
        shape = ins[0].shape
        axes = many_axes(name, axis, len(shape))
        if any(shape[a] == 0 for a in axes):
            raise ShapeError(
                name, f"the reduced axis must not be empty, got shape {shape} and axis {axis}"
            )
        kept = reduced_shape(shape, axes, keepdims, to_scalar)
        return [Type(kept, dtype or _position_dtype(ins[0].dtype))]

    def ref(xp, x, axis, keepdims, dtype=None, to_scalar=False):
        axes = many_axes(name, axis, x.ndim)
        return pick(
            xp, x.reshape(-1) if axis is None else x, 0 if axis is None else axes[0]
        ).reshape(reduced_shape(x.shape, axes, keepdims, to_scalar))

    operator(
        name,
        params=(
            Param("axis", "int?", None),
            Param("keepdims", "bool", False),
            Param("dtype", "dtype?", None, doc="of the result; None: data's", keyword=True),
            TO_SCALAR,
        ),
        infer=infer,
        ref=ref,
        doc=doc,
        samples=(
            sample((3, 4)),
            sample((2, 3, 4), axis=1),
            sample((2, 3, 4), axis=-1, keepdims=True),
            sample((3, 4), dtype="int64", to_scalar=True),
        ),
    )


_position(
    "argmax",
    lambda xp, x, axis: xp.asarray(xp.argmax(x, axis=axis)),
    "The position of the first maximum, in data's dtype; over the flattened array where axis is"
    " None.",
)
_position(
    "argmin",
    lambda xp, x, axis: xp.asarray(xp.argmin(x, axis=axis)),
    "The position of the first minimum, in data's dtype; over the flattened array where axis is"
    " None.",
)


def _argmax_channel_infer(ins):
    shape = ins[0].shape
    if len(shape) < 2 or shape[1] == 0:
        raise ShapeError(
            "argmax_channel", f"data must have a channel axis 1 with elements, got {shape}"
        )
    return [Type(shape[:1] + shape[2:], _position_dtype(ins[0].dtype))]


operator(
    "argmax_channel",
    infer=_argmax_channel_infer,
    ref=lambda xp, x: xp.argmax(x, axis=1),
    samples=(sample((3, 4)), sample((2, 3, 4))),
    doc="The position of the first maximum along axis 1.",
)


def _finite_body(F, *xs, **_):
    """The sum of zero times each element is NaN where one is infinite or NaN."""
    if any(x.dtype not in ("float32", "float64", "float16") or 0 in x.shape for x in xs):
        return None
    sums = [F.sum(F._mul_scalar(x, scalar=0.0)) for x in xs]
    sums = [F.Cast(F.reshape_to(s, shape=(1,)), dtype="float32") for s in sums]
    total = F.sum(F.Concat(*sums, dim=0), axis=0, keepdims=True) if len(sums) > 1 else sums[0]
    return [F._equal_scalar(total, scalar=0.0)]


# ---- checks --------------------------------------------------------------------------------------
operator(
    "all_finite",
    params=(Param("init_output", "bool", True),),
    infer=lambda ins, init_output: [Type((1,), "float32")],
    ref=lambda xp, x, init_output: xp.all(xp.isfinite(x)).reshape(1),
    traits=(Decomposition(_finite_body),),
    samples=(sample((3, 4)), sample(values([1, float("inf")]))),
    doc="1 if every element is finite, else 0; shape (1,).",
)
operator(
    "multi_all_finite",
    inputs=("*data",),
    variadic_key="num_arrays",
    params=(Param("num_arrays", "int", 1, limits=COUNT), Param("init_output", "bool", True)),
    infer=lambda ins, num_arrays, init_output: [Type((1,), "float32")],
    ref=lambda xp, *xs, num_arrays, init_output: xp.asarray(
        [all(bool(xp.all(xp.isfinite(x))) for x in xs)]
    ),
    traits=(Decomposition(_finite_body),),
    samples=(
        sample((3, 4), (2,), num_arrays=2),
        sample((2,), values([1, float("nan")]), num_arrays=2),
    ),
    doc="1 if every element of every array is finite, else 0; shape (1,).",
)
