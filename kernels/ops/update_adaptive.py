"""Updates with a rate for each element: Adam, AdamW, RMSProp, Ftrl, FTML, signs of gradients,
AdaGrad, AdaDelta, AdaMax, Nadam."""

from __future__ import annotations

from typing import Any

from ..record import Array, Param, sample, uniform
from ..update_loops import rule
from .update import (
    BETA1,
    BETA2,
    CLIP,
    COMMON,
    LAZY,
    LR,
    MOMENTUM,
    RESCALE,
    WD,
    clip,
    multi,
    num,
    scaled_gradient,
    update,
)


def _adam_ref(
    xp, w, g, mean, var, *, lr, beta1, beta2, epsilon, wd, rescale_grad, clip_gradient, **_
):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return w - lr * mean / (xp.sqrt(var) + epsilon), mean, var


update(
    "adam_update",
    ("weight", "grad", "mean", "var"),
    (LR, BETA1, BETA2, num("epsilon", 1e-8), *COMMON, LAZY),
    _adam_ref,
    mutates=("mean", "var"),
    aliases=("_sparse_adam_update",),
    doc=(
        "Adam without bias correction (the optimizer puts it into lr). Source: Kingma and Ba 2015,"
        " arXiv:1412.6980."
    ),
)


multi(
    "multi_adam_update",
    ("weight", "grad", "mean", "var"),
    (2, 3),
    _adam_ref,
    (BETA1, BETA2, num("epsilon", 1e-8), RESCALE, CLIP),
    doc="adam_update of many weights with lrs and wds.",
    by="adam_update",
)


