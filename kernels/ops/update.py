"""Updates of optimizers. Each returns the new weight (write it with out=weight) and writes its
states in place.

Numbers that change from step to step are dynamic parameters; a negative clip value means no
clipping.
"""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import COUNT, WEIGHTS, Param, Type, operator, sample, uniform
from ..shapes import must_be
from ..update_loops import rule

FUSED = 256  # weights of one multi-tensor call that may be written over themselves


def num(name, *default):
    return Param(name, "float", *default, dynamic=True)


_LR, _WD, _RESCALE, _CLIP = (
    num("lr"),
    num("wd", 0.0),
    num("rescale_grad", 1.0),
    num("clip_gradient", -1.0),
)
_MOMENTUM, _LAZY = num("momentum", 0.0), Param("lazy_update", "bool", True)
_COMMON = (_WD, _RESCALE, _CLIP)


def clip(xp, g, limit):
    return xp.where(limit >= 0, xp.clip(g, -limit, limit), g)


def _gradient(xp, grad, rescale_grad, clip_gradient):
    return clip(xp, rescale_grad * grad, clip_gradient)


def _check_same(name, inputs, skip=()):
    """Inference: all inputs have the weight's shape, those of `skip` one element."""

    def infer(ins, **_):
        for t, n in zip(ins, inputs):
            if n in skip and any(length != 1 for length in t.shape):
                raise ShapeError(name, f"{n} must have one element, got shape {t.shape}")
            if t.shape != ins[0].shape and n not in skip:
                raise ShapeError(
                    name, f"{n} must have the weight's shape {ins[0].shape}, got {t.shape}"
                )
        return [ins[0]]

    return infer


def update(name, inputs, params, ref, doc, mutates=(), aliases=(), skip=(), samples=None):
    """Registers an update: ref gives the new weight, then the new value of each mutated input.
    Where all inputs are arrays like the weight, ref is the rule of the loop, too."""
    states = [
        uniform((3, 4), 0.5, 2) if i in ("n", "var", "history", "v", "d") else (3, 4)
        for i in inputs[2:]
    ]
    if name == "rmspropalex_update":
        states[1] = uniform((3, 4), -0.5, 0.5)
    given = {p.name: 0.1 for p in params if p.name in ("lr", "wd", "eta") and p.kind == "float"}
    more = (
        {"clip_gradient": 0.3, "rescale_grad": 0.5}
        if any(p.name == "rescale_grad" for p in params)
        else {}
    )
    given |= {p.name: 3 for p in params if p.name == "t"}
    operator(
        name,
        inputs=inputs,
        params=params,
        infer=_check_same(name, inputs, skip),
        ref=ref,
        mutates=mutates,
        aliases=aliases,
        inplace=((0, 0),),
        doc=doc,
        samples=samples
        or (
            sample((3, 4), (3, 4), *states, **given),
            sample((3, 4), (3, 4), *states, **given, **more),
        ),
    )
    if not skip and "weight32" not in inputs:
        rule(name, ref, len(inputs) - 2, [p.name for p in params if p.dynamic])


# Stochastic gradient descent: one weight


def sgd(xp, w, g, lr, wd, rescale_grad, clip_gradient):
    return (1 - lr * wd) * w - lr * _gradient(xp, g, rescale_grad, clip_gradient)


def sgd_mom(xp, w, g, mom, lr, wd, momentum, rescale_grad, clip_gradient):
    mom = momentum * mom - lr * wd * w - lr * _gradient(xp, g, rescale_grad, clip_gradient)
    return w + mom, mom


def _sgd_ref(xp, w, g, *, lr, wd, rescale_grad, clip_gradient, **_):
    return sgd(xp, w, g, lr, wd, rescale_grad, clip_gradient)


def _sgd_mom_ref(xp, w, g, mom, *, lr, wd, momentum, rescale_grad, clip_gradient, **_):
    return sgd_mom(xp, w, g, mom, lr, wd, momentum, rescale_grad, clip_gradient)


