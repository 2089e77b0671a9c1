"""Updates of AdamW and LAMB for many weights in one call, and AdaGrad with a rate for each row."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import WEIGHTS, Param, operator, sample, uniform
from ..shapes import must_be
from ..traits import WeightUpdate
from . import update_adaptive, update_layerwise
from .update import BETA1, BETA2, CLIP, FUSED, clip, num


def _register(name, group, lists, params, count, ref, doc, rescale=False, *, by):
    """The update of many weights: groups of arrays (`group`), of which those after weight and grad
    are written; `lists`: parameters with one number for each weight, `count`: how many weights.

    by: the rule of the loop.
    ref: (xp, *arrays, i, **attrs) -> (weight, *states), with `lists` given as their i-th numbers.
    rescale: rescale_grad is a last input of one number.
    """
    size = len(group)

    def infer(ins, **attrs):
        n = attrs[count]
        if len(ins) != size * n + rescale:
            raise OperatorError(
                name,
                f"needs {size} arrays ({', '.join(group)}) for each of {n} weights"
                f"{', then rescale_grad' if rescale else ''}, got {len(ins)} arrays",
                fix=f"set {count}",
            )
        for key in lists:
            if len(attrs[key]) != n:
                raise OperatorError(name, f"{key} must have {count}={n} numbers, got {attrs[key]}")
        for i in range(n):
            weight = ins[i * size]
            for t, what in zip(ins[i * size : (i + 1) * size], group):
                must_be(name, f"{what} {i}", t, weight.shape)
        if rescale and any(n != 1 for n in ins[-1].shape):
            raise ShapeError(name, f"rescale_grad must have one element, got {ins[-1].shape}")
        return [ins[i * size] for i in range(n)]

    def run(xp, *arrays, **attrs):
        n, given = attrs.pop(count), {key: attrs.pop(key) for key in lists}
        tail = arrays[size * n :]
        done = [
            ref(
                xp,
                *arrays[i * size : (i + 1) * size],
                *tail,
                **{key: values[i] for key, values in given.items()},
                **attrs,
            )
            for i in range(n)
        ]
        return (*(d[0] for d in done), *(v for d in done for v in d[1:]))

    shapes = ((3, 4), (5,))
    inputs = [uniform(s, 0.5, 2) if what == "var" else s for s in shapes for what in group] + [
        uniform((1,), 0.5, 2)
    ] * rescale
    numbers = {key: (2, 3) if key == "step_count" else (0.1, 0.2) for key in lists}
    operator(
        name,
        inputs=("*data",),
        input_names=lambda **attrs: (
            *(f"{what}_{i}" for i in range(attrs[count]) for what in group),
            *["rescale_grad"] * rescale,
        ),
        params=(*params, Param(count, "int", 1, limits=WEIGHTS)),
        infer=infer,
        ref=run,
        n_outputs=lambda **attrs: attrs[count],
        mutates=lambda n_inputs, **attrs: tuple(
            i * size + m for i in range(attrs[count]) for m in range(2, size)
        ),
        traits=(WeightUpdate(by, "weight32" in group),),
        inplace=tuple((i * size, i) for i in range(FUSED)),
        doc=doc,
        samples=(
            sample(*inputs, **numbers, **{count: 2}),
            sample(*inputs, **numbers, **{count: 2}, clip_gradient=0.3),
        ),
    )


def _numbers(name):
    return Param(name, "floats", dynamic=True)


def _adamw(xp, *arrays, lrs, wds, etas, **attrs):
    return update_adaptive.adamw(xp, *arrays, lr=lrs, wd=wds, eta=etas, **attrs)


def _mp_adamw(xp, *arrays, lrs, wds, etas, **attrs):
    return update_adaptive.mp_adamw(xp, *arrays, lr=lrs, wd=wds, eta=etas, **attrs)


_ADAMW = (
    _numbers("lrs"),
    BETA1,
    BETA2,
    num("epsilon", 1e-8),
    _numbers("wds"),
    _numbers("etas"),
    CLIP,
)
_MOMENTS = ("weight", "grad", "mean", "var")
_register(
    "_multi_adamw_update",
    _MOMENTS,
    ("lrs", "wds", "etas"),
    _ADAMW,
    "num_weights",
    _adamw,
    "_adamw_update of many weights with lrs, wds and etas; rescale_grad is the last input.",
    rescale=True,
    by="_adamw_update",
)
_register(
    "_multi_mp_adamw_update",
    (*_MOMENTS, "weight32"),
    ("lrs", "wds", "etas"),
    _ADAMW,
    "num_weights",
    _mp_adamw,
    "_mp_adamw_update of many weights with lrs, wds and etas; rescale_grad is the last input.",
    rescale=True,
    by="_adamw_update",
)


def _lamb(
    xp,
    w,
    g,
    mean,
    var,
    *,
    learning_rates,
    wds,
    step_count,
    lower_bound,
    upper_bound,
    measured=None,
    **attrs,
):
    step, mean, var = update_layerwise.lamb_direction(
        xp, w, g, mean, var, t=step_count, wd=wds, **attrs
    )
    norms = [xp.sqrt((a * a).sum()) for a in (w if measured is None else measured, step)]
    bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
    return update_layerwise.lamb_step(xp, w, step, *norms, lr=learning_rates, **bounds), mean, var


def _mp_lamb(xp, w, g, mean, var, w32, **attrs):
    # the norm is that of the narrow weight, as in MXNet
    measured = w.astype(w32.dtype)
    new, mean, var = _lamb(xp, w32, g.astype(w32.dtype), mean, var, measured=measured, **attrs)
    return new, mean, var, new


_LAMB = (
    _numbers("learning_rates"),
    BETA1,
    BETA2,
    num("epsilon", 1e-6),
    _numbers("wds"),
    num("rescale_grad", 1.0),
    num("lower_bound", -1.0),
    num("upper_bound", -1.0),
    CLIP,
    Param("bias_correction", "bool", True),
    _numbers("step_count"),
)
_register(
    "_multi_lamb_update",
    _MOMENTS,
    ("learning_rates", "wds", "step_count"),
    _LAMB,
    "num_tensors",
    _lamb,
    "LAMB's two phases for many weights with their own learning_rates, wds and step_count.",
    by="lamb",
)
_register(
    "_multi_mp_lamb_update",
    (*_MOMENTS, "weight32"),
    ("learning_rates", "wds", "step_count"),
    _LAMB,
    "num_tensors",
    _mp_lamb,
    "_multi_lamb_update of weight32, rounded to weight's dtype.",
    by="lamb",
)


_GROUP = "_contrib_group_adagrad_update"


def _group_infer(ins, **_):
    w = ins[0].shape
    if len(w) < 1:
        raise ShapeError(_GROUP, f"weight needs at least 1 dimension, got {w}")
    must_be(_GROUP, "grad", ins[1], w)
    if ins[2].shape != w[:1]:
        must_be(_GROUP, "history", ins[2], (w[0], *[1] * (len(w) - 1)))
    return [ins[0]]


def _group_ref(xp, w, g, history, *, lr, rescale_grad, clip_gradient, epsilon):
    g = clip(xp, rescale_grad * g, clip_gradient)
    squares = (g * g).mean(axis=tuple(range(1, g.ndim)))
    history = history + squares.reshape(history.shape)
    spread = xp.sqrt(history + epsilon).reshape(-1, *[1] * (w.ndim - 1))
    return w - lr * g / spread, history


operator(
    _GROUP,
    inputs=("weight", "grad", "history"),
    params=(num("lr"), num("rescale_grad", 1.0), CLIP, num("epsilon", 1e-5)),
    infer=_group_infer,
    ref=_group_ref,
    mutates=("history",),
    inplace=((0, 0),),
    samples=(
        sample((3, 4), (3, 4), uniform((3, 1), 0.5, 2), lr=0.1),
        sample((3, 4), (3, 4), uniform((3,), 0.5, 2), lr=0.1, clip_gradient=0.3),
    ),
    doc=(
        "AdaGrad with one rate for each row: history = history + mean(grad^2) of the row; weight -"
        " lr * grad / sqrt(history + epsilon)."
    ),
)
