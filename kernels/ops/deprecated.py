"""Deprecated operators, which old networks and scripts still call: relatives of BatchNorm
(BatchNormWithReLU, SyncBatchNorm, BatchNorm_v1), Pooling_v1, IdentityAttachKLSparseReg, and those
of MXNet's first years. (Convolution_v1 is an alias of Convolution.)"""

from __future__ import annotations

from math import prod

from ...engine.error import OperatorError, ShapeError
from ..record import REACH, Param, Type, ints, lookup, operator, sample, uniform, values
from ..shapes import must_be
from ..traits import (
    Decomposition,
    Eager,
    Rematerializes,
)
from . import norm  # noqa: F401  (its record is looked up below)
from .index import numbered, places_now

# ---- BatchNorm's relatives -----------------------------------------------------------------------

_NORM = lookup("BatchNorm")
_STATE = {"axis": 1, "cudnn_off": False, "min_calib_range": None, "max_calib_range": None}
_STATS = (
    ("eps", "float", 1e-3),
    ("momentum", "float", 0.9),
    ("fix_gamma", "bool", True),
    ("use_global_stats", "bool", False),
    ("output_mean_var", "bool", False),
)


def relative_attrs(attrs: dict) -> dict:
    """The attributes of BatchNorm for those of a relative."""
    return {**_STATE, **{k: v for k, v in attrs.items() if k not in ("ndev", "key")}}


def _norm_samples(**more):
    return tuple(
        sample(shape, (3,), (3,), (3,), uniform((3,), 0.5, 2), **kw, **more)
        for shape, kw in (
            ((4, 3, 2, 2), {}),
            ((5, 3), {"fix_gamma": False, "eps": 1e-5, "output_mean_var": True}),
            ((4, 3, 2), {"use_global_stats": True, "fix_gamma": False}),
        )
    )


def _relative(name, params, doc, relu=False, shows_var=False, **more):
    """shows_var: output_mean_var gives the variance, where BatchNorm gives 1 / sqrt(var + eps)."""

    def ref(xp, *arrays, **attrs):
        y, mean, rstd, *moving = _NORM.ref(xp, *arrays, **relative_attrs(attrs))
        if shows_var and attrs["output_mean_var"]:
            rstd = rstd**-2 - attrs["eps"]
        return (xp.maximum(y, 0) if relu else y, mean, rstd, *moving)

    def grad(F, dys, xs, ys, **attrs):
        dy = dys[0] * (ys[0] > 0) if relu else dys[0]
        if shows_var and attrs["output_mean_var"]:
            ys = [ys[0], ys[1], F.rsqrt(ys[2] + attrs["eps"])]
        return _NORM.differentiate(F, [dy, *dys[1:]], xs, ys, relative_attrs(attrs))

    def rematerialize(F, xs, ys, **attrs):
        if shows_var and attrs["output_mean_var"]:
            ys = [ys[0], ys[1], F.rsqrt(ys[2] + attrs["eps"])]
        y = _NORM.traits[1].rule(F, xs, ys, **relative_attrs(attrs))
        return F.relu(y) if relu else y

    operator(
        name,
        inputs=_NORM.inputs,
        params=params,
        n_outputs=3,
        n_visible=_NORM.n_visible,
        output_names=_NORM.output_names,
        mutates=_NORM.mutates,
        train_aware=True,
        infer=lambda ins, **attrs: _NORM.infer(ins, **relative_attrs(attrs)),
        fill=lambda ins, **attrs: norm.batch_norm_fill(ins, **relative_attrs(attrs)),
        ref=ref,
        grad=grad,
        traits=(Rematerializes(rematerialize),),
        samples=_norm_samples(**more),
        doc=doc,
    )


_relative(
    "_contrib_BatchNormWithReLU",
    _NORM.params,
    "BatchNorm, then max(x, 0).",
    relu=True,
)
_relative(
    "_contrib_SyncBatchNorm",
    (*(Param(*p) for p in _STATS), Param("ndev", "int", 1), Param("key", "str")),
    "BatchNorm over axis 1. Every device takes the statistics of its own part of the batch,"
    " whatever ndev says; key is kept for MXNet's graphs. Source: Zhang et al. 2018,"
    " arXiv:1803.08904.",
    shows_var=True,
    key="sample",
)
_relative(
    "BatchNorm_v1",
    tuple(Param(*p) for p in _STATS),
    "BatchNorm over axis 1 under its older name.",
    shows_var=True,
)