def _mp(ref):
    """The multi-precision form: the last input is the float32 weight, which is updated and rounded
    to the weight."""

    def mp_ref(xp, w, g, *rest, **attrs):
        *states, w32 = rest
        new = ref(xp, w32, g.astype(w32.dtype), *states, **attrs)
        new = new if isinstance(new, tuple) else (new,)
        return (new[0], *new[1:], new[0])

    return mp_ref


update(
    "sgd_update",
    ("weight", "grad"),
    (_LR, *_COMMON, _LAZY),
    _sgd_ref,
    aliases=("_sparse_sgd_update",),
    doc="weight - lr * (clip(rescale_grad * grad) + wd * weight).",
)
update(
    "sgd_mom_update",
    ("weight", "grad", "mom"),
    (_LR, _MOMENTUM, *_COMMON, _LAZY),
    _sgd_mom_ref,
    mutates=("mom",),
    aliases=("_sparse_sgd_mom_update",),
    doc="mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * weight); weight + mom.",
)
update(
    "mp_sgd_update",
    ("weight", "grad", "weight32"),
    (_LR, *_COMMON, _LAZY),
    _mp(_sgd_ref),
    mutates=("weight32",),
    doc="sgd_update of weight32, rounded to weight's dtype.",
)
update(
    "mp_sgd_mom_update",
    ("weight", "grad", "mom", "weight32"),
    (_LR, _MOMENTUM, *_COMMON, _LAZY),
    _mp(_sgd_mom_ref),
    mutates=("mom", "weight32"),
    doc="sgd_mom_update of weight32, rounded to weight's dtype.",
)


def _nag_ref(xp, w, g, mom, *, lr, wd, momentum, rescale_grad, clip_gradient):
    step = lr * (_gradient(xp, g, rescale_grad, clip_gradient) + wd * w)
    mom = momentum * mom - step
    return w + momentum * mom - step, mom


update(
    "nag_mom_update",
    ("weight", "grad", "mom"),
    (_LR, _MOMENTUM, *_COMMON),
    _nag_ref,
    mutates=("mom",),
    doc="Nesterov's accelerated gradient.",
)
update(
    "mp_nag_mom_update",
    ("weight", "grad", "mom", "weight32"),
    (_LR, _MOMENTUM, *_COMMON),
    _mp(_nag_ref),
    mutates=("mom", "weight32"),
    doc="nag_mom_update of weight32, rounded to weight's dtype.",
)


# Stochastic gradient descent: many weights


def _groups(arrays, size):
    return [arrays[i : i + size] for i in range(0, len(arrays), size)]


