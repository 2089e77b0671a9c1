"""Batch normalisation together with the activation that follows it, where that is not relu: what
passes make of training graphs before their gradient is taken."""

from __future__ import annotations

from typing import Any

from ...engine.error import ShapeError
from ..activations import ACTIVATIONS, OF_NORMS
from ..compose import vjp
from ..record import Param, Type, operator, sample, uniform
from ..shapes import must_be, one_axis
from ..traits import Rematerializes
from .norm import _BN, _bn_infer, _bn_ref, _bn_rematerialize, _keep, _norm_grad_ref

NAME, GRAD = "_batch_norm_act", "_batch_norm_act_grad"

_PARAMS = (
    Param("axis", "int", 1),
    Param("eps", "float", 1e-3),
    Param("act", OF_NORMS, "clip"),
    Param("low", "float", 0.0, doc="clip: lower end; leaky: slope below 0"),
    Param("high", "float", 0.0, doc="clip: upper end"),
)


def _axes(x, axis):
    return tuple(a for a in range(len(x.shape)) if a != axis % len(x.shape))


def _activated(F, z, act, low, high):
    """The same in operators."""
    if act == "clip":
        return F.clip(z, a_min=low, a_max=high)
    if act == "leaky":
        return F.where(z > 0, z, z * low)
    s = F.Activation(z, act_type="sigmoid")
    return s if act == "sigmoid" else z * s


def _ref(xp, *arrays, act, low, high, **attrs):
    z, *others = _bn_ref(xp, *arrays, use_global_stats=False, train=True, **attrs)
    return ACTIVATIONS[act].value(xp, z, low, high).astype(z.dtype), *others


def _grad(F, dys, xs, ys, fix_gamma, momentum, **attrs):
    x, gamma, beta = xs[:3]
    if fix_gamma:
        gamma = F._ones(shape=gamma.shape, dtype=gamma.dtype)
    dx, dgamma, dbeta = getattr(F, GRAD)(dys[0], x, gamma, beta, ys[1], ys[2], **attrs)
    return [dx, None if fix_gamma else dgamma, dbeta, None, None]


def _rematerialize(F, xs, ys, act, low, high, **attrs):
    return _activated(F, _bn_rematerialize(F, xs, ys, **attrs), act, low, high)


_CASES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((4, 3, 2, 5), {"act": "clip", "low": -0.5, "high": 1.0}),
    ((5, 3), {"act": "leaky", "low": 0.2, "eps": 1e-5}),
    ((2, 3, 4), {"act": "sigmoid"}),
    ((2, 4, 3), {"act": "silu", "axis": -1}),
)

operator(
    NAME,
    inputs=_BN,
    params=(*_PARAMS, Param("momentum", "float", 0.9), Param("fix_gamma", "bool", True)),
    n_outputs=3,
    output_names=("output", "mean", "rstd"),
    mutates=("moving_mean", "moving_var"),
    infer=lambda ins, axis, **_: _bn_infer(ins, axis),
    ref=_ref,
    grad=_grad,
    traits=(Rematerializes(_rematerialize),),
    samples=tuple(
        sample(shape, (3,), (3,), (3,), uniform((3,), 0.5, 2), fix_gamma=i == 2, **kw)
        for i, (shape, kw) in enumerate(_CASES)
    ),
    doc=(
        "act(BatchNorm(data)) with the statistics of the batch, and these: the mean and"
        " 1 / sqrt(variance + eps) of each channel. act: clip to [low, high] (relu6), leaky relu,"
        " sigmoid, silu (x sigmoid(x))."
    ),
)


# The fused backward operator


def _grad_infer(ins, axis, **_):
    dy, x, gamma = ins[:3]
    n = x.shape[one_axis(GRAD, axis, len(x.shape))]
    for t, name in zip((dy, *ins[6:]), ("dy", "more")):
        must_be(GRAD, name, t, x.shape)
    for t, name in zip(ins[2:6], ("gamma", "beta", "mean", "rstd")):
        if t.shape != (n,):
            raise ShapeError(GRAD, f"{name} must have shape ({n},), got {t.shape}")
    param = Type(gamma.shape, gamma.dtype)
    return [x, param, param]


def _grad_ref(xp, dy, x, gamma, beta, mean, rstd, *more, axis, eps, act, low, high, **_):
    axes = _axes(x, axis)
    shape = _keep(x.shape, axes)
    gamma, beta, mean, rstd = (a.reshape(shape) for a in (gamma, beta, mean, rstd))
    z = (x - mean) * (rstd * gamma) + beta
    dz = (dy + more[0] if more else dy) * ACTIVATIONS[act].slope(xp, z, low, high).astype(x.dtype)
    dx, dgamma, dbeta = _norm_grad_ref(xp, dz, x, gamma, mean, rstd, axes=axes, eps=eps)
    return dx, dgamma.reshape(-1), dbeta.reshape(-1)


def _composed(axis, eps, act, low, high):
    """(F, data, gamma, beta) -> result, with the statistics as functions of data."""

    def compose(F, x, gamma, beta):
        axes = _axes(x, axis)
        shape = _keep(x.shape, axes)
        centred = F.broadcast_sub(x, F.mean(x, axis=axes, keepdims=True))
        rstd = F.rsqrt(F.mean(F.square(centred), axis=axes, keepdims=True) + eps)
        scale = F.broadcast_mul(F.reshape_to(gamma, shape=shape), rstd)
        z = F.broadcast_add(F.broadcast_mul(centred, scale), F.reshape_to(beta, shape=shape))
        return _activated(F, z, act, low, high)

    return compose


def _grad_grad(F, dys, xs, ys, more, **attrs):
    dy, x, gamma, beta = xs[:4]
    backward = lambda F, dy, *xs: vjp(F, _composed(**attrs), xs, [dy])
    whole = F.broadcast_add(dy, xs[6]) if more else dy
    g, gx, ggamma, gbeta = vjp(F, backward, [whole, x, gamma, beta], dys)
    return [g, gx, ggamma, gbeta, None, None, *([g] if more else [])]


operator(
    GRAD,
    inputs=("dy", "data", "gamma", "beta", "mean", "rstd", "addend"),
    input_names=lambda more, **_: ("dy", "data", "gamma", "beta", "mean", "rstd", "addend")[
        : 7 if more else 6
    ],
    params=(*_PARAMS, Param("more", "bool", False)),
    n_outputs=3,
    output_names=("dx", "dgamma", "dbeta"),
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    inplace=((0, 0), (6, 0)),
    samples=tuple(
        sample(
            shape,
            shape,
            *[(3,)] * 3,
            uniform((3,), 0.5, 2),
            *([shape] if more else []),
            more=more,
            **kw,
        )
        for more in (False, True)
        for shape, kw in _CASES
    ),
    doc=(
        "Backward of _batch_norm_act from dy + addend: gradients of data, gamma, beta. What the"
        " activation is applied to is computed again. Its own gradient counts mean and rstd as"
        " functions of data."
    ),
)
