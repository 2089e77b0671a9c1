"""Activations, softmax, and the layers that end a network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph import Graph
from ..rule import rule
from ..tensors import Tensor

KINDS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@rule("Activation")
def activation(g: Graph, x: Tensor, *, act_type: str) -> Tensor:
    if act_type not in KINDS:
        return g.converter.by_reference(g, x, act_type=act_type)
    if x.dtype.kind != "f" and act_type != "relu" or g.opset < 14 and x.dtype.kind != "f":
        return g.cast(g.op(KINDS[act_type], g.cast(x, "float32")), x.dtype)
    return g.op(KINDS[act_type], x)


def gelu(g: Graph, x: Tensor) -> Tensor:
    if g.opset >= 20:
        return g.Gelu(x)
    return x * 0.5 * (g.Erf(x * math.sqrt(0.5)) + 1.0)


@rule("LeakyReLU")
def leaky_relu(
    g: Graph, x: Tensor, gamma: Tensor | None = None, *, act_type: str, slope: float,
    lower_bound: float, upper_bound: float, **_: Any,
) -> Any:  # fmt: skip
    if act_type == "leaky":
        return g.LeakyRelu(x, alpha=slope)
    if act_type == "elu":
        return g.Elu(x, alpha=slope)
    if act_type == "selu":
        return g.Selu(x)
    if act_type == "gelu":
        return gelu(g, x)
    if act_type == "prelu":
        assert gamma is not None
        if gamma.ndim == 1 and x.ndim > 1:  # of the channels, axis 1
            gamma = g.reshape(gamma, (-1, *[1] * (x.ndim - 2)))
        elif gamma.ndim == 2:
            gamma = g.unsqueeze(gamma, range(2, x.ndim))
        return g.PRelu(x, gamma)
    mean = (lower_bound + upper_bound) / 2
    mask = g.where(x > 0.0, g.tensor(1.0, x), g.tensor(mean, x))
    return [x * mask, mask]


def _along(g: Graph, kind: str, x: Tensor, axis: int, temperature: float | None) -> Tensor:
    if temperature is not None and temperature != 1:
        x = x / temperature
    return g.op(kind, x, axis=axis)


def _widened(g: Graph, x: Tensor, dtype: str | None) -> Tensor:
    """Softmax of another dtype is computed in it."""
    x = x if x.dtype.kind == "f" else g.cast(x, "float32")
    return g.cast(x, dtype) if dtype else x


@rule("softmax")
def softmax(
    g: Graph, x: Tensor, length: Tensor | None = None, *, axis: int, temperature: float | None,
    dtype: str | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    x = _widened(g, x, dtype)
    if length is None:
        return _along(g, "Softmax", x, axis, temperature)
    axis %= x.ndim
    counts = g.unsqueeze(g.cast(length, "int64"), [axis])
    places = _range(g, x.shape[axis])
    inside = g.reshape(places, [-1] + [1] * (x.ndim - 1 - axis)) < counts
    least = float(np.finfo(x.dtype).min)
    made = _along(g, "Softmax", g.where(inside, x, least), axis, temperature)
    return g.where(inside, made, 0.0)


def _range(g: Graph, n: int) -> Tensor:
    """0, 1, ... n - 1 as int64."""
    if type(n) is int:
        return g.tensor(np.arange(n))
    zero, one = np.int64(0), np.int64(1)
    return g.Range(g.tensor(zero), g.tensor(n), g.tensor(one), shape=(n,), dtype="int64")


@rule("log_softmax")
def log_softmax(
    g: Graph, x: Tensor, *rest: Any, axis: int, temperature: float | None,
    dtype: str | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    return _along(g, "LogSoftmax", _widened(g, x, dtype), axis, temperature)


@rule("softmin")
def softmin(
    g: Graph, x: Tensor, *rest: Any, axis: int, temperature: float | None,
    dtype: str | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    return _along(g, "Softmax", -_widened(g, x, dtype), axis, temperature)


@rule("SoftmaxActivation")
def softmax_activation(g: Graph, x: Tensor, *, mode: str) -> Tensor:
    return g.Softmax(x, axis=1 if mode == "channel" else -1)


@rule("SoftmaxOutput")
def softmax_output(
    g: Graph, x: Tensor, label: Tensor, *, multi_output: bool, preserve_shape: bool, **_: Any
) -> Tensor:
    if multi_output:
        return g.Softmax(x, axis=1)
    if preserve_shape or x.ndim <= 2:
        return g.Softmax(x, axis=-1)
    rows = g.Flatten(x, axis=1, shape=(x.shape[0], math.prod(x.shape[1:])))
    return g.reshape(g.Softmax(rows, axis=-1), x.shape)


@rule("LinearRegressionOutput", "MAERegressionOutput", "SVMOutput", "MakeLoss", "make_loss")
@rule(
    "BlockGrad",
    "_copy",
    "_shared",
    "_copyto",
    "_to_device",
    "_from_memory",
    "_contrib_gradientmultiplier",
)
@rule("_identity_with_attr_like_rhs", "IdentityAttachKLSparseReg")
def same(g: Graph, x: Tensor, *rest: Tensor, **_: Any) -> Any:
    """What does nothing in prediction."""
    if len(g.outs) > 1 and g.call.n_visible > 1:
        return [x, *(g.expand(g.tensor(np.ones((), o.dtype)), o.shape) for o in g.outs[1:])]
    return x


@rule("LogisticRegressionOutput")
def logistic_output(g: Graph, x: Tensor, label: Tensor, **_: Any) -> Tensor:
    return g.Sigmoid(x)