# ---- Pooling_v1 ----------------------------------------------------------------------------------

_POOL = "Pooling_v1"


def _pool_windows(shape, kernel, global_pool, pooling_convention, stride, pad, **_):
    """(kernel, stride, pad, overhang) of both axes: how far windows reach beyond the padding."""
    if len(shape) != 4:
        raise ShapeError(_POOL, f"data must be (N, C, H, W), got {shape}")
    if global_pool:
        if 0 in shape[2:]:
            raise ShapeError(_POOL, f"data must not be empty, got {shape}")
        return tuple(shape[2:]), (1, 1), (0, 0), (0, 0)
    stride, pad = tuple(stride) or (1, 1), tuple(pad) or (0, 0)
    for name, value, low in (("kernel", kernel, 1), ("stride", stride, 1), ("pad", pad, 0)):
        if len(value) != 2 or min(value) < low:
            raise OperatorError(_POOL, f"{name} must have 2 entries of at least {low}, got {value}")
    over = []
    for n, k, s, p in zip(shape[2:], kernel, stride, pad):
        whole = n + 2 * p
        if k > whole:
            raise ShapeError(_POOL, f"kernel {kernel} must fit the padded data {shape}, pad {pad}")
        last = whole - k if pooling_convention == "valid" else whole - k + s - 1
        over.append(max(0, last // s * s + k - whole))
    return tuple(kernel), stride, pad, tuple(over)


def _pool_infer(ins, **attrs):
    shape = ins[0].shape
    kernel, stride, pad, over = _pool_windows(shape, **attrs)
    out = tuple(
        (n + 2 * p + o - k) // s + 1 for n, k, s, p, o in zip(shape[2:], kernel, stride, pad, over)
    )
    return [Type((*shape[:2], *out), ins[0].dtype)]


def _pool_ref(xp, x, *, pool_type, **attrs):
    kernel, stride, pad, over = _pool_windows(x.shape, **attrs)
    out = _pool_infer([Type(x.shape)], **attrs)[0].shape[2:]
    x = xp.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)))
    kind = x.dtype.kind
    lowest = xp.finfo(x.dtype).min if kind == "f" else xp.iinfo(x.dtype).min if kind != "b" else 0
    beyond = lowest if pool_type == "max" else 0
    x = xp.pad(x, ((0, 0), (0, 0), *((0, o) for o in over)), constant_values=beyond)
    windows = xp.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
    windows = windows[:, :, : out[0] * stride[0] : stride[0], : out[1] * stride[1] : stride[1]]
    y = windows.max(axis=(4, 5)) if pool_type == "max" else windows.sum((4, 5), dtype=x.dtype)
    if pool_type != "avg":
        return y
    n = kernel[0] * kernel[1]
    return y // n if y.dtype.kind in "iu" else y / n


def _pool_grad(F, dys, xs, ys, pool_type, **attrs):
    x, dy = xs[0], dys[0]
    kernel, stride, pad, over = _pool_windows(x.shape, **attrs)
    h, w = x.shape[2:]
    whole = (*x.shape[:2], *(n + 2 * p + o for n, p, o in zip((h, w), pad, over)))
    taps = {"kernel": kernel, "stride": stride, "data_shape": whole}
    if pool_type == "max":
        border = lambda low, high: (0, 0, 0, 0, low[0], high[0], low[1], high[1])
        x = F.pad(x, mode="constant", pad_width=border(pad, pad))
        width = border((0, 0), over)
        x = F.pad(x, mode="constant", pad_width=width, constant_value=-float("inf"))
        dx = F._pool_grad(dy, x, pool_type="max", **taps)
    else:
        dy = dy * (1 / (kernel[0] * kernel[1])) if pool_type == "avg" else dy
        dx = F._pool_grad(dy, pool_type="sum", **taps)
    dx = F.slice_axis(dx, axis=2, begin=pad[0], end=pad[0] + h)
    return [F.slice_axis(dx, axis=3, begin=pad[1], end=pad[1] + w)]


