"""Activation layers and the softmax family."""

from __future__ import annotations

import math

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..pointwise import pointwise, sum_to
from ..record import FLOATS, Param, Type, dtype_name, operator, same_type, sample, uniform, values
from ..shapes import one_axis, prelu_shape
from .norm import cast_to

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al. 2017


def _softplus(xp, x):
    return xp.logaddexp(x, xp.zeros((), x.dtype))


def _sigmoid(xp, x):
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, e) / (1 + e)


_ACTIVATIONS = {
    "relu": lambda xp, x: xp.maximum(x, 0),
    "sigmoid": _sigmoid,
    "softrelu": _softplus,
    "softsign": lambda xp, x: x / (1 + xp.abs(x)),
    "tanh": lambda xp, x: xp.tanh(x),
}
_SLOPES = {  # derivative as a function of F, x, y; only softsign keeps x alive
    "relu": lambda F, x, y: y() > 0,
    "sigmoid": lambda F, x, y: y() * (1.0 - y()),
    "softrelu": lambda F, x, y: 1.0 - F.exp(-y()),
    "softsign": lambda F, x, y: 1.0 / F.square(F.abs(x()) + 1.0),
    "tanh": lambda F, x, y: 1.0 - F.square(y()),
}

operator(
    "Activation",
    aliases=("_npx_activation",),
    params=(Param("act_type", tuple(_ACTIVATIONS)),),
    infer=same_type,
    inplace=((0, 0),),
    ref=lambda xp, x, *, act_type: _ACTIVATIONS[act_type](xp, x),
    grad=lambda F, dys, xs, ys, act_type: [
        dys[0] * _SLOPES[act_type](F, lambda: xs[0], lambda: ys[0])
    ],
    samples=tuple(sample(uniform((3, 4), -3, 3), act_type=a) for a in _ACTIVATIONS)
    + tuple(sample(uniform((2, 3, 1), -30, 30), act_type=a) for a in ("sigmoid", "softrelu")),
    doc=(
        "relu max(x, 0); sigmoid 1 / (1 + e^-x); softrelu log(1 + e^x); softsign x / (1 + |x|);"
        " tanh."
    ),
)


def _erf(xp, x):
    """Error function to 1e-15: Taylor series near 0, Laplace's continued fraction beyond."""
    x = x.astype("float64")
    a = xp.abs(x)
    small, big = xp.minimum(a, 2.5), xp.maximum(a, 2.5)
    term, total = small, small
    for n in range(1, 60):
        term = term * (2 * small * small) / (2 * n + 1)
        total = total + term
    near = total * xp.exp(-small * small) * (2 / math.sqrt(math.pi))
    fraction = big
    for n in range(60, 0, -1):
        fraction = big + n / 2 / fraction
    far = 1 - xp.exp(-big * big) / fraction / math.sqrt(math.pi)
    return xp.where(xp.isnan(x), x, xp.sign(x) * xp.where(a < 2.5, near, far))


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
        return xp.where(x > 0, x, slope * x)
    if act_type == "prelu":
        return xp.where(x > 0, x, gamma.reshape(prelu_shape(x.shape, gamma.shape)) * x)
    if act_type == "elu":
        return xp.where(x > 0, x, slope * xp.expm1(xp.minimum(x, 0)))
    if act_type == "selu":
        return SELU_SCALE * xp.where(x > 0, x, SELU_ALPHA * xp.expm1(xp.minimum(x, 0)))
    if act_type == "gelu":
        return x * 0.5 * (1 + _erf(xp, x / math.sqrt(2))).astype(x.dtype)
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


def _gelu_grad_ref(xp, dy, x):
    density = xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return dy * ((_erf(xp, x / math.sqrt(2)) * 0.5 + 0.5).astype(x.dtype) + x * density)


pointwise(
    "_gelu_grad",
    "a * (erf(b * 0.7071067811865475) * 0.5 + 0.5 + b * exp(b * b * -0.5) * 0.3989422804014327)",
    inputs=("dy", "data"),
    ref=_gelu_grad_ref,
    grad=lambda F, g, dy, x, y: (
        g * _gelu_slope(F, x),
        g * dy * _density(F, x) * (2.0 - F.square(x)),
    ),
    doc="dy times the slope of gelu, (1 + erf(x / sqrt 2)) / 2 + x e^(-x^2 / 2) / sqrt(2 pi).",
)


