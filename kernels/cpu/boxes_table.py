"""Entries of box operators, float32."""

from __future__ import annotations

from math import prod

import numpy as np

from ...engine import lib
from ..native import Native
from ..ops.proposal import base_anchors
from .layout import cost
from .table import native


def _float32(types):
    return all(t.dtype == "float32" for t in types)


@native("_contrib_box_iou")
def iou_entry(op, ins, outs, attrs):
    if not _float32(ins):
        return None
    n = [prod(t.shape[:-1]) for t in ins]
    fields = {"n_left": n[0], "n_right": n[1], "center": attrs["format"] == "center"}
    return Native("plk_box_iou_run", ("plk_box_iou", fields), cost(*outs, steps=3 * n[0] * n[1]))


def _sort_cost(rows, n):
    """Sorting, and the pairs that suppression looks at when a tenth of the boxes stays."""
    return rows * n * (50 + n / 20)


@native("_contrib_box_nms")
def nms_entry(op, ins, outs, attrs):
    x = ins[0]
    if not _float32(ins) or attrs["topk"] == 0 or x.shape[-2] > 1 << 30:
        return None
    n_batch, n = prod(x.shape[:-2]), x.shape[-2]
    fields = {
        "n_batch": n_batch,
        "n_boxes": n,
        "width": x.shape[-1],
        "topk": attrs["topk"],
        "coord": attrs["coord_start"],
        "score": attrs["score_index"],
        "id": max(attrs["id_index"], -1),
        "force": attrs["force_suppress"],
        "in_center": attrs["in_format"] == "center",
        "out_center": attrs["out_format"] == "center",
        "overlap": attrs["overlap_thresh"],
        "valid": attrs["valid_thresh"],
        "background": attrs["background_id"],
    }
    return Native(
        "plk_box_nms_run",
        ("plk_box_nms", fields),
        cost(x, *outs, steps=_sort_cost(n_batch, n)),
    )


@native("_box_nms_grad")
def nms_grad_entry(op, ins, outs, attrs):
    dy, index = ins
    if dy.dtype != "float32" or index.dtype != "int32":
        return None
    fields = {
        "n_batch": prod(dy.shape[:-2]),
        "n_boxes": dy.shape[-2],
        "width": dy.shape[-1],
    }
    return Native("plk_box_nms_backward", ("plk_box_rows", fields), cost(dy, *outs))


@native("_contrib_MultiBoxTarget")
def target_entry(op, ins, outs, attrs):
    anchor, label, cls_pred = ins
    if not _float32(ins) or anchor.shape[1] > 1 << 30:
        return None
    n, (batch, n_objects, width) = anchor.shape[1], label.shape
    fields = {
        "n_batch": batch,
        "n_anchors": n,
        "n_objects": n_objects,
        "label_width": width,
        "n_classes": cls_pred.shape[1],
        "overlap": attrs["overlap_threshold"],
        "ignore": attrs["ignore_label"],
        "mining_ratio": attrs["negative_mining_ratio"],
        "mining_below": attrs["negative_mining_thresh"],
        "variances": list(attrs["variances"]),
    }
    steps = batch * n * (8 * n_objects + 10 * cls_pred.shape[1])
    return Native(
        "plk_multibox_target_run", ("plk_multibox_target", fields), cost(*ins, *outs, steps=steps)
    )


@native("_contrib_MultiBoxDetection")
def detection_entry(op, ins, outs, attrs):
    cls_prob = ins[0]
    batch, n_classes, n = cls_prob.shape
    if not _float32(ins) or n > 1 << 30:
        return None
    fields = {
        "n_batch": batch,
        "n_anchors": n,
        "n_classes": n_classes,
        "topk": attrs["nms_topk"],
        "clip": attrs["clip"],
        "force": attrs["force_suppress"],
        "threshold": attrs["threshold"],
        "nms": attrs["nms_threshold"],
        "variances": list(attrs["variances"]),
    }
    return Native(
        "plk_multibox_detection_run",
        ("plk_multibox_detection", fields),
        cost(*ins, *outs, steps=_sort_cost(batch, n)),
    )


@native("_contrib_Proposal", "_contrib_MultiProposal")
def proposal_entry(op, ins, outs, attrs):
    n, channels, h, w = ins[0].shape
    n_anchors = channels // 2
    total = n_anchors * h * w
    if not _float32(ins) or n_anchors > lib.PLK_MAX_ANCHORS or total > 1 << 30:
        return None
    anchors = base_anchors(
        np, attrs["feature_stride"], attrs["scales"], attrs["ratios"], np.float32
    )
    fields = {
        "n_images": n,
        "n_anchors": n_anchors,
        "height": h,
        "width": w,
        "stride": attrs["feature_stride"],
        "pre": attrs["rpn_pre_nms_top_n"],
        "post": attrs["rpn_post_nms_top_n"],
        "iou_loss": attrs["iou_loss"],
        "threshold": attrs["threshold"],
        "min_size": attrs["rpn_min_size"],
        "anchors": anchors.reshape(-1).tolist(),
    }
    return Native(
        "plk_proposal_run", ("plk_proposal", fields), cost(*ins, *outs, steps=_sort_cost(n, total))
    )
