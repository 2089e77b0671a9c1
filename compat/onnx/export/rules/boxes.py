"""Detection: overlaps, non-maximum suppression, regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....kernels.ops.boxes import areas, overlaps, to_center, to_corner
from .....kernels.ops.multibox import _detected
from ..arrays import FUNCTIONS, filled, top
from ..graph import Graph
from ..rule import rule, without
from ..tensors import Namespace, Tensor
from ..write import Body


def stay(g: Graph, losing: Tensor, valid: Tensor) -> Tensor:
    """Which of boxes in falling order of score stay, bools (B, n). losing: (B, n, n), does box j
    lose to box i if that stays?

    All boxes stay that no staying one beats: computed again until it is so. Each round settles at
    least one more box, so it ends with what suppression one by one gives; few rounds are needed.
    """
    n = valid.shape[1]
    body = Graph(g.opset, g)
    count = Tensor(body, (), np.dtype(np.int64), g.names.new("round"))
    on = Tensor(body, (), np.dtype(bool), g.names.new("on"))
    kept = Tensor(body, valid.shape, np.dtype(bool), g.names.new("kept"))
    beats = body.And(losing, body.unsqueeze(kept, [2]), shape=losing.shape)
    beaten = body.reduce("ReduceMax", body.cast(beats, "int32"), [1])
    after = body.And(valid, body.Not(body.cast(beaten, "bool")), shape=valid.shape)
    changed = body.reduce("ReduceMax", body.cast(body.Xor(after, kept), "int32"))
    outs = [body.Identity(t) for t in (body.cast(changed, "bool"), after)]
    return g.Loop(
        g.term(n).reshape(()), np.bool_(True), valid, body=Body(body, [count, on, kept], outs),
        shape=valid.shape, dtype="bool",
    )  # fmt: skip


def losers(
    g: Graph, corners: Tensor, classes: Tensor | None, valid: Tensor, threshold: float,
    strict: bool, area: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(B, n, n): would box j lose to box i, before it in order?"""
    xp: Any = Namespace(g)
    n = corners.shape[1]
    a, b = g.unsqueeze(corners, [2]), g.unsqueeze(corners, [1])
    shared = overlaps(xp, a, b)
    area = areas(xp, corners) if area is None else area
    share = shared / (g.unsqueeze(area, [2]) + g.unsqueeze(area, [1]) - shared)
    made = share > threshold if strict else share >= threshold
    if classes is not None:
        made = made & (g.unsqueeze(classes, [2]) == g.unsqueeze(classes, [1]))
    return made & g.tensor(np.triu(np.ones((n, n), bool), 1)) & g.unsqueeze(valid, [2])


def rows_at(g: Graph, x: Tensor, at: Tensor) -> Tensor:
    """Rows (B, k, width) of x (B, n, width) at places (B, k)."""
    shape = (*at.shape, *x.shape[2:])
    return g.GatherND(x, g.unsqueeze(at, [2]), batch_dims=1, shape=shape)


def first(g: Graph, rows: Tensor, kept: Tensor, n: int) -> Tensor:
    """The kept rows first, in their order, then rows of -1: (B, n, width)."""
    k = rows.shape[1]
    _, order = top(g, g.cast(kept, "int32"), k, 1)
    taken = g.where(
        g.unsqueeze(rows_at(g, kept, order), [2]), rows_at(g, rows, order), g.tensor(-1.0, rows)
    )
    if k == n:
        return taken
    missing = np.array([0, 0, 0, 0, n - k, 0], np.int64)
    return g.Pad(taken, missing, g.tensor(-1.0, rows), shape=(rows.shape[0], n, rows.shape[2]))


@rule("_contrib_box_nms")
def box_nms(
    g: Graph, data: Tensor, *, overlap_thresh: float, valid_thresh: float, topk: int,
    coord_start: int, score_index: int, id_index: int, background_id: int, force_suppress: bool,
    in_format: str, out_format: str,
) -> Tensor:  # fmt: skip
    if topk == 0:
        return data
    xp: Any = Namespace(g)
    n, width = data.shape[-2:]
    boxes = g.reshape(data, (-1, n, width)) if data.ndim != 3 else data
    scores = boxes[:, :, score_index]
    valid = scores > valid_thresh
    if id_index >= 0:
        valid = valid & (boxes[:, :, id_index] != background_id)
    k = min(topk, n) if topk > 0 else n
    _, order = top(g, g.where(valid, scores, -np.inf), k, 1)
    rows, valid = rows_at(g, boxes, order), rows_at(g, valid, order)
    corners = rows[:, :, coord_start : coord_start + 4]
    area = None
    if in_format == "center":
        size = corners[:, :, 2:]
        area = size[:, :, 0] * size[:, :, 1]
        area = xp.where((size < 0.0).any(axis=-1), 0.0, area)
        corners = to_corner(xp, corners)
    classes = rows[:, :, id_index] if id_index >= 0 and not force_suppress else None
    kept = stay(g, losers(g, corners, classes, valid, overlap_thresh, True, area), valid)
    if in_format != out_format:
        changed = to_center(xp, corners) if out_format == "center" else corners
        parts = [rows[:, :, :coord_start], changed, rows[:, :, coord_start + 4 :]]
        rows = xp.concatenate([p for p in parts if p.shape[2]], axis=2)
    return g.reshape(first(g, rows, kept, n), data.shape)


