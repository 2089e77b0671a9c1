"""SSD's operators: MultiBoxPrior, MultiBoxTarget, MultiBoxDetection.

Boxes are (x1, y1, x2, y2) in units of the image's size.
Source: Liu et al. 2016, arXiv:1512.02325.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Type, operator, sample, uniform, values
from ..shapes import float_dtype, must_be
from .boxes import check_boxes, descending, iou, suppress, to_center, to_corner
from .resize import images

_VARIANCES = Param("variances", "floats", (0.1, 0.1, 0.2, 0.2))


def _four(op, variances):
    if len(variances) != 4 or 0.0 in variances:
        raise OperatorError(op, f"variances must be 4 numbers other than 0, got {variances}")


# ---- MultiBoxPrior -------------------------------------------------------------------------------

_PRIOR = "_contrib_MultiBoxPrior"


def _prior_infer(ins, sizes, ratios, steps, offsets, **_):
    h, w = images(_PRIOR, "data", ins[0])[2:]
    if not sizes or not ratios or min(ratios) <= 0:
        raise OperatorError(
            _PRIOR, f"sizes and positive ratios must be given, got {sizes} and {ratios}"
        )
    if len(steps) != 2 or len(offsets) != 2 or steps[0] * steps[1] < 0:
        raise OperatorError(
            _PRIOR,
            f"steps must be two numbers of one sign and offsets two numbers, got {steps} and"
            f" {offsets}",
        )
    n = h * w * (len(sizes) + len(ratios) - 1)
    return [Type((1, n, 4), float_dtype(_PRIOR, ins, ("data",)))]


def _prior_ref(xp, data, *, sizes, ratios, clip, steps, offsets):
    h, w = data.shape[2:]
    one = xp.float32 if data.dtype != xp.float64 else xp.float64
    centres = []
    for axis, n in enumerate((h, w)):
        step = steps[axis] if steps[axis] > 0 else 1 / max(n, 1)
        centres.append((xp.arange(n).astype(one) + one(offsets[axis])) * one(step))
    shapes = [(s, ratios[0]) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
    half = xp.asarray([(s * h / max(w, 1) * sqrt(r) / 2, s / sqrt(r) / 2) for s, r in shapes])
    y, x = xp.broadcast_to(centres[0][:, None], (h, w)), xp.broadcast_to(centres[1], (h, w))
    centre = xp.stack([x, y], axis=-1)[:, :, None]
    half = half.astype(one)
    boxes = xp.concatenate([centre - half, centre + half], axis=-1).reshape(1, -1, 4)
    return xp.clip(boxes, 0, 1) if clip else boxes


operator(
    _PRIOR,
    aliases=("_npx_multibox_prior",),
    params=(
        Param("sizes", "floats", (1.0,)),
        Param("ratios", "floats", (1.0,)),
        Param("clip", "bool", False),
        Param("steps", "floats", (-1.0, -1.0)),
        Param("offsets", "floats", (0.5, 0.5)),
    ),
    infer=_prior_infer,
    ref=_prior_ref,
    samples=(
        sample((1, 2, 2, 3), sizes=(0.5, 0.25), ratios=(1.0, 2.0)),
        sample((1, 2, 3, 2), sizes=(0.4,), steps=(0.3, 0.2), offsets=(0.1, 0.9), clip=True),
    ),
    doc=(
        "Anchor boxes (1, H W (sizes + ratios - 1), 4) around the pixels of data (N, C, H, W):"
        " every size with the first ratio (width over height), and the first size with the other"
        " ratios. steps and offsets (y, x): the distance of the centres, and where in a step they"
        " lie; clip cuts boxes at the image."
    ),
)


# ---- MultiBoxTarget ------------------------------------------------------------------------------

_TARGET = "_contrib_MultiBoxTarget"


def check_anchors(op: str, anchor: Type) -> int:
    check_boxes(op, "anchor", anchor)
    if len(anchor.shape) != 3 or anchor.shape[0] != 1:
        raise ShapeError(op, f"anchor must be (1, number of anchors, 4), got {anchor.shape}")
    return anchor.shape[1]


def _target_infer(ins, variances, **_):
    anchor, label, cls_pred = ins
    n = check_anchors(_TARGET, anchor)
    _four(_TARGET, variances)
    if len(label.shape) != 3 or label.shape[2] < 5:
        raise ShapeError(
            _TARGET,
            f"label must be (batch, objects, at least 5: class, x1, y1, x2, y2), got {label.shape}",
        )
    batch = label.shape[0]
    if len(cls_pred.shape) != 3 or (cls_pred.shape[0], cls_pred.shape[2]) != (batch, n):
        raise ShapeError(_TARGET, f"cls_pred must be ({batch}, classes, {n}), got {cls_pred.shape}")
    if cls_pred.shape[1] == 0 or n == 0:
        raise ShapeError(
            _TARGET, f"there must be classes and anchors, got cls_pred {cls_pred.shape}"
        )
    dtype = float_dtype(_TARGET, ins, ("anchor", "label", "cls_pred"))
    return [Type((batch, 4 * n), dtype), Type((batch, 4 * n), dtype), Type((batch, n), dtype)]


def _matched(xp, share, threshold):
    """(anchor's object, anchor's best overlap, is positive), each (N,), from overlaps (N, M)."""
    n, m = share.shape
    best, overlap = xp.zeros(n, "int64"), xp.full(n, -1, share.dtype)
    positive = xp.zeros(n, bool)
    open_ = xp.where(xp.isnan(share), 0, share)
    for _ in range(m):  # every object takes its best anchor, the best pair first
        k = int(open_.argmax())
        i, j = k // m, k % m
        if not open_[i, j] > 1e-6:
            break
        best[i], overlap[i], positive[i] = j, share[i, j], True
        open_[i, :], open_[:, j] = -1, -1
    if threshold > 0:
        found = share.argmax(axis=1)
        value = share[xp.arange(n), found]
        best, overlap = xp.where(positive, best, found), xp.where(positive, overlap, value)
        positive |= value > threshold
    return best, overlap, positive


def _mined(xp, share, overlap, positive, logits, ratio, below):
    """Which anchors are negative: the ones that look least like background."""
    n_positive = int(positive.sum())
    count = min(int(n_positive * xp.float32(ratio)), len(positive) - n_positive)
    overlap = xp.where(overlap < 0, xp.maximum(share.max(axis=1), overlap), overlap)
    may = xp.nonzero((overlap < below) & ~positive)[0]
    top = logits.max(axis=0)
    background = xp.exp(logits[0] - top) / xp.exp(logits - top).sum(axis=0)
    negative = xp.zeros(len(positive), bool)
    negative[may[descending(xp, -background[may])][:count]] = True
    return negative


def encoded(xp: Any, anchors: Array, boxes: Array, variances: Sequence[float]) -> Array:
    """Offsets of boxes (N, 4) from anchors (N, 4), in units of variances."""
    a, g = to_center(xp, anchors), to_center(xp, boxes)
    moved = (g[:, :2] - a[:, :2]) / a[:, 2:]
    v = xp.asarray(variances).astype(anchors.dtype)
    return xp.concatenate([moved, xp.log(g[:, 2:] / a[:, 2:])], axis=1) / v


def _target_ref(
    xp,
    anchor,
    label,
    cls_pred,
    *,
    overlap_threshold,
    ignore_label,
    negative_mining_ratio,
    negative_mining_thresh,
    variances,
    **_,
):
    anchors, n = anchor[0], anchor.shape[1]
    batch = label.shape[0]
    offsets, mask = (xp.zeros((batch, n, 4), anchor.dtype) for _ in range(2))
    classes = xp.full((batch, n), ignore_label, anchor.dtype)
    for b in range(batch):
        ends = xp.nonzero(label[b, :, 0] == -1)[0]
        objects = label[b, : int(ends[0]) if len(ends) else label.shape[1]]
        if not len(objects):
            continue
        share = iou(xp, anchors[:, None], objects[None, :, 1:5])
        best, overlap, positive = _matched(xp, share, overlap_threshold)
        if negative_mining_ratio > 0:
            negative = _mined(
                xp,
                share,
                overlap,
                positive,
                cls_pred[b],
                negative_mining_ratio,
                negative_mining_thresh,
            )
        else:
            negative = ~positive
        classes[b][negative] = 0
        classes[b][positive] = objects[best[positive], 0] + 1
        mask[b][positive] = 1
        found = encoded(xp, anchors[positive], objects[best[positive], 1:5], variances)
        offsets[b][positive] = found
    return offsets.reshape(batch, -1), mask.reshape(batch, -1), classes


_ANCHORS = values(
    [[[0.1, 0.1, 0.4, 0.5], [0, 0, 0.6, 0.6], [0.5, 0.5, 0.9, 0.9], [0.4, 0.6, 0.8, 0.9]]]
)
_LABELS = values(
    [
        [[1, 0.1, 0.2, 0.45, 0.5], [0, 0.5, 0.5, 0.8, 0.9], [-1, -1, -1, -1, -1]],
        [[-1, -1, -1, -1, -1]] * 3,
    ]
)

operator(
    _TARGET,
    aliases=("_npx_multibox_target",),
    inputs=("anchor", "label", "cls_pred"),
    params=(
        Param("overlap_threshold", "float", 0.5),
        Param("ignore_label", "float", -1.0),
        Param("negative_mining_ratio", "float", -1.0),
        Param("negative_mining_thresh", "float", 0.5),
        Param("minimum_negative_samples", "int", 0),
        _VARIANCES,
    ),
    n_outputs=3,
    output_names=("loc_target", "loc_mask", "cls_target"),
    infer=_target_infer,
    ref=_target_ref,
    samples=(
        sample(_ANCHORS, _LABELS, (2, 3, 4)),
        sample(
            _ANCHORS,
            _LABELS,
            (2, 3, 4),
            overlap_threshold=0.9,
            negative_mining_ratio=1.0,
            negative_mining_thresh=0.9,
        ),
    ),
    doc=(
        "Training targets of anchor boxes (1, N, 4) for objects label (B, M, 5: class, box; rows of"
        " -1 end the list): every object gets its best anchor, and anchors whose overlap with an"
        " object is above overlap_threshold follow. Gives the offsets and their mask (B, 4 N), and"
        " the classes (B, N): 0 for background, ignore_label where the anchor does not count. With"
        " negative_mining_ratio only that many background anchors for each matched one count: those"
        " with overlap below negative_mining_thresh to which cls_pred (B, classes, N) gives the"
        " least background. An image without objects is ignored as a whole. As in MXNet,"
        " minimum_negative_samples has no effect."
    ),
)


# ---- MultiBoxDetection ---------------------------------------------------------------------------

_DETECT = "_contrib_MultiBoxDetection"


def _detect_infer(ins, variances, **_):
    cls_prob, loc_pred, anchor = ins
    n = check_anchors(_DETECT, anchor)
    _four(_DETECT, variances)
    if len(cls_prob.shape) != 3 or cls_prob.shape[2] != n or cls_prob.shape[1] == 0:
        raise ShapeError(_DETECT, f"cls_prob must be (batch, classes, {n}), got {cls_prob.shape}")
    must_be(_DETECT, "loc_pred", loc_pred, (cls_prob.shape[0], 4 * n))
    dtype = float_dtype(_DETECT, ins, ("cls_prob", "loc_pred", "anchor"))
    return [Type((cls_prob.shape[0], n, 6), dtype)]


def _detected(xp, offsets, anchors, variances, clip):
    """Corner boxes (N, 4) from predicted offsets."""
    a = to_center(xp, anchors)
    scaled = offsets * xp.asarray(variances).astype(offsets.dtype)
    centre = scaled[:, :2] * a[:, 2:] + a[:, :2]
    boxes = to_corner(xp, xp.concatenate([centre, xp.exp(scaled[:, 2:]) * a[:, 2:]], axis=1))
    return xp.clip(boxes, 0, 1) if clip else boxes


def _detect_ref(
    xp,
    cls_prob,
    loc_pred,
    anchor,
    *,
    clip,
    threshold,
    background_id,
    nms_threshold,
    force_suppress,
    variances,
    nms_topk,
):
    batch, n_classes, n = cls_prob.shape
    out = xp.full((batch, n, 6), -1, cls_prob.dtype)
    for b in range(batch):
        if n_classes < 2:
            continue
        best = cls_prob[b, 1:].argmax(axis=0)
        score = cls_prob[b, 1:][best, xp.arange(n)]
        rows = xp.nonzero((score >= threshold) & (score > -1))[0]
        boxes = _detected(xp, loc_pred[b].reshape(n, 4), anchor[0], variances, clip)
        found = xp.concatenate([best[rows, None], score[rows, None], boxes[rows]], axis=1)
        if len(rows) and 0 < nms_threshold <= 1:
            kept = min(nms_topk, len(found)) if nms_topk > 0 else len(found)
            # what is beyond stays where it was, as in MXNet
            found[:kept] = found[descending(xp, found[:, 1])[:kept]]
            classes = None if force_suppress else found[:kept, 0]
            stay = suppress(xp, found[:kept, 2:], classes, nms_threshold, strict=False)
            found[:kept, 0] = xp.where(stay, found[:kept, 0], -1)
            found[kept:, 0] = -1
        out[b, : len(found)] = found
    return out


operator(
    _DETECT,
    aliases=("_npx_multibox_detection",),
    inputs=("cls_prob", "loc_pred", "anchor"),
    params=(
        Param("clip", "bool", True),
        Param("threshold", "float", 0.01),
        Param("background_id", "int", 0),
        Param("nms_threshold", "float", 0.5),
        Param("force_suppress", "bool", False),
        _VARIANCES,
        Param("nms_topk", "int", -1),
    ),
    infer=_detect_infer,
    ref=_detect_ref,
    samples=(
        sample(uniform((2, 3, 4), 0, 1), uniform((2, 16), -1, 1), _ANCHORS, threshold=0.3),
        sample(
            uniform((1, 3, 4), 0, 1),
            uniform((1, 16), -1, 1),
            _ANCHORS,
            force_suppress=True,
            nms_threshold=0.3,
            nms_topk=3,
            clip=False,
        ),
    ),
    doc=(
        "Detections (B, N, 6: class, score, x1, y1, x2, y2) from class probabilities cls_prob (B,"
        " classes, N), where class 0 is background and is not counted, and offsets loc_pred (B, 4"
        " N) from anchor boxes (1, N, 4). Anchors of which no class reaches threshold are dropped;"
        " the others come by falling score, with class -1 where a better box of the class overlaps"
        " them by nms_threshold or more, or beyond the nms_topk best. Rows without a detection"
        " are -1."
    ),
)