def multi(name, group, mutated, ref, params, doc, preloaded=False):
    """Registers the update of `num_weights` weights: inputs are groups like (w, g, mom), of which
    `mutated` are written.

    preloaded: learning rates and weight decays come as the last two inputs instead of as
        attributes.
    """
    size, tail = len(group), 2 if preloaded else 0

    def check(n_inputs, num_weights):
        if n_inputs != size * num_weights + tail:
            raise OperatorError(
                name,
                f"needs {size} arrays ({', '.join(group)}) for each of {num_weights} weights"
                f"{', then lrs and wds' if preloaded else ''}, got {n_inputs} arrays",
                fix="set num_weights",
            )

    def infer(ins, num_weights, **attrs):
        check(len(ins), num_weights)
        for key in ("lrs", "wds"):
            if not preloaded and len(attrs[key]) != num_weights:
                raise OperatorError(
                    name, f"{key} must have num_weights={num_weights} numbers, got {attrs[key]}"
                )
        for i, types in enumerate(_groups(ins[: size * num_weights], size)):
            for t, n in zip(types, group):
                if t.shape != types[0].shape:
                    raise ShapeError(
                        name,
                        f"{n} {i} must have its weight's shape {types[0].shape}, got {t.shape}",
                    )
        if preloaded:
            for key, rates in zip(("lrs", "wds"), ins[-2:]):
                must_be(name, key, rates, (num_weights,))
        return [ins[i * size] for i in range(num_weights)]

    def run(xp, *arrays, num_weights, **attrs):
        if preloaded:
            attrs["lrs"], attrs["wds"] = arrays[-2], arrays[-1]
        lrs, wds = attrs.pop("lrs"), attrs.pop("wds")
        done = [
            ref(xp, *given, lr=lr, wd=wd, **attrs)
            for given, lr, wd in zip(_groups(arrays[: size * num_weights], size), lrs, wds)
        ]
        done = [d if isinstance(d, tuple) else (d,) for d in done]
        return (*(d[0] for d in done), *(v for d in done for v in d[1:]))

    own = (Param("lrs", "floats", dynamic=True), Param("wds", "floats", dynamic=True))
    numbers = {} if preloaded else {"lrs": (0.1, 0.2), "wds": (0.0, 0.1)}
    rates = (uniform((2,), 0.05, 0.2), uniform((2,), 0, 0.1)) if preloaded else ()
    given = [s for s in ((3, 4), (5,)) for _ in group]
    operator(
        name,
        inputs=("*data",),
        input_names=lambda num_weights, **_: (
            *(f"{what}_{i}" for i in range(num_weights) for what in group),
            *("lrs", "wds")[:tail],
        ),
        params=(
            *(() if preloaded else own),
            *params,
            Param("num_weights", "int", 1, limits=WEIGHTS),
        ),
        infer=infer,
        ref=run,
        n_outputs=lambda num_weights, **_: num_weights,
        mutates=lambda n_inputs, num_weights, **_: tuple(
            i * size + m for i in range(num_weights) for m in mutated
        ),
        inplace=tuple((i * size, i) for i in range(FUSED)),
        doc=doc,
        samples=(
            sample(*given, *rates, num_weights=2, **numbers),
            sample(*given, *rates, num_weights=2, clip_gradient=0.3, rescale_grad=0.5, **numbers),
        ),
    )


for _prefix, _before in (("", False), ("preloaded_", True)):
    _rates = "the arrays lrs and wds, the last two inputs" if _before else "lrs and wds"
    multi(
        f"{_prefix}multi_sgd_update",
        ("weight", "grad"),
        (),
        _sgd_ref,
        (_RESCALE, _CLIP),
        preloaded=_before,
        doc=f"sgd_update of many weights with {_rates}.",
    )
    multi(
        f"{_prefix}multi_sgd_mom_update",
        ("weight", "grad", "mom"),
        (2,),
        _sgd_mom_ref,
        (_MOMENTUM, _RESCALE, _CLIP),
        preloaded=_before,
        doc=f"sgd_mom_update of many weights with {_rates}.",
    )
    multi(
        f"{_prefix}multi_mp_sgd_update",
        ("weight", "grad", "weight32"),
        (2,),
        _mp(_sgd_ref),
        (_RESCALE, _CLIP),
        preloaded=_before,
        doc=f"mp_sgd_update of many weights with {_rates}.",
    )
    multi(
        f"{_prefix}multi_mp_sgd_mom_update",
        ("weight", "grad", "mom", "weight32"),
        (2, 3),
        _mp(_sgd_mom_ref),
        (_MOMENTUM, _RESCALE, _CLIP),
        preloaded=_before,
        doc=f"mp_sgd_mom_update of many weights with {_rates}.",
    )


# Adaptive updates