@rule("_contrib_MultiBoxDetection")
def detection(
    g: Graph, cls_prob: Tensor, loc_pred: Tensor, anchor: Tensor, *, clip: bool, threshold: float,
    nms_threshold: float, force_suppress: bool, variances: Any, nms_topk: int, **_: Any,
) -> Tensor:  # fmt: skip
    xp: Any = Namespace(g)
    batch, n_classes, n = cls_prob.shape
    if n_classes < 2:
        return filled(g, g.outs[0].shape, -1, cls_prob.dtype)
    objects = cls_prob[:, 1:]
    best, score = xp.argmax(objects, axis=1), xp.max(objects, axis=1)
    valid = (score >= threshold) & (score > -1.0)
    offsets = g.reshape(loc_pred, (-1, 4))
    anchors = g.reshape(g.expand(anchor, (batch, n, 4)), (-1, 4))
    boxes = g.reshape(_detected(xp, offsets, anchors, variances, clip), (batch, n, 4))
    named = g.cast(best, score.dtype)
    rows = xp.concatenate([g.unsqueeze(named, [2]), g.unsqueeze(score, [2]), boxes], axis=2)
    if not 0 < nms_threshold <= 1:
        return first(g, rows, valid, n)
    # those that count come first and by falling score; the nms_topk best of them compete
    _, order = top(g, g.where(valid, score, -np.inf), n, 1)
    original = first(g, rows, valid, n)
    ordered, valid = rows_at(g, rows, order), rows_at(g, valid, order)
    k = min(nms_topk, n) if nms_topk > 0 else n
    best_rows, on = ordered[:, :k], valid[:, :k]
    classes = None if force_suppress else best_rows[:, :, 0]
    kept = stay(g, losers(g, best_rows[:, :, 2:], classes, on, nms_threshold, False), on)
    named = g.unsqueeze(g.where(kept, best_rows[:, :, 0], -1.0), [2])
    found = xp.concatenate([named, best_rows[:, :, 1:]], axis=2)
    found = g.where(g.unsqueeze(on, [2]), found, -1.0)
    if k == n:
        return found
    # what is beyond stays where it was, without a class
    rest = original[:, k:]
    rest = xp.concatenate([xp.full((batch, n - k, 1), -1.0, rest.dtype), rest[:, :, 1:]], axis=2)
    return xp.concatenate([found, rest], axis=1)


@rule("_contrib_ROIAlign")
def roi_align(
    g: Graph, x: Tensor, rois: Tensor, *, pooled_size: Any, spatial_scale: float, sample_ratio: int,
    position_sensitive: bool, aligned: bool,
) -> Tensor:  # fmt: skip
    if position_sensitive or g.opset < 16:
        return g.converter.by_reference(
            g, x, rois, pooled_size=pooled_size, spatial_scale=spatial_scale,
            sample_ratio=sample_ratio, position_sensitive=position_sensitive, aligned=aligned,
        )  # fmt: skip
    at = g.cast(rois[:, 0], "int64")
    image = g.Clip(at, np.int64(0), g.tensor(x.shape[0] - 1, at))
    made = g.RoiAlign(
        x, rois[:, 1:], image, output_height=pooled_size[0], output_width=pooled_size[1],
        sampling_ratio=max(sample_ratio, 0), spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        shape=g.outs[0].shape,
    )  # fmt: skip
    return of_images(g, x, at, made)


def of_images(g: Graph, x: Tensor, at: Tensor, made: Tensor) -> Tensor:
    """Regions (n, ...) of images `at`; zeros where there is no such image."""
    exists = (at >= 0) & (at < g.tensor(x.shape[0], at))
    return g.where(g.unsqueeze(exists, range(1, made.ndim)), made, 0.0)


@rule("ROIPooling")
def roi_pooling(
    g: Graph, x: Tensor, rois: Tensor, *, pooled_size: Any, spatial_scale: float
) -> Tensor:
    at = g.cast(rois[:, 0], "int64")
    last = g.tensor(x.shape[0] - 1, at)
    given = FUNCTIONS["concatenate"](
        g, [g.cast(g.unsqueeze(g.Clip(at, np.int64(0), last), [1]), rois.dtype), rois[:, 1:]], 1
    )
    made = g.MaxRoiPool(
        x, given, pooled_shape=list(pooled_size), spatial_scale=spatial_scale, shape=g.outs[0].shape
    )
    return of_images(g, x, at, made)


without(
    "it has no rule",
    "_contrib_Proposal _contrib_MultiProposal _contrib_PSROIPooling _contrib_RROIAlign",
)