operator(
    "LeakyReLU",
    aliases=("_npx_leaky_relu",),
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


# softmax and its relatives

_SOFTMAX_PARAMS = (
    Param("axis", "int", -1),
    Param("temperature", "float?", None),
    Param("dtype", ("None", "float16", "float32", "float64"), None),
    Param("use_length", "bool?", False),
)


def _softmax_infer(name):
    def infer(ins, axis, temperature, dtype, use_length):
        x = ins[0]
        a = one_axis(name, axis, len(x.shape))
        if x.dtype not in FLOATS and dtype is None:
            raise DTypeError(
                name, f"data must be a float array, got {x.dtype}", fix="set dtype='float32'"
            )
        if use_length:
            if name != "softmax":
                raise OperatorError(name, "use_length is only for softmax")
            want = x.shape[:a] + x.shape[a + 1 :]
            if ins[1].shape != want:
                raise ShapeError(
                    name,
                    f"length must have data's shape without axis {axis} = {want}, got data"
                    f" {x.shape} and length {ins[1].shape}",
                )
            if ins[1].dtype in FLOATS:
                raise DTypeError(
                    name,
                    f"length must be an integer array, got {ins[1].dtype}",
                    fix="length.astype('int32')",
                )
        return [Type(x.shape, dtype or x.dtype)]

    return infer


def _logits(xp, x, temperature, dtype):
    x = x.astype("float64" if "float64" in (dtype, x.dtype.name) else "float32")
    return x if temperature is None else x / temperature


def _length_mask(xp, x, length, axis):
    steps = xp.arange(x.shape[axis]).reshape(
        [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    )
    return steps < xp.expand_dims(length, axis)


def _exps(xp, z, axis, mask=None):
    if z.size == 0:
        return z
    z = z if mask is None else xp.where(mask, z, -xp.inf)
    top = z.max(axis=axis, keepdims=True)
    return xp.exp(z - xp.where(xp.isfinite(top), top, 0))


def softmax(xp, z, axis=-1, mask=None):
    e = _exps(xp, z, axis, mask)
    total = e.sum(axis=axis, keepdims=True)
    return e / (total if mask is None else xp.where(total == 0, 1, total))


def log_softmax(xp, z, axis=-1):
    if z.size == 0:
        return z
    z = z - z.max(axis=axis, keepdims=True)
    return z - xp.log(xp.exp(z).sum(axis=axis, keepdims=True))


def _softmax_ref(xp, x, length=None, *, axis, temperature, dtype, use_length):
    return softmax(
        xp,
        _logits(xp, x, temperature, dtype),
        axis,
        _length_mask(xp, x, length, axis) if use_length else None,
    )


def _back(scale):
    """The gradient of softmax-like operators: the fused backward, then temperature and dtype."""

    def finish(F, g, x, temperature):
        factor = scale / (temperature or 1.0)
        g = g if factor == 1.0 else g * factor
        return cast_to(F, g, x.dtype) if dtype_name(x.dtype) in FLOATS else None

    return finish


def _softmax_back(scale):
    finish = _back(scale)
    return lambda F, dys, xs, ys, axis, temperature, **_: (
        [finish(F, F._softmax_grad(dys[0], ys[0], axis=axis), xs[0], temperature)]
        + [None] * (len(xs) - 1)
    )


operator(
    "softmax",
    aliases=("_npx_softmax",),
    inputs=("data", "length"),
    params=_SOFTMAX_PARAMS,
    input_names=lambda use_length, **_: ("data", "length") if use_length else ("data",),
    infer=_softmax_infer("softmax"),
    ref=_softmax_ref,
    grad=_softmax_back(1.0),
    samples=(
        sample((3, 4)),
        sample((2, 3, 4), axis=1, temperature=2.0),
        sample((3, 4), dtype="float64"),
        sample((2, 3, 4), values([[1, 2, 3, 3], [3, 0, 1, 2]], "int32"), axis=1, use_length=True),
        sample((2, 5), values([5, 2], "int32"), use_length=True),
        sample(uniform((2, 3), -90, 90)),
    ),
    doc=(
        "e^(data / temperature) over its sum along axis. With use_length, length (data's shape"
        " without axis) counts the elements that take part; the others give 0."
    ),
)

operator(
    "softmin",
    params=_SOFTMAX_PARAMS,
    infer=_softmax_infer("softmin"),
    grad=_softmax_back(-1.0),
    ref=lambda xp, x, *, axis, temperature, dtype, use_length: softmax(
        xp, -_logits(xp, x, temperature, dtype), axis
    ),
    samples=(sample((3, 4)), sample((2, 3, 4), axis=1, temperature=0.5)),
    doc="softmax of -data.",
)

operator(
    "log_softmax",
    aliases=("_npx_log_softmax",),
    params=_SOFTMAX_PARAMS,
    infer=_softmax_infer("log_softmax"),
    ref=lambda xp, x, *, axis, temperature, dtype, use_length: log_softmax(
        xp, _logits(xp, x, temperature, dtype), axis
    ),
    grad=lambda F, dys, xs, ys, axis, temperature, **_: [
        _back(1.0)(F, F._log_softmax_grad(dys[0], ys[0], axis=axis), xs[0], temperature)
    ],
    samples=(
        sample((3, 4)),
        sample((2, 3, 4), axis=0, temperature=2.0),
        sample((3, 4), dtype="float64"),
        sample(uniform((2, 3), -90, 90)),
    ),
    doc="log(softmax(data)), without its overflow.",
)


def _activation_axis(mode):
    return 1 if mode == "channel" else -1


def _softmax_activation_infer(ins, mode):
    if len(ins[0].shape) < 2:
        raise ShapeError(
            "SoftmaxActivation", f"data must have at least 2 dimensions, got {ins[0].shape}"
        )
    return [ins[0]]


operator(
    "SoftmaxActivation",
    params=(Param("mode", ("channel", "instance"), "instance"),),
    infer=_softmax_activation_infer,
    ref=lambda xp, x, *, mode: softmax(xp, x, _activation_axis(mode)),
    grad=lambda F, dys, xs, ys, mode: [F._softmax_grad(dys[0], ys[0], axis=_activation_axis(mode))],
    samples=(sample((2, 3)), sample((2, 3, 4)), sample((2, 3, 4), mode="channel")),
    doc="softmax over the last axis (instance) or over axis 1 (channel).",
)


def _pair_infer(ins, axis):
    one_axis("softmax", axis, len(ins[0].shape))
    if ins[0].shape != ins[1].shape:
        raise ShapeError(
            "softmax",
            f"gradient and output must have equal shapes, got {ins[0].shape} and {ins[1].shape}",
        )
    return [ins[0]]


def _softmax_grad_ref(xp, dy, y, *, axis):
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


def _softmax_grad_grad(F, dys, xs, ys, axis):
    a, (dy, y) = dys[0], xs
    total = lambda v: F.sum(v, axis=axis, keepdims=True)
    left = a * F.broadcast_sub(dy, total(dy * y))
    return [F._softmax_grad(a, y, axis=axis), left - F.broadcast_mul(dy, total(a * y))]


operator(
    "_softmax_grad",
    inputs=("dy", "output"),
    params=(Param("axis", "int", -1),),
    infer=_pair_infer,
    inplace=((0, 0),),
    ref=_softmax_grad_ref,
    grad=_softmax_grad_grad,
    samples=(sample((3, 4), (3, 4)), sample((2, 3, 4), (2, 3, 4), axis=1)),
    doc="Gradient of softmax from its output: output * (dy - sum(dy * output)).",
)


def _log_softmax_grad_ref(xp, dy, y, *, axis):
    return dy - xp.exp(y) * dy.sum(axis=axis, keepdims=True)


def _log_softmax_grad_grad(F, dys, xs, ys, axis):
    a, (dy, y) = dys[0], xs
    total = lambda v: F.sum(v, axis=axis, keepdims=True)
    weighted = a * F.exp(y)
    return [F.broadcast_sub(a, total(weighted)), -F.broadcast_mul(weighted, total(dy))]


operator(
    "_log_softmax_grad",
    inputs=("dy", "output"),
    params=(Param("axis", "int", -1),),
    infer=_pair_infer,
    inplace=((0, 0),),
    ref=_log_softmax_grad_ref,
    grad=_log_softmax_grad_grad,
    samples=(sample((3, 4), (3, 4)), sample((2, 3, 4), (2, 3, 4), axis=1)),
    doc="Gradient of log_softmax from its output: dy - e^output * sum(dy).",
)
