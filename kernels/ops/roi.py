"""Regions of interest along the axes: ROIPooling, ROIAlign, PSROIPooling.

ROIAlign and PSROIPooling average over a region along each axis apart, so that region r of image b
is rows_r @ data[b] @ columns_r.T with a few weights in each row: `Band`s.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..record import FRACTION, REACH, Array, Param, Shape, Type, operator, sample, values
from ..shapes import float_dtype, must_be
from .resize import images
from .sampling import first_order

MAX_GIVEN = 256  # samples along an axis of a bin that one may ask for
MAX_SAMPLES = 4096  # along an axis of a bin: more would only come from absurd regions


class Band(NamedTuple):
    """One region: the image it lies in, rows (bins, H) and columns (bins, W) of weights."""

    image: int
    rows: object
    columns: object


def check_rois(op: str, data: Type, rois: Type, columns: int = 5) -> str:
    """The dtype of data and rois (R, columns). Raises ShapeError, DTypeError."""
    images(op, "data", data)
    if len(rois.shape) != 2 or rois.shape[1] != columns:
        raise ShapeError(op, f"rois must be (number of regions, {columns}), got {rois.shape}")
    if 0 in data.shape[2:]:
        raise ShapeError(op, f"data must not be empty, got {data.shape}")
    return float_dtype(op, (data, rois), ("data", "rois"))


def pair(op: str, pooled_size: Shape) -> tuple[int, int]:
    if len(pooled_size) != 2 or min(pooled_size) < 1:
        raise OperatorError(op, f"pooled_size must be two positive numbers, got {pooled_size}")
    return pooled_size[0], pooled_size[1]


def image_of(roi: Array, n: int) -> int:
    """The image of a region, -1 where there is none."""
    return int(roi[0]) if 0 <= roi[0] < n else -1


# ---- pooling by bands ----------------------------------------------------------------------------


def _pool(xp, data, bands, channels, shape):
    """(R, C', bins, bins). channels: None, or which channel each (C', bins, bins) reads."""
    y = xp.zeros(shape, data.dtype)
    for r, band in enumerate(bands):
        if band is None:
            continue
        x = data[band.image]
        if channels is None:
            y[r] = band.rows @ x @ band.columns.T
        else:
            y[r] = xp.einsum("ih,cijhw,jw->cij", band.rows, x[channels], band.columns)
    return y


def _unpool(xp, dy, bands, channels, shape):
    """The transpose of _pool."""
    dx = xp.zeros(shape, dy.dtype)
    for r, band in enumerate(bands):
        if band is None:
            continue
        if channels is None:
            dx[band.image] += band.rows.T @ dy[r] @ band.columns
        else:
            spread = xp.einsum("ih,cij,jw->cijhw", band.rows, dy[r], band.columns)
            xp.add.at(dx[band.image], channels, spread)
    return dx


# ---- ROIAlign ------------------------------------------------------------------------------------

_ALIGN = "_contrib_ROIAlign"


def _align_out(channels, pooled_size, position_sensitive, **_):
    h, w = pair(_ALIGN, pooled_size)
    if not position_sensitive:
        return channels, h, w
    if channels % (h * w):
        raise ShapeError(
            _ALIGN,
            f"channels must be a multiple of the bins {h} x {w} with position_sensitive, got"
            f" {channels}",
        )
    return channels // (h * w), h, w


def _align_infer(ins, **attrs):
    data, rois = ins
    dtype = check_rois(_ALIGN, data, rois)
    return [Type((rois.shape[0], *_align_out(data.shape[1], **attrs)), dtype)]


def _samples(xp, start, bin_size, n_bins, n_samples, n):
    """(n_bins, n): what each bin takes of n pixels, when it averages n_samples interpolations."""
    steps = (xp.arange(n_samples) + 0.5).astype(start.dtype) * bin_size / n_samples
    at = start + xp.arange(n_bins)[:, None].astype(start.dtype) * bin_size + steps
    inside = (at >= -1) & (at <= n)
    at = xp.clip(xp.where(inside, at, 0), 0, n - 1)
    low = xp.floor(at).astype("int64")
    high = at - low
    weights = xp.zeros((n_bins, n), start.dtype)
    bins = xp.broadcast_to(xp.arange(n_bins)[:, None], at.shape)
    share = inside / max(n_samples, 1)
    xp.add.at(weights, (bins, low), (1 - high) * share)
    xp.add.at(weights, (bins, xp.minimum(low + 1, n - 1)), high * share)
    return weights.astype(start.dtype)


def _align_axis(xp, low, high, spatial_scale, n_bins, n, sample_ratio, aligned):
    start = low * spatial_scale - (0.5 if aligned else 0)
    extent = high * spatial_scale - (0.5 if aligned else 0) - start
    extent = extent if aligned else xp.maximum(extent, 1)
    if not (xp.isfinite(start) and xp.isfinite(extent)):
        return None
    n_samples = sample_ratio
    if sample_ratio <= 0:
        n_samples = min(max(ceil(float(extent / n_bins)), 0), MAX_SAMPLES)
    return _samples(xp, start, extent / n_bins, n_bins, n_samples, n)


def _align_bands(xp, shape, rois, pooled_size, spatial_scale, sample_ratio, aligned, **_):
    for roi in rois:
        image = image_of(roi, shape[0])
        rows, columns = (
            _align_axis(xp, roi[i], roi[i + 2], spatial_scale, bins, n, sample_ratio, aligned)
            for i, bins, n in ((2, pooled_size[0], shape[2]), (1, pooled_size[1], shape[3]))
        )
        ok = image >= 0 and rows is not None and columns is not None
        yield Band(image, rows, columns) if ok else None


def _align_channels(xp, out, position_sensitive, **_):
    c, h, w = out
    return xp.arange(c * h * w).reshape(c, h, w) if position_sensitive else None


def _align_ref(xp, data, rois, **attrs):
    out = _align_out(data.shape[1], **attrs)
    bands = _align_bands(xp, data.shape, rois, **attrs)
    return _pool(xp, data, bands, _align_channels(xp, out, **attrs), (len(rois), *out))


_ALIGN_PARAMS = (
    Param("pooled_size", "shape", limits=REACH),
    Param("spatial_scale", "float", limits=FRACTION),
    Param("sample_ratio", "int", -1, limits=(-1, MAX_GIVEN)),
    Param("position_sensitive", "bool", False),
    Param("aligned", "bool", False),
)
SAMPLE_ROIS = values(
    [[1, 0.3, 0.2, 3.6, 4.1], [0, -2, 1.5, 6, 2.5], [-1, 0, 0, 1, 1], [1, 3, 3, 2, 1]]
)

operator(
    _ALIGN,
    inputs=("data", "rois"),
    params=_ALIGN_PARAMS,
    infer=_align_infer,
    ref=_align_ref,
    grad=lambda F, dys, xs, ys, **attrs: [
        F._roi_align_grad(dys[0], xs[1], data_shape=xs[0].shape, **attrs),
        None,
    ],
    samples=(
        sample((2, 3, 5, 4), SAMPLE_ROIS, pooled_size=(2, 3), spatial_scale=1.0),
        sample(
            (2, 3, 5, 4),
            SAMPLE_ROIS,
            pooled_size=(2, 2),
            spatial_scale=0.5,
            sample_ratio=2,
            aligned=True,
        ),
        sample(
            (2, 8, 5, 4),
            SAMPLE_ROIS,
            pooled_size=(2, 2),
            spatial_scale=1.0,
            position_sensitive=True,
        ),
    ),
    doc=(
        "data (N, C, H, W) averaged over regions rois (R, 5) of (image, x1, y1, x2, y2), scaled by"
        " spatial_scale: output (R, C, *pooled_size). Each bin is the mean of sample_ratio x"
        " sample_ratio interpolated points, or, when that is not positive, of one a pixel."
        " position_sensitive: every bin reads its own channels. aligned: pixels' centres lie at"
        " half numbers. Images that do not exist give 0. Source: He et al. 2017, arXiv:1703.06870."
    ),
)


def _align_back_infer(ins, data_shape, **attrs):
    dy, rois = ins
    data = Type(data_shape, dy.dtype)
    must_be("_roi_align_grad", "dy", dy, _align_infer([data, rois], **attrs)[0].shape)
    return [data]


def _align_back_ref(xp, dy, rois, *, data_shape, **attrs):
    bands = _align_bands(xp, data_shape, rois, **attrs)
    return _unpool(xp, dy, bands, _align_channels(xp, dy.shape[1:], **attrs), data_shape)


operator(
    "_roi_align_grad",
    inputs=("dy", "rois"),
    params=(*_ALIGN_PARAMS, Param("data_shape", "shape")),
    infer=_align_back_infer,
    ref=_align_back_ref,
    grad=lambda F, dys, xs, ys, data_shape, **attrs: [
        F._contrib_ROIAlign(dys[0], xs[1], **attrs),
        None,
    ],
    samples=(
        sample(
            (4, 3, 2, 3),
            SAMPLE_ROIS,
            pooled_size=(2, 3),
            spatial_scale=1.0,
            data_shape=(2, 3, 5, 4),
        ),
        sample(
            (4, 2, 2, 2),
            SAMPLE_ROIS,
            pooled_size=(2, 2),
            spatial_scale=0.5,
            sample_ratio=2,
            position_sensitive=True,
            data_shape=(2, 8, 5, 4),
        ),
    ),
    doc="Gradient of ROIAlign with respect to its data, which has shape data_shape.",
)


# ---- PSROIPooling --------------------------------------------------------------------------------

_PS = "_contrib_PSROIPooling"


def check_groups(op: str, channels: int, output_dim: int, pooled_size: int, group_size: int) -> int:
    """The number of groups along an axis. Raises OperatorError."""
    group = group_size or pooled_size
    if min(output_dim, pooled_size, group) < 1 or channels != output_dim * group * group:
        raise OperatorError(
            op,
            "channels of data must be output_dim * group_size^2, all positive; got"
            f" {channels}, output_dim={output_dim}, pooled_size={pooled_size},"
            f" group_size={group_size}",
        )
    return group


def group_channels(xp: Any, output_dim: int, pooled_size: int, group: int) -> Array:
    """(output_dim, pooled, pooled): the channel that each output reads."""
    part = xp.arange(pooled_size) * group // pooled_size
    return (xp.arange(output_dim)[:, None, None] * group + part[:, None]) * group + part


def _ps_infer(ins, output_dim, pooled_size, group_size, **_):
    data, rois = ins
    dtype = check_rois(_PS, data, rois)
    check_groups(_PS, data.shape[1], output_dim, pooled_size, group_size)
    return [Type((rois.shape[0], output_dim, pooled_size, pooled_size), dtype)]


def round_half_away(xp: Any, x: Array) -> Array:
    """Halves away from 0, as C's round."""
    return xp.sign(x) * xp.floor(xp.abs(x) + 0.5)


