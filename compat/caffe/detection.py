"""The layers of Caffe's SSD branch: prior boxes, which depend on shapes alone, and detections."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import symbol
from ...symbol import Symbol
from .layers import refuse
from .network import Entry, Network, layer

F: Any = symbol  # its functions take inputs in sequences, too


@layer("PriorBox")
def _prior_box(net: Network, e: Entry, ins: list[Symbol]) -> None:
    """(1, 2, 4 n): corners, then variances."""
    p = e.proto.prior_box_param
    rows, columns = net.shape(e, ins[0])[2:]
    if p.HasField("img_size"):
        height = width = p.img_size
    elif p.HasField("img_h"):
        height, width = p.img_h, p.img_w
    else:
        height, width = net.shape(e, ins[1])[2:]
    step_y = p.step or p.step_h or height / rows
    step_x = p.step or p.step_w or width / columns
    ratios: list[float] = []
    for ratio in p.aspect_ratio:
        if all(abs(ratio - r) > 1e-6 for r in (1, *ratios)):
            ratios += [ratio, 1 / ratio] if p.flip else [ratio]
    if p.max_size and len(p.max_size) != len(p.min_size):
        raise refuse(e, f"max_size must have {len(p.min_size)} numbers, got {list(p.max_size)}")
    boxes = []  # (width, height)
    for i, least in enumerate(p.min_size):
        boxes.append((least, least))
        if p.max_size:
            boxes.append(((least * p.max_size[i]) ** 0.5,) * 2)
        boxes += [(least * r**0.5, least / r**0.5) for r in ratios]
    half = np.array(boxes) / 2
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    centers = np.stack([(x + p.offset) * step_x, (y + p.offset) * step_y], -1)[:, :, None]
    corners = np.concatenate([centers - half, centers + half], -1) / (width, height, width, height)
    if p.clip:
        corners = corners.clip(0, 1)
    variance = list(p.variance) or [0.1]
    if len(variance) not in (1, 4):
        raise refuse(e, f"variance must have 1 or 4 numbers, got {variance}")
    variances = np.resize(variance, corners.shape)
    found = np.stack([corners.reshape(-1), variances.reshape(-1)])
    net.constants[e.tops[0]] = found[None].astype(np.float32)


@layer("DetectionOutput")
def _detection_output(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    """(batch, boxes, 6): class without background, score, corners; the best first, then rows of -1.

    top_k, a limit for each class before suppression, is not applied: it changes results only where
    more boxes than that overlap a worse one.
    """
    p = e.proto.detection_output_param
    priors = net.constants.get(e.bottoms[2])
    if priors is None or not p.share_location or p.code_type != 2:
        raise refuse(e, "needs prior boxes, share_location: true and code_type: CENTER_SIZE")
    if p.background_label_id not in (0, -1):
        raise refuse(e, f"background_label_id must be 0 or -1, got {p.background_label_id}")
    n, classes = priors.shape[2] // 4, p.num_classes
    corners = net.variable(e, "anchor", priors[:, 0].reshape(1, n, 4), shape=(1, n, 4))
    offsets = F.reshape(ins[0], shape=(0, -1, 4))
    if not p.variance_encoded_in_target:
        scale = net.variable(e, "variance", priors[:, 1].reshape(1, n, 4), shape=(1, n, 4))
        offsets = F.broadcast_mul(offsets, scale)
    boxes = F.contrib.box_decode(offsets, corners, format="corner")
    scores = F.reshape(ins[1], shape=(0, -1, classes))
    if p.background_label_id == 0:
        scores, classes = F.slice_axis(scores, axis=2, begin=1, end=None), classes - 1
    # each class is suppressed alone, so a box may be of several: a row for each pair
    rows = F.transpose(scores, axes=(0, 2, 1))
    labels = F.broadcast_like(F.reshape(F.arange(0, classes), shape=(1, -1, 1)), rows)
    rows = F.stack(labels, rows, axis=3)
    boxes = F.repeat(F.expand_dims(boxes, axis=1), repeats=classes, axis=1)
    rows = F.reshape(F.concat(rows, boxes, dim=3), shape=(0, -1, 6))
    kept = F.contrib.box_nms(
        rows, overlap_thresh=p.nms_param.nms_threshold, valid_thresh=p.confidence_threshold,
        id_index=0, score_index=1, coord_start=2, background_id=-1,
    )  # fmt: skip
    limit = None if p.keep_top_k < 0 else min(p.keep_top_k, n * classes)
    return F.slice_axis(kept, axis=1, begin=0, end=limit, name=net.name(e))
