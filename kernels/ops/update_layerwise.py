"""Updates with a rate for each layer, LAMB and LARS, and the sums over arrays that they need."""

from __future__ import annotations

from typing import Any

from ..record import COUNT, Array, Param, Type, operator, sample, uniform
from ..traits import WeightUpdate
from ..update_loops import rule
from .update import BETA1, BETA2, CLIP, LR, RESCALE, check_same, num, scaled_gradient, update


def lamb_direction(
    xp: Any,
    w: Array,
    g: Array,
    mean: Array,
    var: Array,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    t: int,
    bias_correction: bool,
    wd: float,
    rescale_grad: float,
    clip_gradient: float,
) -> tuple[Array, Array, Array]:
    g = scaled_gradient(xp, g, rescale_grad, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    direction = _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd)
    return direction, mean, var


def _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd):
    m = mean / xp.where(bias_correction, 1 - beta1**t, 1.0)
    v = var / xp.where(bias_correction, 1 - beta2**t, 1.0)
    return m / (xp.sqrt(v) + epsilon) + wd * w


def _lamb_rematerialized(
    xp, w, g, mean, var, *, rate, beta1, beta2, epsilon, t, bias_correction, wd, **_
):
    """The step along the direction whose moments are known."""
    return w - rate * _corrected(xp, w, mean, var, beta1, beta2, epsilon, t, bias_correction, wd)


def lamb_step(
    xp: Any,
    w: Array,
    g: Array,
    r1: Array,
    r2: Array,
    *,
    lr: float,
    lower_bound: float,
    upper_bound: float,
) -> Array:
    r1, r2 = r1.reshape(-1)[0], r2.reshape(-1)[0]
    r1 = xp.where(lower_bound >= 0, xp.maximum(r1, lower_bound), r1)
    r1 = xp.where(upper_bound >= 0, xp.minimum(r1, upper_bound), r1)
    none = (r1 == 0) | (r2 == 0)
    return w - lr * xp.where(none, 1.0, r1 / xp.where(none, 1.0, r2)) * g


def _mp_lamb_step(xp, w, g, r1, r2, w32, **attrs):
    new = lamb_step(xp, w32, g, r1, r2, **attrs)
    return new, new


_LAMB = (
    BETA1,
    BETA2,
    num("epsilon", 1e-6),
    Param("t", "int", dynamic=True),
    Param("bias_correction", "bool", True),
    num("wd"),
    RESCALE,
    CLIP,
)
_LAMB_STEP = (LR, num("lower_bound", -1.0), num("upper_bound", -1.0))
_NORMS = (uniform((1,), 0.5, 2), uniform((1,), 0.5, 2))
_LAMB_SOURCE = " Source: You et al. 2020, arXiv:1904.00962."

update(
    "lamb_update_phase1",
    ("weight", "grad", "mean", "var"),
    _LAMB,
    lamb_direction,
    mutates=("mean", "var"),
    doc="The direction of LAMB's step." + _LAMB_SOURCE,
    by="lamb_update_phase1",
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
    by="lamb_update_phase2",
)
rule("lamb_update_phase1", lamb_direction, 2, [p.name for p in _LAMB])
rule("lamb_rematerialized", _lamb_rematerialized, 2, [*(p.name for p in _LAMB), "rate"])
rule("lamb_update_phase2", lambda xp, w, g, rate: w - rate * g, 0, ["rate"])
operator(
    "mp_lamb_update_phase1",
    traits=(WeightUpdate("lamb_update_phase1", wide=True),),
    inputs=("weight", "grad", "mean", "var", "weight32"),
    params=_LAMB,
    mutates=("mean", "var"),
    infer=lambda ins, **_: [
        check_same("mp_lamb_update_phase1", ("weight", "grad", "mean", "var", "weight32"))(ins)
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
    by="lamb_update_phase2",
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
    infer=check_same("multi_lars", ("lrs", "weights_sum_sq", "grads_sum_sq", "wds")),
    samples=(sample(*(uniform((3,), 0.1, 1),) * 4, eta=0.1, eps=1e-6),),
    doc=(
        "Learning rates scaled layer by layer: lr * eta * |w| / (|g| + wd * |w| + eps). Source: You"
        " et al. 2017."
    ),
)
