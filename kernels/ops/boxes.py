"""Boxes: overlap, non-maximum suppression, coding against anchors, bipartite matching.

A corner box is (x1, y1, x2, y2), a centre box (x, y, width, height).
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import Array, Param, Type, operator, sample, uniform, values
from ..shapes import float_dtype, must_be
from ..traits import Decomposition
from .sampling import first_order

FORMATS = ("center", "corner")


def check_boxes(op: str, name: str, t: Type, low: int = 2) -> None:
    if len(t.shape) < low or t.shape[-1] != 4:
        raise ShapeError(
            op, f"{name} must be ({'..., ' * (low > 1)}number of boxes, 4), got {t.shape}"
        )


def to_corner(xp: Any, boxes: Array) -> Array:
    """Centre boxes (..., 4) as corner boxes."""
    half = boxes[..., 2:] / 2
    return xp.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def to_center(xp: Any, boxes: Array) -> Array:
    """Corner boxes (..., 4) as centre boxes."""
    size = boxes[..., 2:] - boxes[..., :2]
    return xp.concatenate([boxes[..., :2] + size / 2, size], axis=-1)


def areas(xp: Any, corners: Array, extra: int = 0) -> Array:
    """Areas of corner boxes (..., 4); 0 where a side is negative."""
    size = corners[..., 2:] - corners[..., :2] + extra
    return xp.where((size < 0).any(axis=-1), 0, size[..., 0] * size[..., 1])


def overlaps(xp: Any, a: Array, b: Array, extra: int = 0) -> Array:
    """Intersection areas of corner boxes that broadcast against each other. extra: 1 where sides
    count pixels."""
    low, high = xp.maximum(a[..., :2], b[..., :2]), xp.minimum(a[..., 2:], b[..., 2:])
    size = xp.maximum(high - low + extra, 0)
    return size[..., 0] * size[..., 1]


def iou(xp: Any, a: Array, b: Array) -> Array:
    """Intersection over union of corner boxes that broadcast; 0 where they do not meet."""
    intersection = overlaps(xp, a, b)
    union = areas(xp, a) + areas(xp, b) - intersection
    share = intersection / xp.where(union > 0, union, 1)
    return xp.where((intersection > 0) & (union > 0), share, 0)


# ---- box_iou -------------------------------------------------------------------------------------

_IOU = "_contrib_box_iou"


def _iou_infer(ins, format):
    check_boxes(_IOU, "lhs", ins[0])
    check_boxes(_IOU, "rhs", ins[1])
    shape = (*ins[0].shape[:-1], *ins[1].shape[:-1])
    return [Type(shape, float_dtype(_IOU, ins, ("lhs", "rhs")))]


def _iou_ref(xp, lhs, rhs, *, format):
    shape = (*lhs.shape[:-1], *rhs.shape[:-1])
    a, b = lhs.reshape(-1, 1, 4), rhs.reshape(1, -1, 4)
    if format == "center":
        a, b = to_corner(xp, a), to_corner(xp, b)
    return iou(xp, a, b).reshape(shape)


operator(
    _IOU,
    inputs=("lhs", "rhs"),
    params=(Param("format", FORMATS, "corner"),),
    infer=_iou_infer,
    ref=_iou_ref,
    samples=(
        sample(uniform((3, 4), 0, 1), values([[0, 0, 1, 1], [0.4, 0.2, 0.3, 0.1]])),
        sample(uniform((2, 3, 4), 0, 1), uniform((5, 4), 0, 1), format="center"),
    ),
    doc=(
        "Intersection over union of every box of lhs (..., 4) with every box of rhs (..., 4): shape"
        " lhs.shape[:-1] + rhs.shape[:-1]."
    ),
)


# ---- box_nms -------------------------------------------------------------------------------------

_NMS = "_contrib_box_nms"


def descending(xp: Any, scores: Array) -> Array:
    """Indices that sort scores from high to low; equal ones keep their order, NaN come last."""
    return xp.argsort(xp.where(xp.isnan(scores), xp.inf, -scores), kind="stable")


def suppress(
    xp: Any,
    corners: Array,
    classes: Array | None,
    threshold: float,
    extra: int = 0,
    strict: bool = True,
    order_area: Array | None = None,
) -> Array:
    """Which of boxes in falling order of score stay: bool (n,). A box goes when its overlap with a
    better one of its class is above the threshold (or, not strict, reaches it).

    classes: (n,), or None where all boxes compete.
    """
    n = len(corners)
    keep = xp.ones(n, bool)
    area = areas(xp, corners, extra) if order_area is None else order_area
    for i in range(n - 1):
        if not keep[i]:
            continue
        intersection = overlaps(xp, corners[i], corners[i + 1 :], extra)
        share = intersection / (area[i] + area[i + 1 :] - intersection)
        loses = share > threshold if strict else share >= threshold
        if classes is not None:
            loses &= classes[i + 1 :] == classes[i]
        keep[i + 1 :] &= ~loses
    return keep


def _nms_infer(ins, coord_start, score_index, id_index, **_):
    x = ins[0]
    float_dtype(_NMS, ins, ("data",))
    if len(x.shape) < 2:
        raise ShapeError(_NMS, f"data must be (..., number of boxes, width), got {x.shape}")
    width = x.shape[-1]
    for name, index, low, size in (
        ("coord_start", coord_start, 0, 4),
        ("score_index", score_index, 0, 1),
        ("id_index", id_index, -1, 1),
    ):
        if not low <= index <= width - size:
            raise OperatorError(
                _NMS, f"{name} must be from {low} to {width - size} for data {x.shape}, got {index}"
            )
    return [x, Type(x.shape[:-1], "int32")]


def _nms_one(xp, boxes, attrs):
    """Rows of `boxes` (n, width) that stay, best first."""
    at, n = attrs["coord_start"], len(boxes)
    scores = boxes[:, attrs["score_index"]]
    valid = scores > attrs["valid_thresh"]
    classes = boxes[:, attrs["id_index"]] if attrs["id_index"] >= 0 else None
    if classes is not None:
        valid &= classes != attrs["background_id"]
    rows = xp.arange(n)[valid]
    rows = rows[descending(xp, scores[rows])]
    rows = rows[: attrs["topk"]] if attrs["topk"] > 0 else rows
    corners = boxes[rows, at : at + 4]
    area = None
    if attrs["in_format"] == "center":
        area = xp.where((corners[:, 2:] < 0).any(axis=1), 0, corners[:, 2] * corners[:, 3])
        corners = to_corner(xp, corners)
    if attrs["force_suppress"] or classes is None:
        classes = None
    else:
        classes = classes[rows]
    return rows[suppress(xp, corners, classes, attrs["overlap_thresh"], order_area=area)]


def _nms_ref(xp, data, **attrs):
    if attrs["topk"] == 0:  # nothing is done, as in MXNet
        index = xp.arange(data.shape[-2]).astype("int32")
        return data, xp.broadcast_to(index, data.shape[:-1])
    flat = data.reshape(prod(data.shape[:-2]), *data.shape[-2:])
    out = xp.full(flat.shape, -1, data.dtype)
    index = xp.full(flat.shape[:2], -1, "int32")
    for b, boxes in enumerate(flat):
        rows = _nms_one(xp, boxes, attrs)
        out[b, : len(rows)], index[b, : len(rows)] = boxes[rows], rows
        if attrs["in_format"] != attrs["out_format"]:
            at = slice(attrs["coord_start"], attrs["coord_start"] + 4)
            change = to_center if attrs["out_format"] == "center" else to_corner
            out[b, : len(rows), at] = change(xp, boxes[rows, at])
    return out.reshape(data.shape), index.reshape(data.shape[:-1])


operator(
    _NMS,
    aliases=("_contrib_box_non_maximum_suppression",),
    params=(
        Param("overlap_thresh", "float", 0.5),
        Param("valid_thresh", "float", 0.0),
        Param("topk", "int", -1),
        Param("coord_start", "int", 2),
        Param("score_index", "int", 1),
        Param("id_index", "int", -1),
        Param("background_id", "int", -1),
        Param("force_suppress", "bool", False),
        Param("in_format", FORMATS, "corner"),
        Param("out_format", FORMATS, "corner"),
    ),
    n_outputs=2,
    n_visible=1,
    output_names=("output0", "output1"),
    infer=_nms_infer,
    ref=_nms_ref,
    grad=lambda F, dys, xs, ys, **_: [F._box_nms_grad(dys[0], ys[1])],
    samples=(
        sample(uniform((2, 6, 6), 0, 1), overlap_thresh=0.2),
        sample(uniform((5, 7), -1, 1), id_index=0, topk=3, overlap_thresh=0.1, coord_start=3),
        sample(
            values(
                [
                    [0, 0.5, 0.1, 0.1, 0.2, 0.2],
                    [1, 0.5, 0.1, 0.1, 0.2, 0.2],
                    [0, 0.5, 0.1, 0.1, 0.14, 0.14],
                    [2, 0.6, 0.5, 0.5, 0.7, 0.8],
                    [1, 0.4, 0.1, 0.1, 0.2, 0.2],
                ]
            ),
            id_index=0,
            background_id=2,
            in_format="center",
            valid_thresh=0.2,
        ),
        sample(uniform((4, 6), 0, 1), force_suppress=True, id_index=0, valid_thresh=0.3),
    ),
    doc=(
        "Non-maximum suppression of data (..., boxes, width): each row has a score at score_index,"
        " a box from coord_start on and, unless id_index is -1, a class. Rows with scores above"
        " valid_thresh and of other classes than background_id are taken by falling score, the"
        " topk best of them; a row goes when its overlap with a better one of its class (of any"
        " class: force_suppress) is above overlap_thresh. What stays comes first, other rows are"
        " -1; equal scores keep their order. topk=0 gives data as it is."
    ),
)


def _nms_back_infer(ins):
    dy, index = ins
    must_be("_box_nms_grad", "index", index, dy.shape[:-1])
    return [dy]


def _nms_back_ref(xp, dy, index):
    n, width = dy.shape[-2:]
    batch = prod(dy.shape[:-2])
    flat, rows = dy.reshape(batch, n, width), index.reshape(batch, n).astype("int64")
    dx = xp.zeros((batch, n + 1, width), dy.dtype)  # the last row: of what came from nowhere
    at = xp.where((rows >= 0) & (rows < n), rows, n)
    dx[xp.arange(batch)[:, None], at] = flat
    dx = dx[:, :-1]
    return dx.reshape(dy.shape)


operator(
    "_box_nms_grad",
    inputs=("dy", "index"),
    infer=_nms_back_infer,
    ref=_nms_back_ref,
    grad=first_order(_NMS),
    samples=(sample((2, 3, 5), values([[2, 0, -1], [1, -1, -1]], "int32")),),
    doc="Gradient of box_nms: rows go back to where they came from.",
)


# ---- box_encode, box_decode ----------------------------------------------------------------------

_ENCODE = "_contrib_box_encode"


def _encode_infer(ins):
    names = ("samples", "matches", "anchors", "refs", "means", "stds")
    samples, matches, anchors, refs, means, stds = ins
    if len(anchors.shape) != 3 or len(refs.shape) != 3 or refs.shape[0] != anchors.shape[0]:
        raise ShapeError(
            _ENCODE,
            f"anchors must be (B, N, 4) and refs (B, M, 4), got {anchors.shape} and {refs.shape}",
        )
    check_boxes(_ENCODE, "anchors", anchors)
    check_boxes(_ENCODE, "refs", refs)
    for name, t in zip(names, (samples, matches)):
        must_be(_ENCODE, name, t, anchors.shape[:2])
    must_be(_ENCODE, "means", means, (4,))
    must_be(_ENCODE, "stds", stds, (4,))
    if refs.shape[1] == 0 and anchors.shape[1]:
        raise ShapeError(_ENCODE, f"refs must hold at least one box, got {refs.shape}")
    return [Type(anchors.shape, float_dtype(_ENCODE, ins, names))] * 2


def _encode_ref(xp, samples, matches, anchors, refs, means, stds):
    mask = (samples > 0.5)[..., None]
    at = xp.clip(xp.nan_to_num(matches), 0, max(refs.shape[1] - 1, 0)).astype("int64")
    matched = xp.take_along_axis(refs, at[..., None], axis=1)
    ref, anchor = to_center(xp, matched), to_center(xp, anchors)
    moved = (ref[..., :2] - anchor[..., :2]) / anchor[..., 2:]
    grown = xp.log(ref[..., 2:] / anchor[..., 2:])
    targets = (xp.concatenate([moved, grown], axis=-1) - means) / stds
    mask = xp.broadcast_to(mask, anchors.shape)
    return xp.where(mask, targets, 0), mask.astype(anchors.dtype)


_BOXES = values([[[0, 0, 1, 1], [0, 0.2, 0.5, 1], [0.1, 0.1, 0.5, 0.6]]])

operator(
    _ENCODE,
    inputs=("samples", "matches", "anchors", "refs", "means", "stds"),
    n_outputs=2,
    output_names=("output0", "output1"),
    infer=_encode_infer,
    ref=_encode_ref,
    samples=(
        sample(
            values([[1, -1, 1]]),
            values([[0, 1, 1]]),
            _BOXES,
            values([[[0.1, 0.1, 0.8, 0.9], [0.5, 0.2, 0.8, 0.3]]]),
            values([0, 0, 0.1, 0]),
            values([0.1, 0.1, 0.2, 0.2]),
        ),
    ),
    doc=(
        "Training targets of boxes: for anchors (B, N, 4) matched with refs (B, M, 4) by matches"
        " (B, N), both corner boxes, the offsets of the centres in anchor sizes and the logarithms"
        " of the sizes' ratios, less means (4,) and over stds (4,); and a mask, 1 where samples (B,"
        " N) is 1. Both are (B, N, 4) and 0 elsewhere."
    ),
)

_DECODE = "_contrib_box_decode"


def _decode_infer(ins, **_):
    data, anchors = ins
    check_boxes(_DECODE, "data", data)
    if len(data.shape) != 3:
        raise ShapeError(_DECODE, f"data must be (B, N, 4), got {data.shape}")
    must_be(_DECODE, "anchors", anchors, (1, *data.shape[1:]))
    return [Type(data.shape, float_dtype(_DECODE, ins, ("data", "anchors")))]


def _decode_ref(xp, data, anchors, *, std0, std1, std2, std3, clip, format):
    anchor = to_center(xp, anchors) if format == "corner" else anchors
    scaled = data * xp.asarray([std0, std1, std2, std3]).astype(data.dtype)
    centre = scaled[..., :2] * anchor[..., 2:] + anchor[..., :2]
    grown = xp.minimum(scaled[..., 2:], clip) if clip > 0 else scaled[..., 2:]
    return to_corner(xp, xp.concatenate([centre, xp.exp(grown) * anchor[..., 2:]], axis=-1))


def _decode_body(F, data, anchors, *, std0, std1, std2, std3, clip, format):
    if 0 in data.shape or data.dtype != anchors.dtype:
        return None

    def half(boxes, i):
        return F.slice_axis(boxes, axis=-1, begin=2 * i, end=2 * i + 2)

    stds = [F._full(shape=(1, 1, 1), value=s, dtype=data.dtype) for s in (std0, std1, std2, std3)]
    scaled = F.broadcast_mul(data, F.Concat(*stds, dim=2))
    centre, size = half(anchors, 0), half(anchors, 1)
    if format == "corner":
        size = F.elemwise_sub(size, centre)
        centre = F.elemwise_add(centre, F._mul_scalar(size, scalar=0.5))
    centre = F.broadcast_add(F.broadcast_mul(half(scaled, 0), size), centre)
    grown = half(scaled, 1)
    grown = F._minimum_scalar(grown, scalar=clip) if clip > 0 else grown
    reach = F._mul_scalar(F.broadcast_mul(F.exp(grown), size), scalar=0.5)
    return [F.Concat(F.elemwise_sub(centre, reach), F.elemwise_add(centre, reach), dim=2)]


operator(
    _DECODE,
    inputs=("data", "anchors"),
    params=(
        *(Param(f"std{i}", "float", 1.0) for i in range(4)),
        Param("clip", "float", -1.0),
        Param("format", FORMATS, "center"),
    ),
    infer=_decode_infer,
    ref=_decode_ref,
    traits=(Decomposition(_decode_body),),
    samples=(
        sample((2, 3, 4), _BOXES, std0=0.1, std1=0.1, std2=0.2, std3=0.2),
        sample((1, 3, 4), _BOXES, clip=0.3, format="corner"),
    ),
    doc=(
        "The inverse of box_encode: predictions (B, N, 4), times std0 to std3, around anchors (1,"
        " N, 4) in `format`, as corner boxes. clip, where positive, bounds the logarithm of"
        " the sizes."
    ),
)


# ---- bipartite_matching --------------------------------------------------------------------------

_MATCH = "_contrib_bipartite_matching"


def _match_infer(ins, **_):
    x = ins[0]
    if len(x.shape) < 2:
        raise ShapeError(_MATCH, f"data must be (..., rows, columns), got {x.shape}")
    dtype = float_dtype(_MATCH, ins, ("data",))
    return [Type(x.shape[:-1], dtype), Type((*x.shape[:-2], x.shape[-1]), dtype)]


def _match_one(xp, scores, rows, columns, is_ascend, threshold, topk):
    flat = scores.reshape(-1)
    count = 0
    for k in descending(xp, -flat if is_ascend else flat).tolist():
        r, c = divmod(k, scores.shape[1])
        if rows[r] != -1 or columns[c] != -1:
            continue
        if not (flat[k] < threshold if is_ascend else flat[k] > threshold):
            return
        rows[r], columns[c] = c, r
        count += 1
        if count > topk > 0:  # one more than topk, as MXNet
            return


def _match_ref(xp, data, **attrs):
    flat = data.reshape(prod(data.shape[:-2]), *data.shape[-2:])
    rows = xp.full((flat.shape[0], data.shape[-2]), -1, data.dtype)
    columns = xp.full((flat.shape[0], data.shape[-1]), -1, data.dtype)
    for b, scores in enumerate(flat):
        _match_one(xp, scores, rows[b], columns[b], **attrs)
    return rows.reshape(data.shape[:-1]), columns.reshape(*data.shape[:-2], data.shape[-1])


operator(
    _MATCH,
    params=(
        Param("is_ascend", "bool", False),
        Param("threshold", "float"),
        Param("topk", "int", -1),
    ),
    n_outputs=2,
    output_names=("output0", "output1"),
    infer=_match_infer,
    ref=_match_ref,
    samples=(
        sample(uniform((4, 3), 0, 1), threshold=0.2),
        sample(uniform((2, 3, 4), 0, 1), threshold=0.8, is_ascend=True, topk=1),
    ),
    doc=(
        "Pairs rows and columns of data (..., rows, columns), the best score first, while scores"
        " are above (is_ascend: below) threshold: the column of each row and the row of each"
        " column, -1 for none. topk: at most topk + 1 pairs, as in MXNet."
    ),
)
