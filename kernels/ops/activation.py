"""Activation layers."""

from __future__ import annotations

import math

from ...engine.error import OperatorError, ShapeError
from ..activations import ACTIVATIONS, Act
from ..loops import activation_form, leaky_form
from ..pointwise import pointwise, sum_to
from ..record import Param, Type, operator, same_type, sample, uniform
from ..shapes import prelu_shape
from ..traits import Activates, LoopForm, Slope

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al. 2017


KINDS = ("relu", "sigmoid", "softrelu", "softsign", "tanh")

operator(
    "Activation",
    aliases=("_npx_activation",),
    traits=(Activates(lambda act_type: Act(act_type)), LoopForm(activation_form)),
    params=(Param("act_type", KINDS),),
    infer=same_type,
    inplace=((0, 0),),
    ref=lambda xp, x, *, act_type: ACTIVATIONS[act_type].value(xp, x),
    grad=lambda F, dys, xs, ys, act_type: [
        dys[0] * ACTIVATIONS[act_type].factor(F, lambda: xs[0], lambda: ys[0])
    ],
    samples=tuple(sample(uniform((3, 4), -3, 3), act_type=a) for a in KINDS)
    + tuple(sample(uniform((2, 3, 1), -30, 30), act_type=a) for a in ("sigmoid", "softrelu")),
    doc=(
        "relu max(x, 0); sigmoid 1 / (1 + e^-x); softrelu log(1 + e^x); softsign x / (1 + |x|);"
        " tanh."
    ),
)


GELU = ACTIVATIONS["gelu"]


def _leaky_inputs(act_type, **_):
    return ("data", "gamma") if act_type == "prelu" else ("data",)


def _leaky_infer(ins, act_type, lower_bound, upper_bound, train, **_):
    x = ins[0]
    if act_type == "rrelu":
        if lower_bound > upper_bound:
            raise OperatorError(
                "LeakyReLU",
                f"lower_bound must be at most upper_bound, got {lower_bound} and {upper_bound}",
            )
        return [x, x]
    if act_type == "prelu":
        g = prelu_shape(x.shape, ins[1].shape)
        if len(g) > len(x.shape) or any(m not in (1, n) for m, n in zip(g[::-1], x.shape[::-1])):
            raise ShapeError(
                "LeakyReLU",
                "gamma must have 1 element, one for each channel data.shape[1], or shape"
                f" data.shape[:2], got data {x.shape} and gamma {ins[1].shape}",
            )
    return [x]


def _leaky_fill(ins, act_type, **_):
    if act_type == "prelu" and ins[0] is not None and ins[1] is None:
        shape = ins[0].shape
        return [ins[0], Type((shape[1] if len(shape) > 1 else shape[0],), ins[0].dtype)]
    return list(ins)


def _leaky_ref(xp, x, gamma=None, *, act_type, slope, lower_bound, upper_bound, rng, train):
    if act_type == "leaky":
        return ACTIVATIONS["leaky"].value(xp, x, slope)
    if act_type == "prelu":
        return xp.where(x > 0, x, gamma.reshape(prelu_shape(x.shape, gamma.shape)) * x)
    if act_type == "elu":
        return xp.where(x > 0, x, slope * xp.expm1(xp.minimum(x, 0)))
    if act_type == "selu":
        return SELU_SCALE * xp.where(x > 0, x, SELU_ALPHA * xp.expm1(xp.minimum(x, 0)))
    if act_type == "gelu":
        return ACTIVATIONS["gelu"].value(xp, x)
    slopes = (
        rng.uniform(lower_bound, upper_bound, x.shape) if train else (lower_bound + upper_bound) / 2
    )
    mask = xp.where(x > 0, 1, slopes).astype(x.dtype)
    return x * mask, mask


