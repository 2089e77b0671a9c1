"""Regions of interest read between pixels at places of their own: RROIAlign and
DeformablePSROIPooling."""

from __future__ import annotations

from math import ceil, isqrt, prod
from typing import NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..record import FRACTION, REACH, Param, Shape, Type, operator, sample, uniform, values
from ..shapes import float_dtype, must_be
from .roi import (
    MAX_GIVEN,
    MAX_SAMPLES,
    SAMPLE_ROIS,
    check_groups,
    check_rois,
    group_channels,
    image_of,
    pair,
    round_half_away,
)
from .sampling import corners, first_order, gather, scatter, slopes

# ---- RROIAlign -----------------------------------------------------------------------------------

_ROTATED = "_contrib_RROIAlign"
MAX_READ = 1 << 22  # elements for one region, where its extent says how many samples are taken


def most_turned(pooled_size: Shape, channels: int) -> int:
    """The most samples along an axis of a bin, where the region's extent says how many."""
    return max(isqrt(MAX_READ // max(prod(pooled_size) * channels, 1)), 1)


def _rotated_places(xp, roi, pooled_size, spatial_scale, sampling_ratio, channels):
    """(y, x) of the samples of a turned region, both (bins, samples)."""
    most = most_turned(pooled_size, channels)
    cx, cy, w, h = (roi[i] * spatial_scale for i in (1, 2, 3, 4))
    angle = roi[5] * (3.141592653589793 / 180)
    sizes, offsets = [], []
    for extent, n_bins in ((h, pooled_size[0]), (w, pooled_size[1])):
        extent = xp.maximum(extent, 1)
        n = sampling_ratio
        if n <= 0:
            n = min(max(ceil(float(extent / n_bins)), 1), MAX_SAMPLES, most)
        steps = xp.arange(n_bins)[:, None] + (xp.arange(n) + 0.5) / n
        sizes.append(n)
        offsets.append((steps / n_bins - 0.5).astype(roi.dtype) * extent)
    dy = offsets[0][:, None, :, None]
    dx = offsets[1][None, :, None, :]
    y, x = (
        cy + dy * xp.cos(angle) - dx * xp.sin(angle),
        cx + dx * xp.cos(angle) + dy * xp.sin(angle),
    )
    shape = (pooled_size[0] * pooled_size[1], sizes[0] * sizes[1])
    return y.reshape(shape), x.reshape(shape)


def _rotated_infer(ins, pooled_size, **_):
    data, rois = ins
    dtype = check_rois(_ROTATED, data, rois, 6)
    return [Type((rois.shape[0], data.shape[1], *pair(_ROTATED, pooled_size)), dtype)]


def _rotated_parts(xp, shape, rois, pooled_size, spatial_scale, sampling_ratio):
    """For each region with an image: its number, (image, ...) of its samples, their corners and
    their number in a bin."""
    height, width = shape[2:]
    for r, roi in enumerate(rois):
        image = image_of(roi, shape[0])
        if image < 0 or not xp.isfinite(roi).all():
            continue
        y, x = _rotated_places(xp, roi, pooled_size, spatial_scale, sampling_ratio, shape[1])
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        flat = [a.reshape(-1) for a in (y, x, inside)]
        batch = xp.full(flat[0].shape, image)
        yield (
            r,
            batch,
            corners(xp, flat[0], flat[1], height, width, flat[2], clamp=True),
            y.shape[1],
        )


def _rotated_ref(xp, data, rois, *, pooled_size, **attrs):
    out = xp.zeros((len(rois), data.shape[1], *pooled_size), data.dtype)
    for r, batch, c, n in _rotated_parts(xp, data.shape, rois, pooled_size, **attrs):
        mean = gather(xp, data, batch, c).reshape(-1, n, data.shape[1]).mean(axis=1)
        out[r] = mean.T.reshape(out.shape[1:])
    return out


_ROTATED_PARAMS = (
    Param("pooled_size", "shape", limits=REACH),
    Param("spatial_scale", "float", limits=FRACTION),
    Param("sampling_ratio", "int", -1, limits=(-1, MAX_GIVEN)),
)
_TURNED = values([[0, 2.1, 2.2, 3, 2, 30], [1, 1, 3, 5, 1.5, -100], [-1, 1, 1, 1, 1, 0]])

operator(
    _ROTATED,
    inputs=("data", "rois"),
    params=_ROTATED_PARAMS,
    infer=_rotated_infer,
    ref=_rotated_ref,
    grad=lambda F, dys, xs, ys, **attrs: [
        F._rroi_align_grad(dys[0], xs[1], data_shape=xs[0].shape, **attrs),
        None,
    ],
    samples=(
        sample((2, 2, 5, 4), _TURNED, pooled_size=(2, 3), spatial_scale=1.0),
        sample((2, 2, 5, 4), _TURNED, pooled_size=(2, 2), spatial_scale=0.7, sampling_ratio=2),
    ),
    doc=(
        "ROIAlign of turned regions: rois (R, 6) of (image, centre x, centre y, width, height,"
        " angle in degrees). Source: Ma et al. 2018, arXiv:1703.01086."
    ),
)


def _rotated_back_infer(ins, data_shape, **attrs):
    dy, rois = ins
    data = Type(data_shape, dy.dtype)
    must_be("_rroi_align_grad", "dy", dy, _rotated_infer([data, rois], **attrs)[0].shape)
    return [data]


def _rotated_back_ref(xp, dy, rois, *, data_shape, pooled_size, **attrs):
    dx = xp.zeros(data_shape, dy.dtype)
    for r, batch, c, n in _rotated_parts(xp, data_shape, rois, pooled_size, **attrs):
        points = xp.repeat(dy[r].reshape(data_shape[1], -1).T / n, n, axis=0)
        dx += scatter(xp, points, data_shape, batch, c)
    return dx


operator(
    "_rroi_align_grad",
    inputs=("dy", "rois"),
    params=(*_ROTATED_PARAMS, Param("data_shape", "shape")),
    infer=_rotated_back_infer,
    ref=_rotated_back_ref,
    grad=lambda F, dys, xs, ys, data_shape, **attrs: [
        F._contrib_RROIAlign(dys[0], xs[1], **attrs),
        None,
    ],
    samples=(
        sample(
            (3, 2, 2, 3), _TURNED, pooled_size=(2, 3), spatial_scale=1.0, data_shape=(2, 2, 5, 4)
        ),
    ),
    doc="Gradient of RROIAlign with respect to its data, which has shape data_shape.",
)


# ---- DeformablePSROIPooling ----------------------------------------------------------------------

_DEFORM = "_contrib_DeformablePSROIPooling"


def _deform_infer(
    ins, output_dim, pooled_size, group_size, part_size, sample_per_part, no_trans, **_
):
    data, rois = ins[:2]
    dtype = check_rois(_DEFORM, data, rois)
    if sample_per_part < 1 or group_size < 1:
        raise OperatorError(
            _DEFORM,
            f"sample_per_part and group_size must be positive, got {sample_per_part} and"
            f" {group_size}",
        )
    check_groups(_DEFORM, data.shape[1], output_dim, pooled_size, group_size)
    if not no_trans:
        part = part_size or pooled_size
        shape = ins[2].shape
        if (
            len(shape) != 4
            or shape[0] != rois.shape[0]
            or shape[1] < 2
            or shape[1] % 2
            or output_dim % (shape[1] // 2)
            or shape[2:] != (part, part)
        ):
            raise ShapeError(
                _DEFORM,
                f"trans must be (R, 2 classes, {part}, {part}) for rois {rois.shape}, classes"
                f" dividing output_dim = {output_dim}; got {shape}",
            )
        float_dtype(_DEFORM, (data, ins[2]), ("data", "trans"))
    shape = (rois.shape[0], output_dim, pooled_size, pooled_size)
    return [Type(shape, dtype), Type(shape, dtype)]


class _Deformed(NamedTuple):
    """The samples of all regions: places (R, classes, P, P, S, S) flattened, and what they are."""

    y: object
    x: object
    inside: object
    batch: object
    moved: object  # pixels by which a unit of trans moves a region's samples: (R, 2) of x and y
    cell: object  # the part that each bin belongs to, (P,)
    shape: tuple


def _deformed(
    xp, shape, rois, trans, spatial_scale, pooled_size, part_size, sample_per_part, trans_std
):
    n, p, s = len(rois), pooled_size, sample_per_part
    part = part_size or p
    classes = 1 if trans is None else trans.shape[1] // 2
    cell = xp.arange(p) * part // p
    height, width = shape[2:]
    step = (xp.arange(p)[:, None] + xp.arange(s) / s).astype(rois.dtype)
    places, moved = [], []
    for axis, (low, high) in enumerate(((rois[:, 1], rois[:, 3]), (rois[:, 2], rois[:, 4]))):
        start = round_half_away(xp, low) * spatial_scale - 0.5
        extent = xp.maximum((round_half_away(xp, high) + 1) * spatial_scale - 0.5 - start, 0.1)
        at = start[:, None, None] + step * (extent / p)[:, None, None]
        at = at[:, None, None, :, None, :] if axis == 0 else at[:, None, :, None, :, None]
        if trans is not None:
            shift = trans.reshape(n, classes, 2, part, part)[:, :, axis][:, :, cell][..., cell]
            shift = shift * trans_std * extent[:, None, None, None]
            at = at + shift[..., None, None]
        places.append(xp.broadcast_to(at, (n, classes, p, p, s, s)))
        moved.append(extent * trans_std)
    x, y = (a.reshape(-1) for a in places)
    image = xp.where((rois[:, 0] >= 0) & (rois[:, 0] < shape[0]), rois[:, 0], -1).astype("int64")
    batch = xp.broadcast_to(image.reshape(n, 1, 1, 1, 1, 1), places[0].shape).reshape(-1)
    inside = (x >= -0.5) & (x <= width - 0.5) & (y >= -0.5) & (y <= height - 0.5) & (batch >= 0)
    return _Deformed(
        y, x, inside, xp.maximum(batch, 0), xp.stack(moved, axis=1), cell, (n, classes, p, p, s, s)
    )


def _by_group(xp, data, d, channels):
    """Planes of one channel each, and for every (sample, channel of its class) the plane: the
    arguments of a gather."""
    n, classes, p, _, s, _ = d.shape
    each = channels.shape[0] // classes
    of = channels.reshape(classes, each, p, p).transpose(0, 2, 3, 1)  # (classes, P, P, each)
    of = xp.broadcast_to(of[None, :, :, :, None, None, :], (*d.shape, each)).reshape(-1, each)
    return (d.batch[:, None] * data.shape[1] + of).reshape(-1), each


def _deform_setup(xp, data, rois, trans, attrs):
    keep = ("spatial_scale", "pooled_size", "part_size", "sample_per_part", "trans_std")
    d = _deformed(xp, data.shape, rois, trans, **{k: attrs[k] for k in keep})
    group, p = attrs["group_size"], attrs["pooled_size"]
    planes, each = _by_group(xp, data, d, group_channels(xp, attrs["output_dim"], p, group))
    y, x, inside = (xp.repeat(a, each) for a in (d.y, d.x, d.inside))
    height, width = data.shape[2:]
    c = corners(xp, y, x, height, width, inside, clamp=True)
    n, classes, _, _, s, _ = d.shape
    count = d.inside.reshape(n, classes, p * p, s * s).sum(axis=-1)  # of samples in each bin
    return d, planes, each, c, count


def _deform_ref(xp, data, rois, trans=None, *, output_dim, pooled_size, **attrs):
    attrs |= {"output_dim": output_dim, "pooled_size": pooled_size}
    d, planes, each, c, count = _deform_setup(xp, data, rois, trans, attrs)
    n, classes, p, _, s, _ = d.shape
    flat = data.reshape(-1, 1, *data.shape[2:])
    found = gather(xp, flat, planes, c).reshape(n, classes, p * p, s * s, each).sum(axis=3)
    y = found / xp.maximum(count, 1)[..., None].astype(data.dtype)
    wide = xp.broadcast_to(count[..., None], y.shape).astype(data.dtype)
    shape = (n, output_dim, p, p)
    return tuple(xp.moveaxis(a, -1, 2).reshape(shape) for a in (y, wide))


_DEFORM_PARAMS = (
    Param("spatial_scale", "float", limits=FRACTION),
    Param("output_dim", "int"),
    Param("group_size", "int", limits=REACH),
    Param("pooled_size", "int", limits=REACH),
    Param("part_size", "int", 0, limits=REACH),
    Param("sample_per_part", "int", 1, limits=(0, MAX_GIVEN)),
    Param("trans_std", "float", 0.0, limits=FRACTION),
    Param("no_trans", "bool", False),
)


def _deform_grad(F, dys, xs, ys, no_trans, **attrs):
    grads = F._deformable_psroi_grad(dys[0], *xs, no_trans=no_trans, **attrs)
    return [grads, None] if no_trans else [grads[0], None, grads[1]]


operator(
    _DEFORM,
    inputs=("data", "rois", "trans"),
    input_names=lambda no_trans, **_: ("data", "rois") + (() if no_trans else ("trans",)),
    params=_DEFORM_PARAMS,
    n_outputs=2,
    n_visible=1,
    output_names=("output", "top_count"),
    infer=_deform_infer,
    ref=_deform_ref,
    grad=_deform_grad,
    samples=(
        sample(
            (2, 8, 5, 4),
            SAMPLE_ROIS,
            uniform((4, 4, 2, 2), -1, 1),
            spatial_scale=1.0,
            output_dim=2,
            group_size=2,
            pooled_size=3,
            part_size=2,
            sample_per_part=2,
            trans_std=0.1,
        ),
        sample(
            (2, 2, 5, 4),
            SAMPLE_ROIS,
            spatial_scale=0.6,
            output_dim=2,
            group_size=1,
            pooled_size=2,
            no_trans=True,
        ),
    ),
    doc=(
        "PSROIPooling whose bins, each the mean of sample_per_part^2 interpolated points, are moved"
        " by trans (R, 2 classes, part_size, part_size) times trans_std times the region's size."
        " Source: Dai et al. 2017, arXiv:1703.06211."
    ),
)


def _deform_back_infer(ins, **attrs):
    dy = ins[0]
    must_be("_deformable_psroi_grad", "dy", dy, _deform_infer(ins[1:], **attrs)[0].shape)
    return [ins[1]] if attrs["no_trans"] else [ins[1], ins[3]]


def _deform_back_ref(xp, dy, data, rois, trans=None, *, pooled_size, trans_std, **attrs):
    attrs |= {"pooled_size": pooled_size, "trans_std": trans_std}
    d, planes, each, c, count = _deform_setup(xp, data, rois, trans, attrs)
    n, classes, p, _, s, _ = d.shape
    g = xp.moveaxis(dy.reshape(n, classes, each, p * p), 2, -1)
    g = g / xp.maximum(count, 1)[..., None].astype(dy.dtype)
    g = xp.broadcast_to(g[:, :, :, None], (n, classes, p * p, s * s, each)).reshape(-1, 1)
    flat = data.reshape(-1, 1, *data.shape[2:])
    ddata = scatter(xp, g, flat.shape, planes, c).reshape(data.shape)
    if trans is None:
        return ddata
    dtrans = xp.zeros(trans.shape, trans.dtype)
    part = trans.shape[2]
    by_part = dtrans.reshape(n, classes, 2, part, part)
    down, across = xp.broadcast_arrays(d.cell[:, None], d.cell)
    for axis, slope in enumerate(slopes(xp, g, flat, planes, c)[::-1]):
        total = slope.reshape(n, classes, p, p, -1).sum(axis=-1) * d.moved[:, axis].reshape(
            -1, 1, 1, 1
        )
        xp.add.at(by_part[:, :, axis], (slice(None), slice(None), down, across), total)
    return ddata, dtrans


operator(
    "_deformable_psroi_grad",
    inputs=("dy", "data", "rois", "trans"),
    input_names=lambda no_trans, **_: ("dy", "data", "rois") + (() if no_trans else ("trans",)),
    n_outputs=lambda no_trans, **_: 1 if no_trans else 2,
    params=_DEFORM_PARAMS,
    output_names=("ddata", "dtrans"),
    infer=_deform_back_infer,
    ref=_deform_back_ref,
    grad=first_order(_DEFORM),
    samples=(
        sample(
            (4, 2, 3, 3),
            (2, 8, 5, 4),
            SAMPLE_ROIS,
            uniform((4, 4, 2, 2), -1, 1),
            spatial_scale=1.0,
            output_dim=2,
            group_size=2,
            pooled_size=3,
            part_size=2,
            sample_per_part=2,
            trans_std=0.1,
        ),
    ),
    doc="Gradients of DeformablePSROIPooling with respect to data and trans.",
)