operator(
    _POOL,
    params=(
        Param("kernel", "shape", (), limits=REACH),
        Param("pool_type", ("avg", "max", "sum"), "max"),
        Param("global_pool", "bool", False),
        Param("pooling_convention", ("full", "valid"), "valid"),
        Param("stride", "shape", (), limits=REACH),
        Param("pad", "shape", (), limits=REACH),
    ),
    infer=_pool_infer,
    ref=_pool_ref,
    grad=_pool_grad,
    samples=(
        sample((1, 2, 6, 5), kernel=(2, 2), stride=(2, 2)),
        sample((1, 2, 6, 5), kernel=(3, 2), stride=(2, 3), pad=(1, 1), pooling_convention="full"),
        sample((1, 2, 6, 5), kernel=(3, 2), pad=(1, 0), pool_type="avg", pooling_convention="full"),
        sample((1, 2, 3, 4), pool_type="sum", global_pool=True),
    ),
    doc=(
        "The older Pooling in two dimensions: padding counts as zeros, in maxima too, and avg"
        " always divides by the kernel's size."
    ),
)


# ---- IdentityAttachKLSparseReg -------------------------------------------------------------------

_SPARSE = "IdentityAttachKLSparseReg"


def _sparse_infer(ins, **_):
    data, moving = ins
    if len(data.shape) < 1 or 0 in data.shape:
        raise ShapeError(_SPARSE, f"data must be (N, units...) and not empty, got {data.shape}")
    must_be(_SPARSE, "moving_avg", moving, (prod(data.shape[1:]),))
    return [data, moving]


def _sparse_ref(xp, x, moving, *, sparseness_target, penalty, momentum, train):
    mean = x.reshape(x.shape[0], -1).mean(axis=0)
    after = momentum * moving + (1 - momentum) * mean if train else moving
    return x, after, after


def _sparse_grad(F, dys, xs, ys, sparseness_target, penalty, **_):
    mean = F.reshape_to(ys[1], shape=(1, *xs[0].shape[1:]))
    slope = (1 - sparseness_target) / (1 - mean) - sparseness_target / mean
    return [F.broadcast_add(dys[0], slope * penalty), None]


operator(
    _SPARSE,
    inputs=("data", "moving_avg"),
    params=(
        Param("sparseness_target", "float", 0.1),
        Param("penalty", "float", 0.001),
        Param("momentum", "float", 0.9),
    ),
    n_outputs=2,
    n_visible=1,
    output_names=("output", "moving_avg"),
    mutates=("moving_avg",),
    train_aware=True,
    infer=_sparse_infer,
    fill=lambda ins, **_: [
        ins[0],
        ins[1] or (ins[0] and Type((prod(ins[0].shape[1:]),), ins[0].dtype)),
    ],
    ref=_sparse_ref,
    grad=_sparse_grad,
    samples=(sample(uniform((4, 3), 0.1, 0.9), uniform((3,), 0.1, 0.9)),),
    doc=(
        "data itself; its gradient gets penalty times the derivative of the KL divergence between"
        " the units' mean activation, in (0, 1), and sparseness_target. The mean over the batch is"
        " smoothed in moving_avg while training."
    ),
)


# ---- of MXNet's first years ----------------------------------------------------------------------


def _onehot_infer(ins):
    if len(ins[0].shape) != 1 or len(ins[1].shape) != 2 or ins[0].shape[0] != ins[1].shape[0]:
        raise ShapeError(
            "_onehot_encode",
            f"lhs must be (n,) and rhs (n, classes), got {ins[0].shape} and {ins[1].shape}",
        )
    return [ins[1]]


operator(
    "_onehot_encode",
    inputs=("lhs", "rhs"),
    infer=_onehot_infer,
    ref=lambda xp, lhs, rhs: lhs.astype("int64")[:, None] == xp.arange(rhs.shape[1]),
    traits=(
        Decomposition(lambda F, lhs, rhs: [F.one_hot(lhs, depth=rhs.shape[1], dtype=rhs.dtype)]),
    ),
    samples=(sample(ints((4,), 0, 3), (4, 3)), sample(values([0, 5, -1]), (3, 2))),
    doc="1 in the column lhs[i] of each row i, else 0, in rhs's shape and dtype.",
)


