"""softmax, its logarithm, and their gradients."""

from __future__ import annotations

from typing import Any

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..record import FLOATS, Array, Param, Type, dtype_name, operator, sample, uniform, values
from ..shapes import one_axis
from ..traits import RowForm, Softmax
from .norm import cast_to
from .reduce import along

LARGEST = 3.4028234663852886e38  # float32
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


def softmax(xp: Any, z: Array, axis: int = -1, mask: Array | None = None) -> Array:
    e = _exps(xp, z, axis, mask)
    total = e.sum(axis=axis, keepdims=True)
    return e / (total if mask is None else xp.where(total == 0, 1, total))


def log_softmax(xp: Any, z: Array, axis: int = -1) -> Array:
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


def _is_plain(temperature, use_length, **_):
    return temperature in (None, 1.0) and not use_length


def _softmax_rows(F, x, **_):
    top = F.clip(along(F, x, "max"), a_min=-LARGEST, a_max=LARGEST)  # a row of -inf: NaN, as it was
    e = F.exp(F.broadcast_sub(x, top))
    return [F.broadcast_mul(e, F.reciprocal(along(F, e, "sum")))]


def _log_softmax_rows(F, x, **_):
    z = F.broadcast_sub(x, along(F, x, "max"))
    return [F.broadcast_sub(z, F.log(along(F, F.exp(z), "sum")))]


operator(
    "softmax",
    traits=(Softmax(), RowForm(_softmax_rows, _is_plain)),
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
    traits=(RowForm(_log_softmax_rows, _is_plain),),
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


def _softmax_grad_rows(F, dy, y, **_):
    return [y * F.broadcast_sub(dy, along(F, dy * y, "sum"))]


operator(
    "_softmax_grad",
    traits=(RowForm(_softmax_grad_rows),),
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


def _log_softmax_grad_rows(F, dy, y, **_):
    return [dy - F.broadcast_mul(F.exp(y), along(F, dy, "sum"))]


operator(
    "_log_softmax_grad",
    traits=(RowForm(_log_softmax_grad_rows),),
    inputs=("dy", "output"),
    params=(Param("axis", "int", -1),),
    infer=_pair_infer,
    inplace=((0, 0),),
    ref=_log_softmax_grad_ref,
    grad=_log_softmax_grad_grad,
    samples=(sample((3, 4), (3, 4)), sample((2, 3, 4), (2, 3, 4), axis=1)),
    doc="Gradient of log_softmax from its output: dy - e^output * sum(dy).",
)