def _adam_ref(
    xp, w, g, mean, var, *, lr, beta1, beta2, epsilon, wd, rescale_grad, clip_gradient, **_
):
    g = clip(xp, rescale_grad * g + wd * w, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return w - lr * mean / (xp.sqrt(var) + epsilon), mean, var


_BETA1, _BETA2 = num("beta1", 0.9), num("beta2", 0.999)

update(
    "adam_update",
    ("weight", "grad", "mean", "var"),
    (_LR, _BETA1, _BETA2, num("epsilon", 1e-8), *_COMMON, _LAZY),
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
    (_BETA1, _BETA2, num("epsilon", 1e-8), _RESCALE, _CLIP),
    doc="adam_update of many weights with lrs and wds.",
)


def _adamw_step(
    xp, w, g, mean, var, *, lr, beta1, beta2, epsilon, wd, eta, rescale_grad, clip_gradient
):
    g = clip(xp, rescale_grad * g, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return w - eta * (lr * mean / (xp.sqrt(var) + epsilon) + wd * w), mean, var


def adamw(xp, w, g, mean, var, rescale, **numbers):
    scale = rescale.reshape(-1)[0]
    usable = xp.isfinite(scale) & (scale != 0)  # else the gradient overflowed: no update
    scale = xp.where(usable, scale, 0)
    new = _adamw_step(xp, w, g, mean, var, rescale_grad=scale, **numbers)
    return tuple(xp.where(usable, now, old) for now, old in zip(new, (w, mean, var)))


def mp_adamw(xp, w, g, mean, var, w32, rescale, **attrs):
    new, mean, var = adamw(xp, w32, g.astype(w32.dtype), mean, var, rescale, **attrs)
    return new, mean, var, new


_ADAMW = (_LR, _BETA1, _BETA2, num("epsilon", 1e-8), _WD, num("eta"), _CLIP)
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


_RMSPROP = (num("epsilon", 1e-8), *_COMMON, num("clip_weights", -1.0))

update(
    "rmsprop_update",
    ("weight", "grad", "n"),
    (_LR, num("gamma1", 0.95), *_RMSPROP),
    _rmsprop_ref,
    mutates=("n",),
    doc="RMSProp. Source: Tieleman and Hinton 2012.",
)
update(
    "rmspropalex_update",
    ("weight", "grad", "n", "g", "delta"),
    (_LR, num("gamma1", 0.95), num("gamma2", 0.9), *_RMSPROP),
    _rmsprop_alex_ref,
    mutates=("n", "g", "delta"),
    doc="RMSProp, centred and with momentum. Source: Graves 2013, arXiv:1308.0850.",
)


def _ftrl_ref(xp, w, g, z, n, *, lr, lamda1, beta, wd, rescale_grad, clip_gradient):
    g = _gradient(xp, g, rescale_grad, clip_gradient)
    new_n = n + g * g
    z = z + g - (xp.sqrt(new_n) - xp.sqrt(n)) * w / lr
    shrunk = (xp.sign(z) * lamda1 - z) / ((beta + xp.sqrt(new_n)) / lr + wd)
    return shrunk * (xp.abs(z) > lamda1), z, new_n


update(
    "ftrl_update",
    ("weight", "grad", "z", "n"),
    (_LR, num("lamda1", 0.01), num("beta", 1.0), *_COMMON),
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
        _LR,
        num("beta1", 0.6),
        _BETA2,
        num("epsilon", 1e-8),
        Param("t", "int", dynamic=True),
        _WD,
        _RESCALE,
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
    mom = momentum * mom - (1 - momentum) * (wd * w + _gradient(xp, g, rescale_grad, clip_gradient))
    return (1 - lr * wd_lh) * w + lr * xp.sign(mom), mom


update(
    "signsgd_update",
    ("weight", "grad"),
    (_LR, *_COMMON),
    _signsgd_ref,
    doc=(
        "weight - lr * (sign(grad) + wd * weight). Source: Bernstein et al. 2018, arXiv:1802.04434."
    ),
)
update(
    "signum_update",
    ("weight", "grad", "mom"),
    (_LR, _MOMENTUM, *_COMMON, num("wd_lh", 0.0)),
    _signum_ref,
    mutates=("mom",),
    doc="signsgd_update of the momentum. Source: Bernstein et al. 2018, arXiv:1802.04434.",
)


def _adagrad_ref(xp, w, g, history, *, lr, epsilon, wd, rescale_grad, clip_gradient):
    g = _gradient(xp, g, rescale_grad, clip_gradient)
    history = history + g * g
    return w - lr * g / xp.sqrt(history + epsilon) - lr * wd * w, history


update(
    "_sparse_adagrad_update",
    ("weight", "grad", "history"),
    (_LR, num("epsilon", 1e-7), *_COMMON),
    _adagrad_ref,
    mutates=("history",),
    doc="AdaGrad. Source: Duchi et al. 2011.",
)


# The next three are plait's own: in MXNet these optimizers are made of arithmetic on arrays


def _adadelta_ref(xp, w, g, squares, steps, *, rho, epsilon, wd, rescale_grad, clip_gradient):
    g = _gradient(xp, g, rescale_grad, clip_gradient)
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
    (num("rho", 0.9), num("epsilon", 1e-5), *_COMMON),
    _adadelta_ref,
    mutates=("n", "v"),
    doc="AdaDelta: n and v are means of squared gradients and steps. Source: Zeiler 2012.",
)
update(
    "_adamax_update",
    ("weight", "grad", "mean", "n"),
    (_LR, _BETA1, _BETA2, *_COMMON),
    _adamax_ref,
    mutates=("mean", "n"),
    doc="Adamax; the optimizer puts the bias correction into lr. Source: Kingma and Ba 2015.",
)
update(
    "_nadam_update",
    ("weight", "grad", "mean", "var"),
    (
        _LR,
        _BETA1,
        _BETA2,
        num("epsilon", 1e-8),
        num("of_grad", 1.0),
        num("of_mean", 1.0),
        num("of_var", 1.0),
        *_COMMON,
    ),
    _nadam_ref,
    mutates=("mean", "var"),
    doc="Nadam: of_grad, of_mean and of_var are its schedule's factors. Source: Dozat 2016.",
)


# LAMB


def lamb_direction(
    xp,
    w,
    g,
    mean,
    var,
    *,
    beta1,
    beta2,
    epsilon,
    t,
    bias_correction,
    wd,
    rescale_grad,
    clip_gradient,
):
    g = _gradient(xp, g, rescale_grad, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    direction = _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd)
    return direction, mean, var


def _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd):
    m = mean / xp.where(bias_correction, 1 - beta1**t, 1.0)
    v = var / xp.where(bias_correction, 1 - beta2**t, 1.0)
    return m / (xp.sqrt(v) + epsilon) + wd * w


def _lamb_again(xp, w, g, mean, var, *, rate, beta1, beta2, epsilon, t, bias_correction, wd, **_):
    """The step along the direction whose moments are known."""
    return w - rate * _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd)


