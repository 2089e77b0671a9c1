"""Batch normalisation together with the sum and the relu that follow it: what passes make of
training graphs before their gradient is taken."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..compose import vjp
from ..record import Param, Type, operator, sample, uniform
from ..shapes import must_be, one_axis
from ..traits import Rematerializes
from .norm import (
    _BN,
    _affine_grads,
    _bn_infer,
    _bn_ref,
    _bn_rematerialize,
    _keep,
    _norm_grad_composed,
    _norm_grad_ref,
)

NAME, GRAD = "_batch_norm_add_relu", "_batch_norm_relu_grad"


def _axes(x, axis):
    return tuple(a for a in range(len(x.shape)) if a != axis % len(x.shape))


def _infer(ins, axis, add, **_):
    if add:
        must_be(NAME, "addend", ins[5], ins[0].shape)
    return _bn_infer(ins[:5], axis)


def _ref(xp, *arrays, add, relu, **attrs):
    y, *others = _bn_ref(xp, *arrays[:5], use_global_stats=False, train=True, **attrs)
    y = y + arrays[5] if add else y
    return xp.maximum(y, 0) if relu else y, *others


def _grad(F, dys, xs, ys, eps, fix_gamma, axis, add, relu, **_):
    x, gamma = xs[:2]
    if fix_gamma:
        gamma = F._ones(shape=gamma.shape, dtype=gamma.dtype)
    if relu:
        grads = getattr(F, GRAD)(dys[0], ys[0], x, gamma, ys[1], ys[2], axis=axis, eps=eps, add=add)
        dz = grads[3] if add else None
    else:
        axes = _axes(x, axis)
        params = _keep(x.shape, axes)
        grads = _affine_grads(F, dys[0], x, gamma, ys[1], ys[2], axes, eps, x.shape, params)
        dz = dys[0]
    found = [grads[0], None if fix_gamma else grads[1], grads[2], None, None]
    return [*found, dz] if add else found


def _rematerialize(F, xs, ys, add, relu, **attrs):
    y = _bn_rematerialize(F, xs, ys, **attrs)
    y = F.broadcast_add(y, xs[5]) if add else y
    return F.relu(y) if relu else y


operator(
    NAME,
    inputs=(*_BN, "addend"),
    input_names=lambda add, **_: (*_BN, "addend") if add else _BN,
    params=(
        Param("eps", "float", 1e-3),
        Param("momentum", "float", 0.9),
        Param("fix_gamma", "bool", True),
        Param("axis", "int", 1),
        Param("add", "bool", False),
        Param("relu", "bool", True),
    ),
    n_outputs=3,
    output_names=("output", "mean", "rstd"),
    mutates=("moving_mean", "moving_var"),
    infer=_infer,
    ref=_ref,
    grad=_grad,
    traits=(Rematerializes(_rematerialize),),
    inplace=((5, 0),),
    samples=tuple(
        sample(
            shape,
            (3,),
            (3,),
            (3,),
            uniform((3,), 0.5, 2),
            *([shape] if kw.get("add") else []),
            **kw,
        )
        for shape, kw in (
            ((4, 3, 2, 5), {}),
            ((5, 3), {"fix_gamma": False, "eps": 1e-5}),
            ((2, 3, 4), {"fix_gamma": False, "add": True, "momentum": 0.5}),
            ((2, 4, 3), {"axis": -1, "fix_gamma": False, "add": True, "relu": False}),
        )
    ),
    doc=(
        "relu(BatchNorm(data) + addend) with the statistics of the batch, and these: the mean and"
        " 1 / sqrt(variance + eps) of each channel. add and relu say which of the two follow."
    ),
)


# The fused backward operator


def _grad_names(more, **_):
    return ("dy", "output", "data", "gamma", "mean", "rstd", "more")[: 7 if more else 6]


def _grad_infer(ins, axis, add, **_):
    dy, y, x, gamma = ins[:4]
    n = x.shape[one_axis(GRAD, axis, len(x.shape))]
    for t, name in zip((dy, y, *ins[6:]), ("dy", "output", "more")):
        must_be(GRAD, name, t, x.shape)
    for t, name in zip(ins[3:6], ("gamma", "mean", "rstd")):
        if t.shape != (n,):
            raise ShapeError(GRAD, f"{name} must have shape ({n},), got {t.shape}")
    param = Type(gamma.shape, gamma.dtype)
    return [x, param, param, *([x] if add else [])]


def _grad_ref(xp, dy, y, x, gamma, mean, rstd, *more, axis, eps, add, **_):
    axes = _axes(x, axis)
    shape = _keep(x.shape, axes)
    dz = (dy + more[0] if more else dy) * (y > 0)
    stats = [a.reshape(shape) for a in (gamma, mean, rstd)]
    dx, dgamma, dbeta = _norm_grad_ref(xp, dz, x, *stats, axes=axes, eps=eps)
    return dx, dgamma.reshape(-1), dbeta.reshape(-1), *([dz] if add else [])


def _grad_grad(F, dys, xs, ys, axis, eps, add, more):
    dy, y, x, gamma = xs[:4]
    axes = _axes(x, axis)
    shape, mask = _keep(x.shape, axes), y > 0

    def compose(F, dy, x, gamma):
        dz = F.broadcast_mul(dy, mask)
        dx, dgamma, dbeta = _norm_grad_composed(axes, eps)(
            F, dz, x, F.reshape_to(gamma, shape=shape)
        )
        params = [F.reshape_to(a, shape=gamma.shape) for a in (dgamma, dbeta)]
        return [dx, *params, *([dz] if add else [])]

    whole = F.broadcast_add(dy, xs[6]) if more else dy
    g, gx, ggamma = vjp(F, compose, [whole, x, gamma], dys)
    return [g, None, gx, ggamma, None, None, *([g] if more else [])]


operator(
    GRAD,
    inputs=("dy", "output", "data", "gamma", "mean", "rstd", "more"),
    input_names=_grad_names,
    params=(
        Param("axis", "int", 1),
        Param("eps", "float", 1e-3),
        Param("add", "bool", False),
        Param("more", "bool", False),
    ),
    n_outputs=lambda add, **_: 4 if add else 3,
    output_names=("dx", "dgamma", "dbeta", "dz"),
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    inplace=((0, 0), (0, 3), (6, 0), (6, 3)),
    samples=tuple(
        sample(
            shape,
            shape,
            shape,
            (3,),
            (3,),
            uniform((3,), 0.5, 2),
            *([shape] if kw.get("more") else []),
            **kw,
        )
        for shape, kw in (
            ((4, 3, 2, 5), {}),
            ((5, 3), {"add": True, "eps": 1e-5}),
            ((2, 3, 4), {"more": True}),
            ((2, 4, 3), {"axis": -1, "add": True, "more": True}),
        )
    ),
    doc=(
        "Backward of relu(BatchNorm(data) + addend): gradients of data, gamma, beta and, with add,"
        " of the addend, from dy + more and relu's output. Its own gradient counts mean and rstd as"
        " functions of data."
    ),
)
