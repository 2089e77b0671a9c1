"""Convolutions, pooling, dense layers, embeddings, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....kernels.ops.deconv import deconv_setup
from .....kernels.ops.pool import windows
from ..arrays import gather
from ..graph import Dim, Graph, Unmapped
from ..rule import rule
from ..tensors import Tensor


def channels_first(
    g: Graph, x: Tensor, layout: str | None, compute: Callable[[Tensor], Tensor]
) -> Tensor:
    """compute(x) with x as (N, C, *space), whatever its layout is."""
    if not layout or not layout.endswith("C"):
        return compute(x)
    n = x.ndim
    made = compute(g.transpose(x, [0, n - 1, *range(1, n - 1)]))
    return g.transpose(made, [0, *range(2, n), 1])


def _weight(g: Graph, w: Tensor, layout: str | None) -> Tensor:
    """A weight as (filters, channels, *kernel)."""
    if not layout or not layout.endswith("C"):
        return w
    return g.transpose(w, [0, w.ndim - 1, *range(1, w.ndim - 1)])


def _outside(shape: Sequence[int], layout: str | None) -> tuple[int, ...]:
    """An output's shape with its channels first."""
    last = layout and layout.endswith("C")
    return (shape[0], shape[-1], *shape[1:-1]) if last else tuple(shape)


@rule("Convolution", "Convolution_v1")
def convolution(
    g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    *, kernel: Any, stride: Any, dilate: Any, pad: Any, num_group: int, layout: str | None,
    **_: Any,
) -> Tensor:  # fmt: skip
    attrs = {
        "kernel_shape": list(kernel),
        "strides": list(stride) or None,
        "dilations": list(dilate) or None,
        "pads": [*pad, *pad] or None,
        "group": num_group,
    }
    w, shape = _weight(g, weight, layout), _outside(g.outs[0].shape, layout)
    return channels_first(g, x, layout, lambda x: g.Conv(x, w, bias, shape=shape, **attrs))


@rule("Deconvolution")
def deconvolution(
    g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    *, kernel: Any, stride: Any, dilate: Any, pad: Any, adj: Any, target_shape: Any,
    num_group: int, layout: str | None, **_: Any,
) -> Tensor:  # fmt: skip
    n = len(kernel)
    if target_shape:
        if any(isinstance(s, Dim) for s in x.shape[2:]):
            raise Unmapped("target_shape with data of varying sizes")
        geometry, _out = deconv_setup(
            x.shape, kernel, stride, dilate, pad, adj, target_shape, num_group, layout
        )
        pad, stride, dilate = geometry.pad, geometry.stride, geometry.dilate
    stride, dilate, pad = (tuple(v) or (d,) * n for v, d in ((stride, 1), (dilate, 1), (pad, 0)))
    w, shape = _weight(g, weight, layout), _outside(g.outs[0].shape, layout)
    space = _outside(x.shape, layout)[2:]
    # what is put after the result beside stride (size - 1) + dilate (kernel - 1) + 1 - 2 pad
    more = list(adj) or [0] * n
    if target_shape:
        plain = [
            s * (m - 1) + d * (k - 1) + 1 - 2 * p
            for m, k, s, d, p in zip(space, kernel, stride, dilate, pad)
        ]
        more = [int(a) - int(b) for a, b in zip(shape[2:], plain)]
    attrs = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        "dilations": list(dilate),
        "pads": [*pad, *(p - max(a - s + 1, 0) for p, a, s in zip(pad, more, stride))],
        "output_padding": [min(a, s - 1) for a, s in zip(more, stride)],
        "group": num_group,
    }
    return channels_first(g, x, layout, lambda x: g.ConvTranspose(x, w, bias, shape=shape, **attrs))


@rule("Pooling")
def pooling(
    g: Graph, x: Tensor, *, pool_type: str, global_pool: bool, kernel: Any, pooling_convention: str,
    stride: Any, pad: Any, p_value: int | None = None, count_include_pad: bool | None = None,
    layout: str | None = None, **_: Any,
) -> Tensor:  # fmt: skip
    shape = _outside(g.outs[0].shape, layout)
    if global_pool:
        kinds = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool", "lp": "GlobalLpPool"}

        def reduce(x: Tensor) -> Tensor:
            if pool_type == "sum":
                return g.reduce("ReduceSum", x, range(2, x.ndim), True)
            p = p_value if pool_type == "lp" else None
            return g.op(kinds[pool_type], x, p=p, shape=shape)

        return channels_first(g, x, layout, reduce)
    space = _outside(x.shape, layout)[2:]
    w = windows(
        (1, 1, *map(int, space)), kernel, pool_type, False, pooling_convention, stride, pad, None
    )
    whole = pooling_convention == "valid"
    # how far the last windows reach beyond data, and whether one lies outside altogether
    ends = [e for _, e in w.grown]
    outside = any((o - 1) * s >= n + p for n, s, p, o in zip(w.size, w.stride, w.pad, w.out))
    if not whole and (outside or any(isinstance(n, Dim) for n in space)):
        return g.converter.by_reference(
            g, x, kernel=kernel, pool_type=pool_type, global_pool=False, p_value=p_value,
            pooling_convention=pooling_convention, stride=stride, pad=pad, layout=layout,
            count_include_pad=count_include_pad,
        )  # fmt: skip
    attrs = {"kernel_shape": list(kernel), "strides": list(w.stride), "shape": shape}
    pads = [*w.pad, *(w.pad if whole else ends)]

    def pool(x: Tensor) -> Tensor:
        if pool_type == "max":
            return g.MaxPool(x, pads=pads, **attrs)
        if pool_type == "lp" and p_value == 2:
            return g.LpPool(x, p=2, pads=pads, **attrs)
        if pool_type == "avg" and (count_include_pad is False or not any(w.pad)):
            return g.AveragePool(x, pads=pads, **attrs)
        # zeros around data count as its elements; what a last window has beyond them does not
        zeros = [0, 0, *w.pad]
        grown = [n + 2 * p for n, p in zip(x.shape, zeros)]
        x = g.Pad(x, np.array(zeros * 2, np.int64), shape=grown) if any(w.pad) else x
        after = [0] * len(kernel) if whole else [max(e - p, 0) for e, p in zip(ends, w.pad)]
        beyond = {"pads": [0] * len(kernel) + after, **attrs}
        if pool_type == "avg":
            return g.AveragePool(x, **beyond)
        x = x if p_value is None or p_value == 1 else g.Pow(x, float(p_value))
        total = g.AveragePool(x, count_include_pad=1, **beyond) * float(np.prod(kernel))
        return np.cbrt(total) if pool_type == "lp" and p_value == 3 else total

    return channels_first(g, x, layout, pool)


