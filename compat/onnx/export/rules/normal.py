"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import Graph
from ..rule import rule
from ..tensors import Tensor


def _statistics(g: Graph, x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """(mean, standard deviation) over axes, which stay as axes of size 1."""
    mean = g.reduce("ReduceMean", x, axes, True)
    apart = x - mean
    return mean, g.Sqrt(g.reduce("ReduceMean", apart * apart, axes, True) + eps)


@rule("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU")
def batch_norm(
    g: Graph, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor,
    *, eps: float, fix_gamma: bool, axis: int = 1, output_mean_var: bool = False, **_: Any,
) -> list[Tensor]:  # fmt: skip
    if fix_gamma:  # the stored gamma is not read
        gamma = g.tensor(np.ones(tuple(map(int, gamma.shape)), gamma.dtype))
    axis %= x.ndim
    order = [axis if i == 1 else 1 if i == axis else i for i in range(x.ndim)]
    wide = [g.cast(p, mean.dtype) for p in (gamma, beta)]
    if g.opset < 14 and mean.dtype != x.dtype:
        x = g.cast(x, mean.dtype)
    y = g.transpose(x, order) if x.ndim > 1 else x
    y = g.BatchNormalization(y, *wide, mean, var, epsilon=eps)
    y = g.transpose(y, order)
    if g.call.operation.name == "_contrib_BatchNormWithReLU":
        y = g.Relu(y)
    if g.call.operation.name in ("BatchNorm_v1", "_contrib_SyncBatchNorm"):
        return [y, mean, var]
    return [y, mean, 1.0 / g.Sqrt(var + eps)]


@rule("LayerNorm")
def layer_norm(
    g: Graph, x: Tensor, gamma: Tensor, beta: Tensor, *, axis: int, eps: float,
    output_mean_var: bool, **_: Any,
) -> Any:  # fmt: skip
    axis %= x.ndim
    if g.opset >= 17 and axis == x.ndim - 1 and not output_mean_var:
        return g.LayerNormalization(x, gamma, beta, axis=-1, epsilon=eps)
    mean, std = _statistics(g, x, [axis], eps)
    wide = [-1 if i == axis else 1 for i in range(x.ndim)]
    y = (x - mean) / std * g.reshape(gamma, wide) + g.reshape(beta, wide)
    return [y, mean, std]


@rule("GroupNorm")
def group_norm(
    g: Graph, x: Tensor, gamma: Tensor, beta: Tensor, *, num_groups: int, eps: float,
    output_mean_var: bool, **_: Any,
) -> Any:  # fmt: skip
    n, c = x.shape[:2]
    each = c // num_groups
    if g.opset >= 21 and not output_mean_var and x.ndim > 2:
        gamma, beta = (
            g.reshape(g.expand(g.unsqueeze(p, [1]), (num_groups, each)), (c,))
            for p in (gamma, beta)
        )
        return g.GroupNormalization(x, gamma, beta, num_groups=num_groups, epsilon=eps)
    if not output_mean_var:
        rows = g.reshape(x, (n, num_groups, -1))
        y = g.InstanceNormalization(rows, gamma, beta, epsilon=eps)
        return g.reshape(y, x.shape)
    view = g.reshape(x, (n, num_groups, each, *x.shape[2:]))
    mean, std = _statistics(g, view, range(2, view.ndim), eps)
    wide = [-1] + [1] * (view.ndim - 2)
    y = (view - mean) / std * g.reshape(gamma, wide) + g.reshape(beta, wide)
    return [
        g.reshape(t, s) for t, s in ((y, x.shape), (mean, (n, num_groups)), (std, (n, num_groups)))
    ]


@rule("InstanceNorm")
def instance_norm(g: Graph, x: Tensor, gamma: Tensor, beta: Tensor, *, eps: float) -> Tensor:
    return g.InstanceNormalization(x, gamma, beta, epsilon=eps)


@rule("L2Normalization")
def l2_normalization(g: Graph, x: Tensor, *, eps: float, mode: str) -> Tensor:
    axes = {"instance": range(1, x.ndim), "channel": [1], "spatial": range(2, x.ndim)}[mode]
    return x / g.Sqrt(g.reduce("ReduceSum", x * x, axes, True) + eps)


@rule("LRN")
def lrn(g: Graph, x: Tensor, *, alpha: float, beta: float, knorm: float, nsize: int) -> Tensor:
    size = nsize - 1 + nsize % 2  # an even window has one channel less
    return g.LRN(x, alpha=alpha * size / nsize, beta=beta, bias=knorm, size=size)
