"""Normalisations: BatchNorm, LayerNorm, GroupNorm, InstanceNorm.

All that divide by a standard deviation share one fused backward operator, `_norm_grad`: the axes
over which the statistics run are an attribute, and gamma arrives in a shape that broadcasts against
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...engine.error import ShapeError
from ..compose import vjp
from ..pointwise import sum_to
from ..record import COUNT, HALVES, Array, Param, Type, operator, sample, uniform
from ..shapes import many_axes, must_be, one_axis
from ..traits import BatchNorm, Rematerializes, RowForm
from .reduce import along


def _keep(shape, axes):
    """shape with 1 at the axes."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def _only(shape, axes):
    """shape with 1 everywhere but at the axes."""
    return tuple(n if a in axes else 1 for a, n in enumerate(shape))


def _stats(xp, x, axes, eps):
    n = float(prod(x.shape[a] for a in axes))
    mean = x.sum(axis=axes, keepdims=True) / n
    var = ((x - mean) ** 2).sum(axis=axes, keepdims=True) / n
    return mean, var, 1 / xp.sqrt(var + eps)


def cast_to(F: Any, x: Array, dtype: str) -> Array:
    return x if x.dtype == dtype else F.cast(x, dtype=dtype)


def _check_params(op, ins, names, n, what):
    for t, name in zip(ins[1:], names[1:]):
        if t.shape != (n,):
            raise ShapeError(
                op,
                f"{name} must have shape ({what},) = ({n},), got data {ins[0].shape} and "
                f"{name} {t.shape}",
            )


# The fused backward operator


def _norm_grad_ref(xp, dy, x, gamma, mean, rstd, *, axes, eps):
    xhat = (x - mean) * rstd
    g = dy * gamma
    dx = rstd * (
        g - g.mean(axis=axes, keepdims=True) - xhat * (g * xhat).mean(axis=axes, keepdims=True)
    )
    others = tuple(a for a, n in enumerate(gamma.shape) if n == 1)
    return dx, (dy * xhat).sum(axis=others, keepdims=True), dy.sum(axis=others, keepdims=True)


def _norm_grad_composed(axes, eps):
    """(F, dy, x, gamma) -> (dx, dgamma, dbeta), with the statistics as functions of x."""

    def compose(F, dy, x, gamma):
        centred = F.broadcast_sub(x, F.mean(x, axis=axes, keepdims=True))
        rstd = F.rsqrt(F.mean(F.square(centred), axis=axes, keepdims=True) + eps)
        xhat = F.broadcast_mul(centred, rstd)
        g = F.broadcast_mul(dy, gamma)
        along = F.broadcast_mul(xhat, F.mean(g * xhat, axis=axes, keepdims=True))
        dx = F.broadcast_mul(F.broadcast_sub(g, F.mean(g, axis=axes, keepdims=True)) - along, rstd)
        return dx, sum_to(F, dy * xhat, gamma.shape), sum_to(F, dy, gamma.shape)

    return compose


def _norm_grad_grad(F, dys, xs, ys, axes, eps):
    dtypes = [x.dtype for x in xs[:3]]
    wide = dtypes[2]
    given = [cast_to(F, x, wide) for x in xs[:3]]
    gs = vjp(F, _norm_grad_composed(axes, eps), given, [cast_to(F, a, wide) for a in dys])
    return [None if g is None else cast_to(F, g, t) for g, t in zip(gs, dtypes)] + [None, None]


def _norm_grad_infer(ins, axes, eps):
    dy, data, gamma, mean, rstd = ins
    held = many_axes("_norm_grad", axes, len(data.shape))
    must_be("_norm_grad", "dy", dy, data.shape)
    for t, name in ((mean, "mean"), (rstd, "rstd")):
        must_be(
            "_norm_grad", name, t, tuple(1 if a in held else n for a, n in enumerate(data.shape))
        )
    if len(gamma.shape) != len(data.shape) or any(
        g not in (1, n) for g, n in zip(gamma.shape, data.shape)
    ):
        raise ShapeError(
            "_norm_grad",
            f"gamma must broadcast to data, got gamma {gamma.shape} and data {data.shape}",
        )
    return [data, gamma, gamma]