@rule("FullyConnected")
def dense(
    g: Graph, x: Tensor, weight: Tensor, bias: Tensor | None = None,
    *, flatten: bool, **_: Any,
) -> Tensor:  # fmt: skip
    shape = g.outs[0].shape
    if not flatten and x.ndim != 2:
        y = g.MatMul(x, g.transpose(weight, [1, 0]), shape=shape)
        return y if bias is None else y + bias
    x = x if x.ndim == 2 else g.Flatten(x, axis=1, shape=(x.shape[0], weight.shape[1]))
    return g.Gemm(x, weight, bias, transB=1, shape=shape)


@rule("Embedding", "_contrib_SparseEmbedding")
def embedding(g: Graph, x: Tensor, weight: Tensor, *, input_dim: int, **_: Any) -> Tensor:
    rows = g.cast(x, "int64")
    clipped = g.Clip(rows, np.int64(0), np.int64(input_dim - 1))  # as an index out of range is
    return gather(g, weight, clipped, 0)


@rule("UpSampling")
def upsampling(
    g: Graph, *xs: Tensor, scale: int, sample_type: str, multi_input_mode: str, **_: Any
) -> Tensor:
    if sample_type == "bilinear":
        x, weight = xs
        k, c = 2 * scale - scale % 2, x.shape[1]
        p = (scale + 1) // 2 - (scale % 2 == 0) * 0
        p = -(-(scale - 1) // 2)
        return g.ConvTranspose(
            x, weight, group=int(c), kernel_shape=[k, k], strides=[scale] * 2, pads=[p] * 4,
            shape=g.outs[0].shape,
        )  # fmt: skip
    first = xs[0]
    made = []
    for x in xs:
        times = int(first.shape[2]) * scale // int(x.shape[2])
        scales = np.array([1, 1, times, times], np.float32)
        shape = (*x.shape[:2], x.shape[2] * times, x.shape[3] * times)
        made.append(
            g.Resize(
                x, None, scales, mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric", shape=shape,
            )
        )  # fmt: skip
    if len(made) == 1:
        return made[0]
    if multi_input_mode == "sum":
        return g.Sum(*made)
    return g.Concat(*made, axis=1, shape=g.outs[0].shape)


@rule("_contrib_BilinearResize2D")
def bilinear(g: Graph, x: Tensor, *like: Tensor, align_corners: bool, **_: Any) -> Tensor:
    out = g.outs[0].shape
    mode = "align_corners" if align_corners else "half_pixel"
    sizes = g.sizes([*x.shape[:2], *out[2:]])
    return g.Resize(
        x, None, None, sizes, mode="linear", coordinate_transformation_mode=mode, shape=out
    )


@rule("_contrib_AdaptiveAvgPooling2D")
def adaptive(g: Graph, x: Tensor, *, output_size: Any) -> Tensor:
    """The mean over parts of nearly equal size, as two products with matrices of weights."""
    out = tuple(output_size) * (2 if len(output_size) == 1 else 1) or (1, 1)
    if tuple(out) == (1, 1):
        return g.GlobalAveragePool(x, shape=(*x.shape[:2], 1, 1))
    if any(isinstance(n, Dim) for n in x.shape[2:]):
        raise Unmapped("parts of an image of varying size")

    def means(n: int, parts: int) -> np.ndarray:
        at, k = np.arange(n), np.arange(parts)[:, None]
        inside = (at >= k * n // parts) & (at < -(-(k + 1) * n // parts))
        return (inside / inside.sum(1, keepdims=True)).astype(x.dtype)

    rows = g.tensor(means(x.shape[2], out[0]))
    columns = g.tensor(means(x.shape[3], out[1]).T.copy())
    return rows @ (x @ columns)