def _ps_axis(xp, low, high, spatial_scale, n_bins, n):
    start, stop = (
        round_half_away(xp, low) * spatial_scale,
        (round_half_away(xp, high) + 1) * spatial_scale,
    )
    size = xp.maximum(stop - start, 0.1) / n_bins
    if not (xp.isfinite(start) and xp.isfinite(size)):
        return None
    i = xp.arange(n_bins).astype(low.dtype)[:, None]
    first = xp.clip(xp.floor(i * size + start), 0, n)
    last = xp.clip(xp.ceil((i + 1) * size + start), 0, n)
    j = xp.arange(n)
    return ((j >= first) & (j < last)) / xp.maximum(last - first, 1)


def _ps_bands(xp, shape, rois, spatial_scale, pooled_size):
    for roi in rois:
        image = image_of(roi, shape[0])
        rows, columns = (
            _ps_axis(xp, roi[i], roi[i + 2], spatial_scale, pooled_size, n)
            for i, n in ((2, shape[2]), (1, shape[3]))
        )
        ok = image >= 0 and rows is not None and columns is not None
        yield Band(image, rows.astype(rois.dtype), columns.astype(rois.dtype)) if ok else None


def _ps_ref(xp, data, rois, *, spatial_scale, output_dim, pooled_size, group_size):
    channels = group_channels(xp, output_dim, pooled_size, group_size or pooled_size)
    bands = _ps_bands(xp, data.shape, rois, spatial_scale, pooled_size)
    return _pool(xp, data, bands, channels, (len(rois), *channels.shape))