operator(
    "_norm_grad",
    inputs=("dy", "data", "gamma", "mean", "rstd"),
    n_outputs=3,
    params=(Param("axes", "shape"), Param("eps", "float")),
    output_names=("dx", "dgamma", "dbeta"),
    infer=_norm_grad_infer,
    ref=_norm_grad_ref,
    grad=_norm_grad_grad,
    samples=(
        sample(
            (4, 3, 2),
            (4, 3, 2),
            (1, 3, 1),
            (1, 3, 1),
            uniform((1, 3, 1), 0.5, 2),
            axes=(0, 2),
            eps=1e-3,
        ),
        sample((4, 3), (4, 3), (1, 3), (4, 1), uniform((4, 1), 0.5, 2), axes=(1,), eps=1e-5),
    ),
    doc=(
        "Backward of xhat * gamma + beta, xhat = (data - mean) * rstd, where mean and rstd are the"
        " mean of data over `axes` and 1 / sqrt(variance + eps), shaped to broadcast. gamma"
        " broadcasts too. Its own gradient counts mean and rstd as functions of data."
    ),
)


def _affine_grads(F, dy, x, gamma, mean, rstd, axes, eps, shape, param_shape):
    """Gradients of data, gamma, beta. shape: the view of data that is normalised; param_shape:
    gamma there."""
    view = lambda a, s: F.reshape_to(a, shape=tuple(s))
    stats = _keep(shape, axes)
    dx, dgamma, dbeta = F._norm_grad(
        view(dy, shape),
        view(x, shape),
        view(gamma, param_shape),
        view(mean, stats),
        view(rstd, stats),
        axes=tuple(axes),
        eps=eps,
    )
    return [view(dx, x.shape), view(dgamma, gamma.shape), view(dbeta, gamma.shape)]


# BatchNorm

_BN = ("data", "gamma", "beta", "moving_mean", "moving_var")


def _wide(dtype):
    return "float32" if dtype in HALVES else dtype


def _bn_infer(ins, axis, **_):
    x = ins[0]
    c = x.shape[one_axis("BatchNorm", axis, len(x.shape))]
    _check_params("BatchNorm", ins, _BN, c, f"data.shape[{axis}]")
    stats = Type((c,), _wide(x.dtype))
    return [x, stats, stats]


def batch_norm_fill(ins: Sequence[Type | None], axis: int, **_: Any) -> list[Type | None]:
    if ins[0] is None:
        return list(ins)
    stats = Type(
        (ins[0].shape[one_axis("BatchNorm", axis, len(ins[0].shape))],), _wide(ins[0].dtype)
    )
    return [ins[0], *(t or stats for t in ins[1:])]


def _bn_ref(
    xp,
    x,
    gamma,
    beta,
    moving_mean,
    moving_var,
    *,
    eps,
    momentum,
    fix_gamma,
    use_global_stats,
    axis,
    train,
    **_,
):
    axes = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    shape = _keep(x.shape, axes)
    if train and not use_global_stats:
        mean, var, rstd = (a.reshape(-1) for a in _stats(xp, x, axes, eps))
        moving = (
            moving_mean * momentum + mean * (1 - momentum),
            moving_var * momentum + var * (1 - momentum),
        )
    else:
        mean, rstd, moving = moving_mean, 1 / xp.sqrt(moving_var + eps), (moving_mean, moving_var)
    scale = rstd if fix_gamma else gamma * rstd
    y = (x - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)
    return y, mean, rstd, *moving


