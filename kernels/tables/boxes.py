"""Boxes: float32 on CPUs."""

from __future__ import annotations

from math import prod

import numpy as np

from ...engine import lib
from .. import cuda
from ..cpu.layout import cost
from ..native import Native
from ..ops.proposal import base_anchors
from ..record import FLOATS, NATIVE_FLOATS, Attrs, Operator, Types
from . import on_cpu, on_cuda

BLOCK = 1024  # nms.cu


def _float32(types):
    return all(t.dtype == "float32" for t in types)


@on_cpu("_contrib_box_iou")
def iou_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _float32(ins):
        return None
    n = [prod(t.shape[:-1]) for t in ins]
    fields = {"n_left": n[0], "n_right": n[1], "center": attrs["format"] == "center"}
    return Native("plk_box_iou_run", ("plk_box_iou", fields), cost(*outs, steps=3 * n[0] * n[1]))


def _sort_cost(rows, n):
    """Cost of sorting, and of comparing pairs when a tenth of the boxes is kept."""
    return rows * n * (50 + n / 20)


@on_cpu("_contrib_box_nms")
def nms_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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


@on_cpu("_contrib_bipartite_matching")
def matching_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    *lead, rows, columns = ins[0].shape
    fields = {
        "n_batch": prod(lead),
        "rows": rows,
        "columns": columns,
        "topk": attrs["topk"],
        "threshold": attrs["threshold"],
        "ascend": attrs["is_ascend"],
        "wide": ins[0].dtype == "float64",
    }
    if ins[0].dtype not in NATIVE_FLOATS:
        return None
    us = cost(*ins, *outs, steps=100 * prod(ins[0].shape))
    return Native("plk_matching_run", ("plk_matching", fields), us)


@on_cuda("_contrib_box_nms")
def nms_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    *batch, n, width = x.shape
    if x.dtype not in FLOATS or attrs["topk"] == 0 or prod(x.shape) >= 1 << 31:
        return None
    places = [attrs["coord_start"], attrs["score_index"], attrs["id_index"]]
    if not (0 <= places[0] <= width - 4 and 0 <= places[1] < width and places[2] < width):
        return None
    scratch = cuda.ScratchSpace()
    order, keep = (scratch.take_array("int32", *batch, n) for _ in range(2))
    flags = (attrs["in_format"] == "center", attrs["out_format"] == "center")
    numbers = (n, width, *places, attrs["topk"], *flags, attrs["force_suppress"])
    limits = (attrs["overlap_thresh"], attrs["valid_thresh"], attrs["background_id"])
    given = cuda.Struct(*map(cuda.Int32, numbers), *map(cuda.Float64, limits))
    grid = (prod(batch) if n else 0,)
    arguments = [given, cuda.Buffer(0), order, keep, cuda.Buffer(1), cuda.Buffer(2)]
    name, exact = f"suppress<{cuda.TYPES[x.dtype]}>", cuda.compile.EXACT
    step = cuda.Launch("nms.cu", name, grid, (BLOCK,), arguments, options=exact)
    return cuda.launches(step, scratch_bytes=scratch.nbytes)


@on_cpu("_box_nms_grad")
def nms_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, index = ins
    if dy.dtype != "float32" or index.dtype != "int32":
        return None
    fields = {
        "n_batch": prod(dy.shape[:-2]),
        "n_boxes": dy.shape[-2],
        "width": dy.shape[-1],
    }
    return Native("plk_box_nms_backward", ("plk_box_rows", fields), cost(dy, *outs))


@on_cpu("_contrib_MultiBoxTarget")
def target_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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


@on_cpu("_contrib_MultiBoxDetection")
def detection_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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


@on_cpu("_contrib_Proposal", "_contrib_MultiProposal")
def proposal_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
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