def _adamw_step(
    xp, w, g, mean, var, *, lr, beta1, beta2, epsilon, wd, eta, rescale_grad, clip_gradient
):
    g = clip(xp, rescale_grad * g, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return w - eta * (lr * mean / (xp.sqrt(var) + epsilon) + wd * w), mean, var


def adamw(
    xp: Any, w: Array, g: Array, mean: Array, var: Array, rescale: Array, **numbers: float
) -> tuple[Array, ...]:
    scale = rescale.reshape(-1)[0]
    usable = xp.isfinite(scale) & (scale != 0)  # else the gradient overflowed: no update
    scale = xp.where(usable, scale, 0)
    new = _adamw_step(xp, w, g, mean, var, rescale_grad=scale, **numbers)
    return tuple(xp.where(usable, now, old) for now, old in zip(new, (w, mean, var)))


def mp_adamw(
    xp: Any, w: Array, g: Array, mean: Array, var: Array, w32: Array, rescale: Array, **attrs: float
) -> tuple[Array, ...]:
    new, mean, var = adamw(xp, w32, g.astype(w32.dtype), mean, var, rescale, **attrs)
    return new, mean, var, new


_ADAMW = (LR, BETA1, BETA2, num("epsilon", 1e-8), WD, num("eta"), CLIP)
_ADAMW_INPUTS = ((3, 4), (3, 4), (3, 4), uniform((3, 4), 0.5, 2))
_ADAMW_NUMBERS = {"lr": 0.1, "wd": 0.1, "eta": 0.5}

update(
    "_adamw_update",
    ("weight", "grad", "mean", "var", "rescale_grad"),
    _ADAMW,
    adamw,
    mutates=("mean", "var"),
    skip=("rescale_grad",),
    samples=(
        sample(*_ADAMW_INPUTS, uniform((1,), 0.5, 2), **_ADAMW_NUMBERS),
        sample(*_ADAMW_INPUTS, uniform((1,), 0.5, 2), clip_gradient=0.3, **_ADAMW_NUMBERS),
    ),
    doc=(
        "Adam with decoupled weight decay; rescale_grad is an array of one number, and 0, NaN or"
        " inf in it skips the update. Source: Loshchilov and Hutter 2019, arXiv:1711.05101."
    ),
    by="_adamw_update",
)
update(
    "_mp_adamw_update",
    ("weight", "grad", "mean", "var", "weight32", "rescale_grad"),
    _ADAMW,
    mp_adamw,
    mutates=("mean", "var", "weight32"),
    skip=("rescale_grad",),
    samples=(sample(*_ADAMW_INPUTS, (3, 4), uniform((1,), 0.5, 2), **_ADAMW_NUMBERS),),
    doc="_adamw_update of weight32, rounded to weight's dtype.",
    by="_adamw_update",
)
rule("_adamw_update", _adamw_step, 2, [*(p.name for p in _ADAMW), "rescale_grad"])


def _rmsprop_ref(
    xp, w, g, n, *, lr, gamma1, epsilon, wd, rescale_grad, clip_gradient, clip_weights
):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    n = gamma1 * n + (1 - gamma1) * g * g
    return clip(xp, w - lr * g / xp.sqrt(n + epsilon), clip_weights), n


def _rmsprop_alex_ref(
    xp,
    w,
    g,
    n,
    mean,
    delta,
    *,
    lr,
    gamma1,
    gamma2,
    epsilon,
    wd,
    rescale_grad,
    clip_gradient,
    clip_weights,
):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    n = gamma1 * n + (1 - gamma1) * g * g
    mean = gamma1 * mean + (1 - gamma1) * g
    delta = gamma2 * delta - lr * g / xp.sqrt(n - mean * mean + epsilon)
    return clip(xp, w + delta, clip_weights), n, mean, delta


_RMSPROP = (num("epsilon", 1e-8), *COMMON, num("clip_weights", -1.0))

update(
    "rmsprop_update",
    ("weight", "grad", "n"),
    (LR, num("gamma1", 0.95), *_RMSPROP),
    _rmsprop_ref,
    mutates=("n",),
    doc="RMSProp. Source: Tieleman and Hinton 2012.",
)
update(
    "rmspropalex_update",
    ("weight", "grad", "n", "g", "delta"),
    (LR, num("gamma1", 0.95), num("gamma2", 0.9), *_RMSPROP),
    _rmsprop_alex_ref,
    mutates=("n", "g", "delta"),
    doc="RMSProp, centred and with momentum. Source: Graves 2013, arXiv:1308.0850.",
)


def _ftrl_ref(xp, w, g, z, n, *, lr, lamda1, beta, wd, rescale_grad, clip_gradient):
    g = scaled_gradient(xp, g, rescale_grad, clip_gradient)
    new_n = n + g * g
    z = z + g - (xp.sqrt(new_n) - xp.sqrt(n)) * w / lr
    shrunk = (xp.sign(z) * lamda1 - z) / ((beta + xp.sqrt(new_n)) / lr + wd)
    return shrunk * (xp.abs(z) > lamda1), z, new_n


update(
    "ftrl_update",
    ("weight", "grad", "z", "n"),
    (LR, num("lamda1", 0.01), num("beta", 1.0), *COMMON),
    _ftrl_ref,
    mutates=("z", "n"),
    aliases=("_sparse_ftrl_update",),
    doc="Follow the regularized leader. Source: McMahan 2013.",
)


def _ftml_ref(xp, w, g, d, v, z, *, lr, beta1, beta2, epsilon, t, wd, rescale_grad, clip_grad):
    g = clip(xp, rescale_grad * g + wd * w, clip_grad)
    v = beta2 * v + (1 - beta2) * g * g
    new_d = (1 - beta1**t) * (xp.sqrt(v / (1 - beta2**t)) + epsilon) / lr
    z = beta1 * z + (1 - beta1) * g - (new_d - beta1 * d) * w
    return -z / new_d, new_d, v, z


update(
    "ftml_update",
    ("weight", "grad", "d", "v", "z"),
    (
        LR,
        num("beta1", 0.6),
        BETA2,
        num("epsilon", 1e-8),
        Param("t", "int", dynamic=True),
        WD,
        RESCALE,
        num("clip_grad", -1.0),
    ),
    _ftml_ref,
    mutates=("d", "v", "z"),
    samples=(
        sample(
            (3, 4), (3, 4), uniform((3, 4), 0.5, 2), uniform((3, 4), 0.5, 2), (3, 4), lr=0.1, t=3
        ),
        sample(
            (3, 4),
            (3, 4),
            uniform((3, 4), 0.5, 2),
            uniform((3, 4), 0.5, 2),
            (3, 4),
            lr=0.1,
            t=3,
            wd=0.1,
            clip_grad=0.3,
        ),
    ),
    doc="Follow the moving leader. Source: Zheng and Kwok 2017.",
)


def _signsgd_ref(xp, w, g, *, lr, wd, rescale_grad, clip_gradient):
    return (1 - lr * wd) * w - lr * xp.sign(g)


def _signum_ref(xp, w, g, mom, *, lr, momentum, wd, rescale_grad, clip_gradient, wd_lh):
    mom = momentum * mom - (1 - momentum) * (
        wd * w + scaled_gradient(xp, g, rescale_grad, clip_gradient)
    )
    return (1 - lr * wd_lh) * w + lr * xp.sign(mom), mom


update(
    "signsgd_update",
    ("weight", "grad"),
    (LR, *COMMON),
    _signsgd_ref,
    doc=(
        "weight - lr * (sign(grad) + wd * weight). Source: Bernstein et al. 2018, arXiv:1802.04434."
    ),
)
update(
    "signum_update",
    ("weight", "grad", "mom"),
    (LR, MOMENTUM, *COMMON, num("wd_lh", 0.0)),
    _signum_ref,
    mutates=("mom",),
    doc="signsgd_update of the momentum. Source: Bernstein et al. 2018, arXiv:1802.04434.",
)


def _adagrad_ref(xp, w, g, history, *, lr, epsilon, wd, rescale_grad, clip_gradient):
    g = scaled_gradient(xp, g, rescale_grad, clip_gradient)
    history = history + g * g
    return w - lr * g / xp.sqrt(history + epsilon) - lr * wd * w, history


update(
    "_sparse_adagrad_update",
    ("weight", "grad", "history"),
    (LR, num("epsilon", 1e-7), *COMMON),
    _adagrad_ref,
    mutates=("history",),
    doc="AdaGrad. Source: Duchi et al. 2011.",
)


# The next three are plait's own: in MXNet these optimizers are made of arithmetic on arrays


def _adadelta_ref(xp, w, g, squares, steps, *, rho, epsilon, wd, rescale_grad, clip_gradient):
    g = scaled_gradient(xp, g, rescale_grad, clip_gradient)
    squares = rho * squares + (1 - rho) * g * g
    step = xp.sqrt(steps + epsilon) / xp.sqrt(squares + epsilon) * g
    return w - (step + wd * w), squares, rho * steps + (1 - rho) * step * step


def _adamax_ref(xp, w, g, mean, largest, *, lr, beta1, beta2, wd, rescale_grad, clip_gradient):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    decayed, size = beta2 * largest, xp.abs(g)
    largest = xp.where(size > decayed, size, decayed)
    return w - lr * mean / largest, mean, largest


def _nadam_ref(
    xp,
    w,
    g,
    mean,
    var,
    *,
    lr,
    beta1,
    beta2,
    epsilon,
    of_grad,
    of_mean,
    of_var,
    wd,
    rescale_grad,
    clip_gradient,
):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    step = of_grad * g + of_mean * mean
    return w - lr * step / (xp.sqrt(of_var * var) + epsilon), mean, var


update(
    "_adadelta_update",
    ("weight", "grad", "n", "v"),
    (num("rho", 0.9), num("epsilon", 1e-5), *COMMON),
    _adadelta_ref,
    mutates=("n", "v"),
    doc="AdaDelta: n and v are means of squared gradients and steps. Source: Zeiler 2012.",
)
update(
    "_adamax_update",
    ("weight", "grad", "mean", "n"),
    (LR, BETA1, BETA2, *COMMON),
    _adamax_ref,
    mutates=("mean", "n"),
    doc="Adamax; the optimizer puts the bias correction into lr. Source: Kingma and Ba 2015.",
)
update(
    "_nadam_update",
    ("weight", "grad", "mean", "var"),
    (
        LR,
        BETA1,
        BETA2,
        num("epsilon", 1e-8),
        num("of_grad", 1.0),
        num("of_mean", 1.0),
        num("of_var", 1.0),
        *COMMON,
    ),
    _nadam_ref,
    mutates=("mean", "var"),
    doc="Nadam: of_grad, of_mean and of_var are its schedule's factors. Source: Dozat 2016.",
)