def _leaky_grad(F, dys, xs, ys, act_type, slope, lower_bound, upper_bound, train):
    dy = dys[0]
    if act_type == "rrelu":
        return [dy * ys[1]]
    if act_type == "leaky":
        up = xs[0] > 0
        return [dy * (up * (1.0 - slope) + slope)]
    if act_type == "prelu":
        x, gamma = xs
        g = F.reshape_to(gamma, shape=prelu_shape(x.shape, gamma.shape))
        up = x > 0
        dx = F.where(up, dy, F.broadcast_mul(dy, g))
        falls = F.where(up, F.zeros_like(x), dy * x)
        return [dx, F.reshape_to(sum_to(F, falls, g.shape), shape=gamma.shape)]
    if act_type == "elu":
        x, y = xs[0], ys[0]
        up = x > 0
        return [dy * F.where(up, F.ones_like(y), y + slope)]
    if act_type == "selu":
        x, y = xs[0], ys[0]
        up = x > 0
        steep = F.ones_like(y) * SELU_SCALE
        return [dy * F.where(up, steep, y + SELU_SCALE * SELU_ALPHA)]
    return [F._gelu_grad(dy, xs[0])]


def _gelu_slope(F, x):
    cdf = F.erf(x * (1 / math.sqrt(2))) * 0.5 + 0.5
    return cdf + x * _density(F, x)


def _density(F, x):
    return F.exp(F.square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))


pointwise(
    "_gelu_grad",
    f"a * ({GELU.renamed(GELU.slope_text, x='b')})",
    inputs=("dy", "data"),
    traits=(Slope("gelu"),),
    ref=lambda xp, dy, x: dy * GELU.slope(xp, x),
    grad=lambda F, g, dy, x, y: (
        g * _gelu_slope(F, x),
        g * dy * _density(F, x) * (2.0 - F.square(x)),
    ),
    doc="dy times the slope of gelu, (1 + erf(x / sqrt 2)) / 2 + x e^(-x^2 / 2) / sqrt(2 pi).",
)


def _leaky_act(act_type, slope, **_):
    return {"gelu": Act("gelu"), "leaky": Act("leaky", slope)}.get(act_type)


operator(
    "LeakyReLU",
    aliases=("_npx_leaky_relu",),
    traits=(Activates(_leaky_act), LoopForm(leaky_form)),
    inputs=("data", "gamma"),
    input_names=_leaky_inputs,
    params=(
        Param("act_type", ("elu", "gelu", "leaky", "prelu", "rrelu", "selu"), "leaky"),
        Param("slope", "float", 0.25),
        Param("lower_bound", "float", 0.125),
        Param("upper_bound", "float", 0.334),
    ),
    n_outputs=lambda act_type, **_: 2 if act_type == "rrelu" else 1,
    output_names=("output", "mask"),
    random=lambda act_type, train, **_: act_type == "rrelu" and train,
    train_aware=True,
    infer=_leaky_infer,
    fill=_leaky_fill,
    ref=_leaky_ref,
    grad=_leaky_grad,
    samples=(
        *(
            sample(uniform((3, 4), -3, 3), act_type=a)
            for a in ("leaky", "elu", "selu", "gelu", "rrelu")
        ),
        sample(uniform((5, 2), -6, 6), act_type="gelu"),
        sample((3, 4), slope=0.1),
        sample((3, 4), slope=1.5, act_type="elu"),
        sample((2, 3, 4), (3,), act_type="prelu"),
        sample((2, 3, 4), (2, 3), act_type="prelu"),
        sample((2, 3), (1,), act_type="prelu"),
        sample((4,), (4,), act_type="prelu"),
    ),
    doc=(
        "x where x > 0, else: leaky slope x; prelu gamma x (gamma learned: one, one per channel, or"
        " one per row and channel); elu slope (e^x - 1); selu the scaled elu; gelu x times the"
        " normal distribution function (for all x); rrelu a random slope in [lower_bound,"
        " upper_bound) while training, their mean otherwise, with the slopes as a second output."
        " Sources: Maas et al. 2013, He et al. 2015, Clevert et al. 2015, Klambauer et al. 2017,"
        " Hendrycks and Gimpel 2016, Xu et al. 2015."
    ),
)