def lamb_step(xp, w, g, r1, r2, *, lr, lower_bound, upper_bound):
    r1, r2 = r1.reshape(-1)[0], r2.reshape(-1)[0]
    r1 = xp.where(lower_bound >= 0, xp.maximum(r1, lower_bound), r1)
    r1 = xp.where(upper_bound >= 0, xp.minimum(r1, upper_bound), r1)
    none = (r1 == 0) | (r2 == 0)
    return w - lr * xp.where(none, 1.0, r1 / xp.where(none, 1.0, r2)) * g


def _mp_lamb_step(xp, w, g, r1, r2, w32, **attrs):
    new = lamb_step(xp, w32, g, r1, r2, **attrs)
    return new, new


_LAMB = (
    _BETA1,
    _BETA2,
    num("epsilon", 1e-6),
    Param("t", "int", dynamic=True),
    Param("bias_correction", "bool", True),
    num("wd"),
    _RESCALE,
    _CLIP,
)
_LAMB_STEP = (_LR, num("lower_bound", -1.0), num("upper_bound", -1.0))
_NORMS = (uniform((1,), 0.5, 2), uniform((1,), 0.5, 2))
_LAMB_SOURCE = " Source: You et al. 2020, arXiv:1904.00962."

update(
    "lamb_update_phase1",
    ("weight", "grad", "mean", "var"),
    _LAMB,
    lamb_direction,
    mutates=("mean", "var"),
    doc="The direction of LAMB's step." + _LAMB_SOURCE,
)
update(
    "lamb_update_phase2",
    ("weight", "g", "r1", "r2"),
    _LAMB_STEP,
    lamb_step,
    skip=("r1", "r2"),
    samples=(
        sample((3, 4), (3, 4), *_NORMS, lr=0.1),
        sample((3, 4), (3, 4), *_NORMS, lr=0.1, lower_bound=0.9, upper_bound=1.1),
    ),
    doc="LAMB's step: r1 and r2 are the norms of weight and direction, one number each."
    + _LAMB_SOURCE,
)
rule("lamb_update_phase1", lamb_direction, 2, [p.name for p in _LAMB])
rule("lamb_again", _lamb_again, 2, [*(p.name for p in _LAMB), "rate"])
rule("lamb_update_phase2", lambda xp, w, g, rate: w - rate * g, 0, ["rate"])
operator(
    "mp_lamb_update_phase1",
    inputs=("weight", "grad", "mean", "var", "weight32"),
    params=_LAMB,
    mutates=("mean", "var"),
    infer=lambda ins, **_: [
        _check_same("mp_lamb_update_phase1", ("weight", "grad", "mean", "var", "weight32"))(ins)
        and ins[4]
    ],
    ref=lambda xp, w, g, mean, var, w32, **attrs: lamb_direction(xp, w32, g, mean, var, **attrs),
    samples=(sample((3, 4), (3, 4), (3, 4), uniform((3, 4), 0.5, 2), (3, 4), wd=0.1, t=3),),
    doc="lamb_update_phase1 with a float32 copy of the weight; the direction is float32.",
)
update(
    "mp_lamb_update_phase2",
    ("weight", "g", "r1", "r2", "weight32"),
    _LAMB_STEP,
    _mp_lamb_step,
    skip=("r1", "r2"),
    mutates=("weight32",),
    samples=(sample((3, 4), (3, 4), *_NORMS, (3, 4), lr=0.1),),
    doc="lamb_update_phase2 of weight32, rounded to weight's dtype.",
)