def _fill_infer(ins):
    if len(ins[0].shape) != 2:
        raise ShapeError("fill_element_0index", f"lhs needs 2 dimensions, got {ins[0].shape}")
    for t, name in ((ins[1], "mhs"), (ins[2], "rhs")):
        must_be("fill_element_0index", name, t, ins[0].shape[:1])
    return [ins[0]]


def _fill_ref(xp, lhs, mhs, rhs):
    at = numbered(xp, "fill_element_0index", "rhs", rhs, lhs.shape[1])
    y = xp.array(lhs)
    y[xp.arange(len(at)), at] = mhs
    return y


operator(
    "fill_element_0index",
    inputs=("lhs", "mhs", "rhs"),
    infer=_fill_infer,
    ref=_fill_ref,
    samples=(sample((4, 3), (4,), ints((4,), 0, 3)),),
    doc="lhs with lhs[i, rhs[i]] replaced by mhs[i].",
)


def _set_value_now(call, inputs, out, src):
    if not hasattr(out, "dtype"):
        raise OperatorError("_set_value", "needs the array to fill", fix="_set_value(1, out=x)")
    return call("_full", shape=out.shape, value=src, dtype=out.dtype, out=out)


operator(
    "_set_value",
    inputs=(),
    params=(Param("src", "float"),),
    infer=lambda ins, src: [Type((1,), "float32")],
    ref=lambda xp, *, src: xp.full((1,), src),
    traits=(Eager(_set_value_now),),
    samples=(sample(src=2.0),),
    doc="Fills the array `out` with a number.",
)
operator(
    "_NoGradient",
    inputs=(),
    infer=lambda ins: [Type((1,), "float32")],
    ref=lambda xp: xp.zeros((1,)),
    samples=(sample(),),
    doc="What stands in saved graphs where there is no gradient: a zero.",
)


def _allclose_infer(ins, rtol, atol, equal_nan):
    must_be("_contrib_allclose", "b", ins[1], ins[0].shape)
    return [Type((), "uint8")]


operator(
    "_contrib_allclose",
    inputs=("a", "b"),
    params=(
        Param("rtol", "float", 1e-5),
        Param("atol", "float", 1e-8),
        Param("equal_nan", "bool", True),
    ),
    infer=_allclose_infer,
    ref=lambda xp, a, b, *, rtol, atol, equal_nan: xp.asarray(
        xp.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    ),
    samples=(
        sample((3, 4), (3, 4)),
        sample(values([1.0, float("nan")]), values([1.000001, float("nan")])),
        sample(values([float("nan")]), values([float("nan")]), equal_nan=False),
        sample(values([1.0, 2.0]), values([1.1, 2.0]), rtol=0.2),
    ),
    doc="1 where |a - b| <= atol + rtol * |b| for all elements, else 0; shape (), uint8.",
)


# Rows chosen by a mask

_MASK = "_contrib_boolean_mask"


def _mask_check(ins, axis):
    data, index = ins[0].shape, ins[1].shape
    if axis != 0:
        raise OperatorError(_MASK, f"axis must be 0, got {axis}", fix="transpose data")
    if not data or len(index) != 1 or index[0] != data[0]:
        raise ShapeError(
            _MASK, f"index must have shape (data.shape[0],), got data {data} and index {index}"
        )


def _mask_infer(ins, axis):
    _mask_check(ins, axis)
    raise ShapeError(
        _MASK,
        "the shape of its result depends on the values of index",
        fix="call it outside symbols, or use where / SequenceMask",
    )


def _mask_now(call, inputs, out, axis):
    data, index = inputs
    _mask_check([Type(tuple(a.shape)) for a in inputs], axis)
    return call("take", data, places_now(call, index, vector=True), axis=0, out=out)


operator(
    _MASK,
    aliases=("_npi_boolean_mask",),
    inputs=("data", "index"),
    params=(Param("axis", "int", 0),),
    infer=_mask_infer,
    ref=lambda xp, data, index, *, axis: data[index != 0],
    traits=(Eager(_mask_now),),
    samples=(sample((4, 3), values([0, 1, 0, 2])), sample((3,), values([0, 0, 0]))),
    doc="The rows data[i] with index[i] != 0; index (data.shape[0],).",
)