def _bn_grad(F, dys, xs, ys, eps, fix_gamma, use_global_stats, axis, train, **_):
    x, gamma, dy, mean, rstd = xs[0], xs[1], dys[0], ys[1], ys[2]
    nd = len(x.shape)
    axes = tuple(a for a in range(nd) if a != axis % nd)
    shape = _keep(x.shape, axes)
    if fix_gamma:
        gamma = F._ones(shape=gamma.shape, dtype=gamma.dtype)
    if train and not use_global_stats:
        dx, dgamma, dbeta = _affine_grads(F, dy, x, gamma, mean, rstd, axes, eps, x.shape, shape)
    else:
        view = lambda a: F.reshape_to(a, shape=shape)
        mean, rstd = xs[3], F.rsqrt(xs[4] + eps)
        dx = F.broadcast_mul(dy, cast_to(F, view(gamma * rstd), dy.dtype))
        wide = cast_to(F, dy, gamma.dtype)
        dbeta = F.sum(wide, axis=axes)
        xhat = F.broadcast_mul(F.broadcast_sub(cast_to(F, x, gamma.dtype), view(mean)), view(rstd))
        dgamma = F.sum(wide * xhat, axis=axes)
    return [dx, None if fix_gamma else dgamma, dbeta, None, None]


def _bn_rematerialize(F, xs, ys, fix_gamma, axis, **_):
    x, gamma, beta = xs[:3]
    shape = tuple(n if a == axis % len(x.shape) else 1 for a, n in enumerate(x.shape))
    view = lambda a: F.reshape_to(a, shape=shape)
    scale = ys[2] if fix_gamma else gamma * ys[2]
    wide = F.broadcast_sub(cast_to(F, x, scale.dtype), view(ys[1]))
    y = F.broadcast_add(F.broadcast_mul(wide, view(scale)), view(beta))
    return cast_to(F, y, x.dtype)


operator(
    "BatchNorm",
    aliases=("_npx_batch_norm",),
    inputs=_BN,
    params=(
        Param("eps", "float", 1e-3),
        Param("momentum", "float", 0.9),
        Param("fix_gamma", "bool", True),
        Param("use_global_stats", "bool", False),
        Param("output_mean_var", "bool", False),
        Param("axis", "int", 1),
        Param("cudnn_off", "bool", False),
        Param("min_calib_range", "float?", None),
        Param("max_calib_range", "float?", None),
    ),
    n_outputs=3,
    n_visible=lambda output_mean_var, **_: 3 if output_mean_var else 1,
    output_names=("output", "mean", "var"),
    mutates=("moving_mean", "moving_var"),
    train_aware=True,
    infer=_bn_infer,
    fill=batch_norm_fill,
    ref=_bn_ref,
    grad=_bn_grad,
    traits=(BatchNorm(), Rematerializes(_bn_rematerialize)),
    samples=tuple(
        sample(shape, (3,), (3,), (3,), uniform((3,), 0.5, 2), **kw)
        for shape, kw in (
            ((4, 3, 2, 2), {}),
            ((4, 3), {"fix_gamma": False, "eps": 1e-5}),
            ((2, 4, 3), {"axis": -1, "fix_gamma": False, "momentum": 0.5}),
            ((4, 3, 2), {"use_global_stats": True, "fix_gamma": False}),
            ((5, 3, 2), {"output_mean_var": True, "fix_gamma": False}),
        )
    ),
    doc=(
        "(data - mean) / sqrt(var + eps) * gamma + beta for each index of `axis`. While training"
        " mean and var are those of the batch and the moving ones follow: moving = momentum moving"
        " + (1 - momentum) batch; otherwise the moving ones serve. fix_gamma counts gamma as 1."
        " output_mean_var adds the mean and 1 / sqrt(var + eps). Source: Ioffe and Szegedy 2015,"
        " arXiv:1502.03167."
    ),
)


def _running_infer(ins, momentum):
    must_be("_running", "running", ins[1], ins[0].shape)
    return ins[:1]