_PS_PARAMS = (
    Param("spatial_scale", "float", limits=FRACTION),
    Param("output_dim", "int"),
    Param("pooled_size", "int", limits=REACH),
    Param("group_size", "int", 0, limits=REACH),
)

operator(
    _PS,
    inputs=("data", "rois"),
    params=_PS_PARAMS,
    infer=_ps_infer,
    ref=_ps_ref,
    grad=lambda F, dys, xs, ys, **attrs: [
        F._psroi_pooling_grad(dys[0], xs[1], data_shape=xs[0].shape, **attrs),
        None,
    ],
    samples=(
        sample((2, 8, 5, 4), SAMPLE_ROIS, spatial_scale=1.0, output_dim=2, pooled_size=2),
        sample(
            (2, 4, 5, 4), SAMPLE_ROIS, spatial_scale=0.5, output_dim=1, pooled_size=3, group_size=2
        ),
    ),
    doc=(
        "data (N, output_dim group_size^2, H, W) averaged over the bins of regions rois (R, 5),"
        " each bin in its own channel: output (R, output_dim, pooled_size, pooled_size). Source:"
        " Dai et al. 2016, arXiv:1605.06409."
    ),
)


def _ps_back_infer(ins, data_shape, **attrs):
    dy, rois = ins
    data = Type(data_shape, dy.dtype)
    must_be("_psroi_pooling_grad", "dy", dy, _ps_infer([data, rois], **attrs)[0].shape)
    return [data]


