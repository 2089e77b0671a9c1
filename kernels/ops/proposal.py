"""Region proposals of Faster R-CNN: Proposal and MultiProposal. Boxes are (x1, y1, x2, y2) in
pixels, both ends included.

Source: Ren et al. 2015, arXiv:1506.01497.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, sqrt
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Type, operator, sample, uniform, values
from ..shapes import float_dtype, must_be
from .boxes import descending, suppress
from .resize import images


def base_anchors(
    xp: Any, stride: int, scales: Sequence[float], ratios: Sequence[float], dtype: Any
) -> Array:
    """(ratios * scales, 4) around the first pixel, in whole pixels."""
    centre = 0.5 * (stride - 1)
    boxes = []
    for ratio in ratios:
        width = floor(sqrt(floor(stride * stride / ratio)) + 0.5)
        height = floor(width * ratio + 0.5)
        for scale in scales:
            dx, dy = 0.5 * (width * scale - 1), 0.5 * (height * scale - 1)
            boxes.append((centre - dx, centre - dy, centre + dx, centre + dy))
    return xp.asarray(boxes).astype(dtype)


def _check(op, ins, scales, ratios, rpn_post_nms_top_n, feature_stride, output_score, single):
    cls_prob, bbox_pred, im_info = ins
    n, channels, h, w = images(op, "cls_prob", cls_prob)
    anchors = len(scales) * len(ratios)
    if not anchors or min(ratios) <= 0 or feature_stride < 1 or rpn_post_nms_top_n < 1:
        raise OperatorError(
            op,
            "scales, positive ratios, feature_stride and rpn_post_nms_top_n must be given, got"
            f" {scales}, {ratios}, {feature_stride}, {rpn_post_nms_top_n}",
        )
    if channels != 2 * anchors or 0 in (h, w):
        raise ShapeError(
            op,
            f"cls_prob must be (N, 2 scales ratios = {2 * anchors}, H, W) and not empty, got"
            f" {cls_prob.shape}",
        )
    if single and n != 1:
        raise ShapeError(
            op, f"cls_prob must hold one image, got {cls_prob.shape}", fix="use MultiProposal"
        )
    must_be(op, "bbox_pred", bbox_pred, (n, 4 * anchors, h, w))
    must_be(op, "im_info", im_info, (n, 3))
    dtype = float_dtype(op, ins, ("cls_prob", "bbox_pred", "im_info"))
    rows = n * rpn_post_nms_top_n
    return [Type((rows, 5), dtype), Type((rows, 1), dtype)]


def _moved(xp, anchors, deltas, iou_loss, width, height):
    """Anchors (n, 4) moved by predictions (n, 4), within the image."""
    if iou_loss:
        boxes = anchors + deltas
    else:
        size = anchors[:, 2:] - anchors[:, :2] + 1
        centre = anchors[:, :2] + 0.5 * (size - 1) + deltas[:, :2] * size
        half = 0.5 * (xp.exp(deltas[:, 2:]) * size - 1)
        boxes = xp.concatenate([centre - half, centre + half], axis=1)
    limits = xp.stack([width - 1, height - 1] * 2)
    return xp.maximum(xp.minimum(boxes, limits), 0)


def _image_proposals(xp, scores, deltas, info, anchors, attrs):
    """(boxes, scores) of one image, the best first, at most rpn_post_nms_top_n."""
    n_anchors, h, w = scores.shape
    stride = attrs["feature_stride"]
    height, width, scale = info
    shift_y, shift_x = xp.arange(h)[:, None] * stride, xp.arange(w) * stride
    shifts = xp.stack(
        [xp.broadcast_to(a, (h, w)) for a in (shift_x, shift_y, shift_x, shift_y)], axis=-1
    ).astype(anchors.dtype)
    base = (shifts[:, :, None] + anchors).reshape(-1, 4)
    offsets = xp.moveaxis(deltas.reshape(n_anchors, 4, h, w), (2, 3), (0, 1)).reshape(-1, 4)
    boxes = _moved(xp, base, offsets, attrs["iou_loss"], width, height)
    rows, columns = xp.broadcast_arrays(xp.arange(h)[:, None], xp.arange(w))
    beyond = (rows >= xp.trunc(height / stride)) | (columns >= xp.trunc(width / stride))
    score = xp.moveaxis(scores, 0, -1).copy()
    score[beyond] = -1
    score = score.reshape(-1)
    least = attrs["rpn_min_size"] * scale
    small = ((boxes[:, 2:] - boxes[:, :2] + 1) < least).any(axis=1)
    grow = xp.asarray([-0.5, -0.5, 0.5, 0.5]).astype(boxes.dtype) * least
    boxes = xp.where(small[:, None], boxes + grow, boxes)
    score = xp.where(small, -1, score)
    total = len(score)
    before = attrs["rpn_pre_nms_top_n"]
    before = min(before, total) if before > 0 else total
    order = descending(xp, score)[:before]
    boxes, score = boxes[order], score[order]
    keep = xp.nonzero(suppress(xp, boxes, None, attrs["threshold"], extra=1))[0]
    keep = keep[: min(attrs["rpn_post_nms_top_n"], before)]
    return boxes[keep], score[keep]


def _proposals(xp, cls_prob, bbox_pred, im_info, **attrs):
    n, post = cls_prob.shape[0], attrs["rpn_post_nms_top_n"]
    anchors = base_anchors(
        xp, attrs["feature_stride"], attrs["scales"], attrs["ratios"], cls_prob.dtype
    )
    out = xp.zeros((n, post, 5), cls_prob.dtype)
    score = xp.zeros((n, post, 1), cls_prob.dtype)
    for b in range(n):
        foreground = cls_prob[b, len(anchors) :]
        boxes, scores = _image_proposals(xp, foreground, bbox_pred[b], im_info[b], anchors, attrs)
        repeated = xp.arange(post) % len(boxes)  # too few are repeated
        out[b, :, 0], out[b, :, 1:], score[b, :, 0] = b, boxes[repeated], scores[repeated]
    return out.reshape(-1, 5), score.reshape(-1, 1)


_PARAMS = (
    Param("rpn_pre_nms_top_n", "int", 6000),
    Param("rpn_post_nms_top_n", "int", 300),
    Param("threshold", "float", 0.7),
    Param("rpn_min_size", "int", 16),
    Param("scales", "floats", (4.0, 8.0, 16.0, 32.0)),
    Param("ratios", "floats", (0.5, 1.0, 2.0)),
    Param("feature_stride", "int", 16),
    Param("output_score", "bool", False),
    Param("iou_loss", "bool", False),
)


def _record(name, single, doc, batch):
    keep = ("scales", "ratios", "rpn_post_nms_top_n", "feature_stride", "output_score")
    small = {"scales": (1.0, 2.0), "ratios": (0.5, 1.0), "feature_stride": 8}

    def sample_of(**more):
        return sample(
            uniform((batch, 8, 3, 4), 0, 1),
            uniform((batch, 16, 3, 4), -0.3, 0.3),
            values([[24, 30, 1.0], [20, 32, 1.5]][:batch]),
            **small,
            **more,
        )

    operator(
        name,
        inputs=("cls_prob", "bbox_pred", "im_info"),
        params=_PARAMS,
        n_outputs=2,
        n_visible=lambda output_score, **_: 2 if output_score else 1,
        output_names=("output", "score"),
        infer=lambda ins, **attrs: _check(name, ins, single=single, **{k: attrs[k] for k in keep}),
        ref=_proposals,
        samples=(
            sample_of(rpn_post_nms_top_n=6, rpn_min_size=4),
            sample_of(rpn_post_nms_top_n=60, threshold=0.4, iou_loss=True, output_score=True),
        ),
        doc=doc,
    )


_DOC = (
    "Proposals from cls_prob (N, 2 A, H, W), the probabilities of background and object for A ="
    " scales x ratios anchors at every pixel, and bbox_pred (N, 4 A, H, W); im_info (N, 3) holds"
    " height, width and scale of the images. The rpn_pre_nms_top_n best boxes within the image and"
    " of at least rpn_min_size go through non-maximum suppression at `threshold`;"
    " rpn_post_nms_top_n rows of (image, x1, y1, x2, y2) come out for each image, repeated where"
    " there are fewer. output_score adds their scores. "
)
_record("_contrib_Proposal", True, _DOC + "Takes one image.", 1)
_record("_contrib_MultiProposal", False, _DOC + "Takes several images.", 2)