operator(
    "_running",
    inputs=("batch", "running"),
    params=(Param("momentum", "float"),),
    mutates=("running",),
    infer=_running_infer,
    fill=lambda ins, **_: [ins[0], ins[1] or ins[0]],
    ref=lambda xp, batch, running, momentum: (batch, running * momentum + batch * (1 - momentum)),
    grad=lambda F, dys, xs, ys, momentum: [dys[0], None],
    traits=(Rematerializes(lambda F, xs, ys, momentum: xs[0]),),
    samples=(sample((3,), (3,), momentum=0.9),),
    doc="batch; running, in place, follows it: running = momentum running + (1 - momentum) batch.",
)


# LayerNorm, GroupNorm, InstanceNorm: three views of data


def _layer_view(shape, axis):
    a = one_axis("LayerNorm", axis, len(shape))
    return shape, (a,), _only(shape, (a,))


def _group_view(shape, num_groups):
    n, c = shape[:2]
    return (n, num_groups, c // num_groups * prod(shape[2:])), (2,), (1, num_groups, 1)


def _instance_view(shape):
    return (*shape[:2], prod(shape[2:])), (2,), (1, shape[1], 1)


def _normalise(xp, x, gamma, beta, eps, view):
    shape, axes, params = view
    mean, var, rstd = _stats(xp, x.reshape(shape), axes, eps)
    y = (x.reshape(shape) - mean) * rstd * gamma.reshape(params) + beta.reshape(params)
    return y.reshape(x.shape), mean, xp.sqrt(var + eps)


def _view_grad(F, dys, xs, ys, eps, view):
    shape, axes, params = view
    return _affine_grads(F, dys[0], xs[0], xs[1], ys[1], 1.0 / ys[2], axes, eps, shape, params)


def _param_fill(n_params):
    def fill(ins, **attrs):
        if ins[0] is None:
            return list(ins)
        param = Type((n_params(ins[0].shape, **attrs),), ins[0].dtype)
        return [ins[0], *(t or param for t in ins[1:])]

    return fill


_AFFINE = ("data", "gamma", "beta")


def _layer_infer(ins, axis, **_):
    x = ins[0]
    a = one_axis("LayerNorm", axis, len(x.shape))
    _check_params("LayerNorm", ins, _AFFINE, x.shape[a], f"data.shape[{axis}]")
    stats = Type(_keep(x.shape, (a,)), x.dtype)
    return [x, stats, stats]


def _layer_ref(xp, x, gamma, beta, *, axis, eps, **_):
    return _normalise(xp, x, gamma, beta, eps, _layer_view(x.shape, axis))


def _layer_rows(F, x, gamma, beta, eps, **_):
    mean = along(F, x, "mean")
    centred = F.broadcast_sub(x, mean)
    std = F.sqrt(along(F, F.square(centred), "mean") + eps)
    y = F.broadcast_mul(F.broadcast_mul(centred, F.reciprocal(std)), gamma)
    return [F.broadcast_add(y, beta), mean, std]


operator(
    "LayerNorm",
    # from_size: a LayerNorm in the caches is faster by its kernel (measured: 0.7 to 0.9 x; 1.2
    # beyond)
    traits=(RowForm(_layer_rows, from_size=1 << 21),),
    aliases=("_npx_layer_norm",),
    inputs=_AFFINE,
    params=(
        Param("axis", "int", -1),
        Param("eps", "float", 1e-5),
        Param("output_mean_var", "bool", False),
    ),
    n_outputs=3,
    n_visible=lambda output_mean_var, **_: 3 if output_mean_var else 1,
    output_names=("output", "mean", "std"),
    infer=_layer_infer,
    ref=_layer_ref,
    fill=_param_fill(lambda shape, axis, **_: shape[one_axis("LayerNorm", axis, len(shape))]),
    grad=lambda F, dys, xs, ys, axis, eps, **_: _view_grad(
        F, dys, xs, ys, eps, _layer_view(xs[0].shape, axis)
    ),
    samples=(
        sample((4, 5), (5,), (5,)),
        sample((2, 3, 4), (3,), (3,), axis=1, eps=1e-3),
        sample((2, 3, 4), (4,), (4,), output_mean_var=True),
    ),
    doc=(
        "(data - mean) / std * gamma + beta with mean and std = sqrt(var + eps) over one axis;"
        " gamma and beta have that axis' length. output_mean_var adds mean and std. Source: Ba et"
        " al. 2016, arXiv:1607.06450."
    ),
)


def _group_infer(ins, num_groups, **_):
    x = ins[0]
    if len(x.shape) < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise ShapeError(
            "GroupNorm",
            f"num_groups must divide the channels data.shape[1], got data {x.shape} "
            f"and num_groups={num_groups}",
        )
    _check_params("GroupNorm", ins, _AFFINE, num_groups, "num_groups")
    stats = Type((x.shape[0], num_groups), x.dtype)
    return [x, stats, stats]


def _group_ref(xp, x, gamma, beta, *, num_groups, eps, **_):
    y, mean, std = _normalise(xp, x, gamma, beta, eps, _group_view(x.shape, num_groups))
    return y, mean.reshape(mean.shape[:2]), std.reshape(std.shape[:2])


operator(
    "GroupNorm",
    aliases=("_npx_group_norm",),
    inputs=_AFFINE,
    params=(
        Param("num_groups", "int", 1, limits=COUNT),
        Param("eps", "float", 1e-5),
        Param("output_mean_var", "bool", False),
    ),
    n_outputs=3,
    n_visible=lambda output_mean_var, **_: 3 if output_mean_var else 1,
    output_names=("output", "mean", "std"),
    infer=_group_infer,
    ref=_group_ref,
    fill=_param_fill(lambda shape, num_groups, **_: num_groups),
    grad=lambda F, dys, xs, ys, num_groups, eps, **_: _view_grad(
        F, dys, xs, ys, eps, _group_view(xs[0].shape, num_groups)
    ),
    samples=(
        sample((2, 4, 3), (2,), (2,), num_groups=2),
        sample((2, 3, 2, 2), (1,), (1,)),
        sample((2, 4), (2,), (2,), num_groups=2, eps=1e-3, output_mean_var=True),
    ),
    doc=(
        "Normalises groups of channels of data (N, C, ...); gamma and beta have shape"
        " (num_groups,). output_mean_var adds mean and std, both (N, num_groups). Source: Wu and He"
        " 2018, arXiv:1803.08494."
    ),
)


def _instance_infer(ins, eps):
    x = ins[0]
    if len(x.shape) < 3:
        raise ShapeError(
            "InstanceNorm", f"data must have at least 3 dimensions (N, C, ...), got {x.shape}"
        )
    _check_params("InstanceNorm", ins, _AFFINE, x.shape[1], "data.shape[1]")
    stats = Type(x.shape[:2], x.dtype)
    return [x, stats, stats]


def _instance_ref(xp, x, gamma, beta, *, eps):
    y, mean, std = _normalise(xp, x, gamma, beta, eps, _instance_view(x.shape))
    return y, mean.reshape(mean.shape[:2]), std.reshape(std.shape[:2])


operator(
    "InstanceNorm",
    aliases=("_npx_instance_norm",),
    inputs=_AFFINE,
    params=(Param("eps", "float", 1e-3),),
    n_outputs=3,
    n_visible=1,
    output_names=("output", "mean", "std"),
    infer=_instance_infer,
    ref=_instance_ref,
    fill=_param_fill(lambda shape, **_: shape[1]),
    grad=lambda F, dys, xs, ys, eps: _view_grad(F, dys, xs, ys, eps, _instance_view(xs[0].shape)),
    samples=(sample((2, 3, 4), (3,), (3,)), sample((2, 3, 2, 3), (3,), (3,), eps=1e-2)),
    doc=(
        "Normalises every channel of every example of data (N, C, ...). Source: Ulyanov et al."
        " 2016, arXiv:1607.08022."
    ),
)