def _ps_back_ref(xp, dy, rois, *, spatial_scale, output_dim, pooled_size, group_size, data_shape):
    channels = group_channels(xp, output_dim, pooled_size, group_size or pooled_size)
    bands = _ps_bands(xp, data_shape, rois, spatial_scale, pooled_size)
    return _unpool(xp, dy, bands, channels, data_shape)


operator(
    "_psroi_pooling_grad",
    inputs=("dy", "rois"),
    params=(*_PS_PARAMS, Param("data_shape", "shape")),
    infer=_ps_back_infer,
    ref=_ps_back_ref,
    grad=lambda F, dys, xs, ys, data_shape, **attrs: [
        F._contrib_PSROIPooling(dys[0], xs[1], **attrs),
        None,
    ],
    samples=(
        sample(
            (4, 1, 3, 3),
            SAMPLE_ROIS,
            spatial_scale=0.5,
            output_dim=1,
            pooled_size=3,
            group_size=2,
            data_shape=(2, 4, 5, 4),
        ),
    ),
    doc="Gradient of PSROIPooling with respect to its data, which has shape data_shape.",
)


# ---- ROIPooling ----------------------------------------------------------------------------------

_POOL = "ROIPooling"


def _pool_infer(ins, pooled_size, spatial_scale):
    data, rois = ins
    dtype = check_rois(_POOL, data, rois)
    shape = (rois.shape[0], data.shape[1], *pair(_POOL, pooled_size))
    return [Type(shape, dtype), Type(shape, "int32")]


def _bins(xp, low, high, spatial_scale, n_bins, n):
    """(first, last) pixel of every bin, the last one excluded."""
    start, stop = (
        round_half_away(xp, low * spatial_scale),
        round_half_away(xp, high * spatial_scale),
    )
    size = xp.maximum(stop - start + 1, 1) / xp.asarray(n_bins, low.dtype)
    i = xp.arange(n_bins).astype(low.dtype)
    first, last = xp.floor(i * size) + start, xp.ceil((i + 1) * size) + start
    return [xp.nan_to_num(xp.clip(a, 0, n)).astype("int64") for a in (first, last)]