# Sums over many arrays

operator(
    "multi_sum_sq",
    inputs=("*data",),
    variadic_key="num_arrays",
    params=(Param("num_arrays", "int", limits=COUNT),),
    infer=lambda ins, num_arrays: [Type((len(ins),), "float32")],
    ref=lambda xp, *xs, num_arrays: xp.stack([(x * x).sum() for x in xs]),
    samples=(sample((3, 4), (2,), num_arrays=2),),
    doc="Sum of squares of each array: shape (number of arrays,).",
)
operator(
    "reset_arrays",
    inputs=("*data",),
    variadic_key="num_arrays",
    params=(Param("num_arrays", "int", limits=COUNT),),
    infer=lambda ins, num_arrays: [],
    n_outputs=0,
    mutates=lambda n_inputs, **_: tuple(range(n_inputs)),
    ref=lambda xp, *xs, num_arrays: tuple(xp.zeros(x.shape, x.dtype) for x in xs),
    samples=(sample((3, 4), (2,), num_arrays=2),),
    doc="Sets every array to 0.",
)


def _lars_ref(xp, lrs, weights, grads, wds, *, eta, eps, rescale_grad):
    w, g = xp.sqrt(weights), xp.sqrt(grads) * rescale_grad
    usable = (weights > 0) & (grads > 0)
    return xp.where(usable, lrs * eta * w / xp.where(usable, g + wds * w + eps, 1), lrs)


operator(
    "multi_lars",
    inputs=("lrs", "weights_sum_sq", "grads_sum_sq", "wds"),
    ref=_lars_ref,
    inplace=((0, 0),),
    params=(num("eta"), num("eps"), num("rescale_grad", 1.0)),
    infer=_check_same("multi_lars", ("lrs", "weights_sum_sq", "grads_sum_sq", "wds")),
    samples=(sample(*(uniform((3,), 0.1, 1),) * 4, eta=0.1, eps=1e-6),),
    doc=(
        "Learning rates scaled layer by layer: lr * eta * |w| / (|g| + wd * |w| + eps). Source: You"
        " et al. 2017."
    ),
)
