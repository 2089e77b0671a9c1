"""Layers: products, convolutions, normalisation, einsum, samplers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..run import Call, dtype_of, rule
from .shape import padded, sliced
from .windows import spatial, windows


@rule("MatMul")
def mat_mul(c: Call, a: Any, b: Any) -> Any:
    return c.np.matmul(a, b)


@rule("Gemm")
def gemm(c: Call, a: Any, b: Any, bias: Any = None) -> Any:
    if c("transA", 0):
        a = c.np.transpose(a)
    alpha, beta = c("alpha", 1.0), c("beta", 1.0)
    units = b.shape[0 if c("transB", 0) else 1]
    plain = alpha == 1 and a.dtype in (np.float32, np.float64, np.float16)
    if plain and (bias is None or beta == 1 and _is_row(bias.shape, units)):
        weight = b if c("transB", 0) else c.np.transpose(b)
        given = [] if bias is None else [c.np.reshape(bias, (units,))]
        return c.nn.FullyConnected(
            a, weight, *given, num_hidden=units, no_bias=bias is None, flatten=False
        )
    made = c.np.matmul(a, c.np.transpose(b) if c("transB", 0) else b)
    if alpha != 1:
        made = c.cast(made * alpha, dtype_of(a))
    if bias is not None and beta != 0:
        made = made + (bias if beta == 1 else c.cast(bias * beta, dtype_of(a)))
    return made


def _is_row(shape: Any, units: int) -> bool:
    return prod(shape) == units and shape[-1:] == (units,)


@rule("Einsum")
def einsum(c: Call, *xs: Any) -> Any:
    return c.np.einsum(c("equation").replace(" ", ""), *xs)


@rule("Conv")
def conv(c: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    w = windows(c, x.shape, tuple(c("kernel_shape", weight.shape[2:])))
    if weight.shape[2:] != w.kernel:
        raise c.fail(f"kernel_shape is {w.kernel}, the weights have {tuple(weight.shape)}")
    before = w.before
    if not w.symmetric:
        needed = [(b, max(0, a)) for b, a in zip(w.before, w.after)]
        x, before = padded(c, x, spatial(needed)), (0,) * len(w.kernel)
    return c.nn.Convolution(
        x,
        weight,
        *([] if bias is None else [bias]),
        kernel=w.kernel,
        stride=w.stride,
        dilate=w.dilate,
        pad=before,
        num_filter=weight.shape[0],
        num_group=c("group", 1),
        no_bias=bias is None,
    )


@rule("ConvTranspose")
def conv_transpose(c: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    n = len(x.shape) - 2
    kernel = tuple(weight.shape[2:])
    stride, dilate = tuple(c("strides", [1] * n)), tuple(c("dilations", [1] * n))
    adj, pads = tuple(c("output_padding", [0] * n)), list(c("pads", [0] * 2 * n))
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilate)]
    whole = [(x.shape[i + 2] - 1) * stride[i] + span[i] + adj[i] for i in range(n)]
    auto, wanted = c("auto_pad", "NOTSET"), c("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [x.shape[i + 2] * stride[i] for i in range(n)]
    if wanted is not None:
        for i, size in enumerate(wanted[-n:]):
            total = whole[i] - size
            low = total // 2 if auto == "SAME_UPPER" else total - total // 2
            low = low if total >= 0 else 0  # below 0: more elements behind
            pads[i], pads[i + n] = low, total - low
    before, after = pads[:n], pads[n:]
    simple = (
        before == after and all(p >= 0 for p in pads) and all(a < s for a, s in zip(adj, stride))
    )
    made = c.nn.Deconvolution(
        x,
        weight,
        *([] if bias is None else [bias]),
        kernel=kernel,
        stride=stride,
        dilate=dilate,
        pad=tuple(before) if simple else (0,) * n,
        adj=adj if simple else (0,) * n,
        num_filter=weight.shape[1] * c("group", 1),
        num_group=c("group", 1),
        no_bias=bias is None,
    )
    if simple:
        return made
    widths = [(max(0, -b), max(0, a - e)) for b, e, a in zip(before, after, adj)]
    for i in range(n):  # cut the padding, add what output_padding asks for
        stop = whole[i] - max(0, after[i])
        made = sliced(c, made, i + 2, max(0, before[i]), min(made.shape[i + 2], stop))
    if bias is None:
        return padded(c, made, spatial(widths))
    rest = padded(c, made, spatial(widths))
    if any(a for _, a in widths) or any(b for b, _ in widths):
        ones = np.pad(np.zeros(made.shape[2:]), widths, constant_values=1)
        column = c.np.reshape(bias, (1, -1, *[1] * n))
        rest = rest + column * c.array(ones[None, None].astype(np.dtype(x.dtype)))
    return rest


@rule("BatchNormalization")
def batch_norm(c: Call, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    eps, keep = c("epsilon", 1e-5), c("momentum", 0.9)
    if not c("training_mode", 0):
        return c.nn.BatchNorm(
            x, gamma, beta, mean, var, eps=eps, momentum=keep, fix_gamma=False, axis=1
        )
    axes = (0, *range(2, len(x.shape)))
    own = c.np.mean(x, axis=axes)
    spread = c.np.var(x, axis=axes)
    shape = (1, -1, *[1] * (len(x.shape) - 2))

    def column(v: Any) -> Any:
        return c.np.reshape(v, shape)

    made = (x - column(own)) / c.np.sqrt(column(spread) + eps) * column(gamma) + column(beta)
    return made, mean * keep + own * (1 - keep), var * keep + spread * (1 - keep)


@rule("InstanceNormalization")
def instance_norm(c: Call, x: Any, gamma: Any, beta: Any) -> Any:
    return c.nn.InstanceNorm(x, gamma, beta, eps=c("epsilon", 1e-5))


@rule("LayerNormalization")
def layer_norm(c: Call, x: Any, gamma: Any, beta: Any = None) -> Any:
    n, axis, eps = len(x.shape), c("axis", -1), c("epsilon", 1e-5)
    axis += n if axis < 0 else 0
    if axis == n - 1 and not c.wants(1) and tuple(gamma.shape) == tuple(x.shape[-1:]):
        beta = c.np.zeros_like(gamma) if beta is None else beta
        return c.nn.LayerNorm(x, gamma, beta, axis=-1, eps=eps)
    at = tuple(range(axis, n))
    mean = c.np.mean(x, axis=at, keepdims=True)
    away = x - mean
    scale = 1 / c.np.sqrt(c.np.mean(away * away, axis=at, keepdims=True) + eps)
    made = away * scale * gamma
    return made if beta is None else made + beta, mean, scale


@rule("LRN")
def lrn(c: Call, x: Any) -> Any:
    size = c("size")
    return c.nn.LRN(
        x, nsize=size, alpha=c("alpha", 1e-4), beta=c("beta", 0.75), knorm=c("bias", 1.0)
    )


@rule("LpNormalization")
def lp_normalization(c: Call, x: Any) -> Any:
    axis = c("axis", -1)
    if c("p", 2) == 1:
        return x / c.np.sum(c.np.abs(x), axis=axis, keepdims=True)
    return x / c.np.sqrt(c.np.sum(x * x, axis=axis, keepdims=True))


@rule("Dropout", static=(1, 2), random=True)
def dropout(c: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    rate = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    always = training is not None and bool(training.reshape(-1)[0]) and rate > 0
    if always:
        kept = c.nn.Dropout(c.np.ones_like(x), p=rate, mode="always")
        return x * kept, c.np.not_equal(kept, 0)
    made = c.nn.Dropout(x, p=rate) if 0 < rate < 1 else x
    return (made, np.ones(tuple(x.shape), bool)) if c.wants(1) else made


@rule("Det")
def det(c: Call, x: Any) -> Any:
    return c.np.reshape(c.nn.linalg.det(x), tuple(x.shape[:-2]))


@rule("Col2Im", static=(1, 2))
def col2im(c: Call, x: Any, image: Any, block: Any) -> Any:
    n = len(image)
    pads, kernel = c("pads", [0] * 2 * n), tuple(int(k) for k in block)
    dilate, stride = c("dilations", [1] * n), c("strides", [1] * n)
    size = [int(m) + a + b for m, a, b in zip(image, pads, pads[n:])]
    counts = [(s - (k - 1) * d - 1) // t + 1 for s, k, d, t in zip(size, kernel, dilate, stride)]
    at = np.zeros((*kernel, *counts), np.int64)
    for i in range(n):
        own = np.arange(kernel[i])[:, None] * dilate[i] + np.arange(counts[i]) * stride[i]
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = kernel[i], counts[i]
        at = at * size[i] + own.reshape(shape)
    batch, depth = x.shape[0], x.shape[1] // prod(kernel)
    rows = c.np.reshape(x, (batch * depth, prod(kernel) * prod(counts)))
    rows = c.np.transpose(rows)
    flat = c.nn._internal._backward_gather_nd(
        rows, c.array(at.reshape(1, -1)), shape=(prod(size), batch * depth)
    )
    made = c.np.reshape(c.np.transpose(flat), (batch, depth, *size))
    for i in range(n):
        made = sliced(c, made, i + 2, pads[i], pads[i] + int(image[i]))
    return made


@rule("GridSample")
def grid_sample(c: Call, x: Any, grid: Any) -> Any:
    mode, padding, corners = (
        c("mode", "bilinear"),
        c("padding_mode", "zeros"),
        c("align_corners", 0),
    )
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    n, depth, h, w = x.shape
    if len(grid.shape) != 4:
        raise c.fail("grids of other than two dimensions are not supported")

    def place(g: Any, size: int) -> Any:
        return (g + 1) * ((size - 1) / 2) if corners else ((g + 1) * size - 1) / 2

    def folded(i: Any, size: int) -> Any:
        """Places inside, after the padding mode."""
        if padding == "reflection":
            low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
            if size == 1 and corners:
                return i * 0
            i = c.np.abs(i - low)
            i = c.np.remainder(i, 2 * span)
            i = c.np.minimum(i, 2 * span - i) + low
        return c.np.clip(i, 0, size - 1) if padding != "zeros" else i

    def pixels(row: Any, column: Any) -> Any:
        inside = None
        if padding == "zeros":
            inside = (row >= 0) * (row <= h - 1) * (column >= 0) * (column <= w - 1)
        row, column = (folded(row, h), folded(column, w))
        at = c.np.clip(row, 0, h - 1) * w + c.np.clip(column, 0, w - 1)
        at = c.np.reshape(at.astype("int64"), (n, 1, -1))
        flat = c.np.reshape(x, (n, depth, h * w))
        found = c.np.take_along_axis(flat, c.np.broadcast_to(at, (n, depth, at.shape[2])), axis=2)
        found = c.np.reshape(found, (n, depth, *grid.shape[1:3]))
        if inside is None:
            return found
        return found * c.np.expand_dims(inside.astype(dtype_of(x)), 1)

    across = place(c.np.squeeze(sliced(c, grid, 3, 0, 1), axis=-1), w)
    down = place(c.np.squeeze(sliced(c, grid, 3, 1, 2), axis=-1), h)
    if mode == "nearest":
        return pixels(c.np.rint(down), c.np.rint(across))
    if padding != "zeros" and mode == "bilinear":
        across, down = folded(across, w), folded(down, h)
    left, top = c.np.floor(across), c.np.floor(down)
    steps = (0, 1) if mode == "bilinear" else (-1, 0, 1, 2)

    def weight(distance: Any) -> Any:
        d = c.np.abs(distance)
        if mode == "bilinear":
            return 1 - d
        a = -0.75
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return c.np.where(d <= 1, near, far)

    total: Any = 0
    for i in steps:
        for j in steps:
            share = weight(down - top - i) * weight(across - left - j)
            total = total + pixels(top + i, left + j) * c.np.expand_dims(share, 1)
    return total


@rule("RoiAlign")
def roi_align(c: Call, x: Any, rois: Any, batch: Any) -> Any:
    h, w = c("output_height", 1), c("output_width", 1)
    half = (
        c("coordinate_transformation_mode", "half_pixel" if c.opset >= 16 else "") == "half_pixel"
    )
    if c("mode", "avg") != "avg":
        raise c.fail("mode must be avg")
    first = c.np.expand_dims(batch.astype(dtype_of(rois)), 1)
    boxes = c.np.concatenate([first, rois], axis=1)
    return c.nn.contrib.ROIAlign(
        x,
        boxes,
        pooled_size=(h, w),
        spatial_scale=c("spatial_scale", 1.0),
        sample_ratio=c("sampling_ratio", 0) or -1,
        aligned=half,
    )