def _pool_ref(xp, data, rois, *, pooled_size, spatial_scale):
    n, channels, height, width = data.shape
    shape = (len(rois), channels, *pooled_size)
    y, index = xp.zeros(shape, data.dtype), xp.full(shape, -1, "int32")
    for r, roi in enumerate(rois):
        image = image_of(roi, n)
        if image < 0:
            continue
        top, bottom = _bins(xp, roi[2], roi[4], spatial_scale, pooled_size[0], height)
        left, right = _bins(xp, roi[1], roi[3], spatial_scale, pooled_size[1], width)
        for i in range(pooled_size[0]):
            for j in range(pooled_size[1]):
                part = data[image, :, top[i] : bottom[i], left[j] : right[j]]
                if part.shape[1] and part.shape[2]:
                    flat = part.reshape(channels, -1)
                    best = xp.where(xp.isnan(flat), -xp.inf, flat).argmax(axis=1)
                    down, across = best // part.shape[2], best % part.shape[2]
                    index[r, :, i, j] = (top[i] + down) * width + left[j] + across
                    y[r, :, i, j] = part[xp.arange(channels), down, across]
    return y, index


operator(
    _POOL,
    aliases=("_npx_roi_pooling",),
    inputs=("data", "rois"),
    params=(
        Param("pooled_size", "shape", limits=REACH),
        Param("spatial_scale", "float", limits=FRACTION),
    ),
    n_outputs=2,
    n_visible=1,
    output_names=("output", "maxidx"),
    infer=_pool_infer,
    ref=_pool_ref,
    grad=lambda F, dys, xs, ys, **_: [
        F._roi_pooling_grad(dys[0], xs[1], ys[1], data_shape=xs[0].shape),
        None,
    ],
    samples=(
        sample((2, 3, 5, 4), SAMPLE_ROIS, pooled_size=(2, 3), spatial_scale=1.0),
        sample((2, 1, 6, 5), SAMPLE_ROIS, pooled_size=(3, 2), spatial_scale=0.5),
    ),
    doc=(
        "The maximum of data (N, C, H, W) in each bin of regions rois (R, 5) of (image, x1, y1, x2,"
        " y2), scaled by spatial_scale and rounded: output (R, C, *pooled_size). Source: Girshick"
        " 2015, arXiv:1504.08083."
    ),
)


def _pool_back_infer(ins, data_shape):
    dy, rois, index = ins
    op = "_roi_pooling_grad"
    images(op, "data", Type(data_shape))
    images(op, "dy", dy)
    must_be(op, "maxidx", index, dy.shape)
    must_be(op, "dy", dy, (rois.shape[0], data_shape[1], *dy.shape[2:]))
    check_rois(op, Type(data_shape, dy.dtype), rois)
    return [Type(data_shape, dy.dtype)]


def _pool_back_ref(xp, dy, rois, index, *, data_shape):
    n, channels, height, width = data_shape
    # what lies nowhere goes to a plane of its own
    dx = xp.zeros((n * channels + 1, height * width), dy.dtype)
    image = xp.where((rois[:, 0] >= 0) & (rois[:, 0] < n), rois[:, 0], -1).astype("int64")
    planes = image[:, None, None, None] * channels + xp.arange(channels)[:, None, None]
    index = index.astype("int64")
    there = (index >= 0) & (index < height * width) & (planes >= 0)
    at = xp.where(there, planes, n * channels), xp.where(there, index, 0)
    xp.add.at(dx, at, dy)
    dx = dx[:-1]
    return dx.reshape(data_shape)


operator(
    "_roi_pooling_grad",
    inputs=("dy", "rois", "maxidx"),
    params=(Param("data_shape", "shape"),),
    infer=_pool_back_infer,
    ref=_pool_back_ref,
    grad=first_order(_POOL),
    samples=(
        sample(
            (4, 2, 1, 2),
            SAMPLE_ROIS,
            values(
                [[[[0, 3]], [[5, 5]]]] * 2 + [[[[-1, -1]], [[-1, -1]]]] + [[[[7, 2]], [[1, 0]]]],
                "int32",
            ),
            data_shape=(2, 2, 3, 4),
        ),
    ),
    doc="Gradient of ROIPooling: dy goes to where the maxima were found.",
)
