"""Changes of an image's size: UpSampling, BilinearResize2D, Crop; data is (N, C, H, W)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...engine.error import OperatorError, ShapeError
from ..record import Param, Type, operator, sample
from ..shapes import float_dtype, must_be, same_dtype
from ..traits import Decomposition


def images(op: str, name: str, t: Type) -> tuple[int, ...]:
    """The shape (N, C, H, W) of an input. Raises ShapeError."""
    if len(t.shape) != 4:
        raise ShapeError(op, f"{name} must be (N, C, H, W), got {t.shape}")
    return t.shape


# ---- UpSampling ----------------------------------------------------------------------------------

_UP = "UpSampling"


def _up_inputs(sample_type, num_args, **_):
    if sample_type == "bilinear":
        return ("data", "weight")
    return ("data",) if num_args == 1 else tuple(f"arg{i}" for i in range(num_args))


def _up_filter(scale: int) -> dict:
    """The transposed convolution that is bilinear upsampling, once its weight is set so."""
    kernel = 2 * scale - scale % 2
    return {"kernel": (kernel,) * 2, "stride": (scale,) * 2, "pad": (scale // 2,) * 2}


def _up_infer(ins, scale, num_filter, sample_type, multi_input_mode, num_args, **_):
    n, c, h, w = images(_UP, "data", ins[0])
    if not 1 <= scale <= 1000:
        raise OperatorError(_UP, f"scale must be from 1 to 1000, got {scale}")
    dtype = same_dtype(_UP, ins, [f"input {i}" for i in range(len(ins))])
    size = h * scale, w * scale
    if sample_type == "bilinear":
        if num_filter != c:
            raise OperatorError(
                _UP,
                f"num_filter must be the channels of data = {c} with sample_type='bilinear', got"
                f" {num_filter}",
            )
        must_be(_UP, "weight", ins[1], (c, 1, *_up_filter(scale)["kernel"]))
        return [Type((n, c, *size), dtype)]
    channels = 0
    for i, t in enumerate(ins):
        images(_UP, f"input {i}", t)
        factors = [a // b if b and a % b == 0 else None for a, b in zip(size, t.shape[2:])]
        if t.shape[0] != n or factors[0] is None or factors[0] != factors[1]:
            raise ShapeError(
                _UP,
                f"every input must have the batch of the first and one whole factor to the output's"
                f" size {size}, got {t.shape} for data {ins[0].shape}",
            )
        if multi_input_mode == "sum" and t.shape[1] != c:
            raise ShapeError(
                _UP, f"inputs that are summed must have {c} channels like the first, got {t.shape}"
            )
        channels += t.shape[1]
    return [Type((n, c if multi_input_mode == "sum" else channels, *size), dtype)]


def _up_fill(ins, scale, num_filter, sample_type, **_):
    if sample_type == "bilinear" and ins[0] is not None and ins[1] is None:
        shape = (images(_UP, "data", ins[0])[1], 1, *_up_filter(scale)["kernel"])
        return [ins[0], Type(shape, ins[0].dtype)]
    return list(ins)


def _repeat(xp, x, factor):
    return xp.repeat(xp.repeat(x, factor, axis=2), factor, axis=3)


def _up_ref(xp, *xs, scale, num_filter, sample_type, multi_input_mode, **_):
    if sample_type == "bilinear":
        from .conv import conv_grad_data, geometry

        x, weight = xs
        g = geometry(_UP, **_up_filter(scale), dilate=(), num_group=num_filter, layout=None)
        n, c, h, w = x.shape
        return conv_grad_data(xp, g, x, weight, (n, c, h * scale, w * scale))
    height = xs[0].shape[2] * scale
    parts = [_repeat(xp, x, height // x.shape[2] if x.shape[2] else scale) for x in xs]
    if multi_input_mode == "sum":
        return sum(parts[1:], parts[0])
    return xp.concatenate(parts, axis=1)


def _up_body(F, *xs, scale, num_filter, sample_type, multi_input_mode, **_):
    if sample_type == "bilinear":
        filters = {**_up_filter(scale), "num_filter": num_filter, "num_group": num_filter}
        return [F.Deconvolution(*xs, no_bias=True, **filters)]
    height = xs[0].shape[2] * scale
    if len(xs) == 1 or not height:
        return None
    parts = [
        F.UpSampling(x, scale=height // x.shape[2], sample_type="nearest", num_args=1) for x in xs
    ]
    return [F.add_n(*parts) if multi_input_mode == "sum" else F.Concat(*parts, dim=1)]


def _up_grad(F, dys, xs, ys, scale, num_filter, sample_type, multi_input_mode, **_):
    dy = dys[0]
    if sample_type == "bilinear":
        x, weight = xs
        filters = {**_up_filter(scale), "num_group": num_filter}
        return [
            F.Convolution(dy, weight, num_filter=num_filter, no_bias=True, **filters),
            F._conv_grad_weight(x, dy, weight_shape=weight.shape, **filters),
        ]
    grads, begin = [], 0
    for x in xs:
        part = dy
        if multi_input_mode == "concat" and len(xs) > 1:
            part = F.slice_axis(dy, axis=1, begin=begin, end=begin + x.shape[1])
            begin += x.shape[1]
        factor = dy.shape[2] // x.shape[2] if x.shape[2] else scale
        grads.append(F._upsampling_grad(part, scale=factor))
    return grads


operator(
    _UP,
    inputs=("*data",),
    variadic_key="num_args",
    input_names=_up_inputs,
    params=(
        Param("scale", "int"),
        Param("num_filter", "int", 0),
        Param("sample_type", ("bilinear", "nearest")),
        Param("multi_input_mode", ("concat", "sum"), "concat"),
        Param("num_args", "int"),
        Param("workspace", "int", 512),
    ),
    infer=_up_infer,
    fill=_up_fill,
    ref=_up_ref,
    grad=_up_grad,
    traits=(Decomposition(_up_body),),
    samples=(
        sample((2, 2, 3, 4), scale=2, sample_type="nearest", num_args=1),
        sample((1, 2, 4, 4), (1, 1, 2, 2), scale=2, sample_type="nearest", num_args=2),
        sample(
            (1, 2, 2, 4),
            (1, 2, 1, 2),
            scale=1,
            sample_type="nearest",
            num_args=2,
            multi_input_mode="sum",
        ),
        sample(
            (2, 2, 3, 2), (2, 1, 4, 4), scale=2, sample_type="bilinear", num_filter=2, num_args=2
        ),
        sample(
            (1, 2, 3, 2), (2, 1, 5, 5), scale=3, sample_type="bilinear", num_filter=2, num_args=2
        ),
    ),
    doc=(
        "Enlarges (N, C, H, W) to (N, C, H scale, W scale). nearest: repeats elements; several"
        " inputs are all brought to the first one's new size and concatenated along the channels"
        " or summed. bilinear: a transposed convolution of every channel with weight (C, 1, k, k),"
        " k = 2 scale - scale % 2, which is learnt or set by init.Bilinear; num_filter is C."
    ),
)


def _up_back_infer(ins, scale):
    n, c, h, w = images("_upsampling_grad", "dy", ins[0])
    if scale < 1 or h % scale or w % scale:
        raise ShapeError(
            "_upsampling_grad", f"scale {scale} must divide the size of {ins[0].shape}"
        )
    return [Type((n, c, h // scale, w // scale), ins[0].dtype)]


operator(
    "_upsampling_grad",
    inputs=("dy",),
    params=(Param("scale", "int"),),
    infer=_up_back_infer,
    ref=lambda xp, dy, scale: dy.reshape(
        *dy.shape[:2], dy.shape[2] // scale, scale, dy.shape[3] // scale, scale
    ).sum(axis=(3, 5)),
    grad=lambda F, dys, xs, ys, scale: [
        F.UpSampling(dys[0], scale=scale, sample_type="nearest", num_args=1)
    ],
    samples=(sample((2, 2, 4, 6), scale=2), sample((1, 2, 3, 6), scale=3)),
    doc="Sums of scale x scale blocks: gradient of UpSampling (nearest).",
)


# ---- BilinearResize2D ----------------------------------------------------------------------------

_RESIZE = "_contrib_BilinearResize2D"
_EVEN_ODD = {
    "to_even_down": lambda n: n - n % 2,
    "to_even_up": lambda n: n + n % 2,
    "to_odd_down": lambda n: n - 1 + n % 2,
    "to_odd_up": lambda n: n + 1 - n % 2,
}


def _resized(n: int, size: int, scale, mode: str) -> int:
    """The new extent of an axis of n. Products are float32's, as in MXNet: 10 x 0.7 is 7."""
    if mode in _EVEN_ODD:
        return _EVEN_ODD[mode](n)
    if mode == "odd_scale":
        return int(np.float32(n) * scale) if n % 2 == 0 else int(np.float32(n - 1) * scale) + 1
    return size if scale is None else int(np.float32(n) * scale)


def _resize_infer(ins, height, width, scale_height, scale_width, mode, align_corners):
    n, c, h, w = images(_RESIZE, "data", ins[0])
    float_dtype(_RESIZE, ins[:1], ("data",))
    if mode == "like":
        return [Type((n, c, *images(_RESIZE, "like", ins[1])[2:]), ins[0].dtype)]
    scaled = mode == "odd_scale" or mode not in _EVEN_ODD
    if scaled and (
        (scale_height is None) != (scale_width is None)
        or (mode == "odd_scale" and scale_height is None)
    ):
        raise OperatorError(
            _RESIZE,
            f"scale_height and scale_width must both be given with mode='{mode}', got"
            f" {scale_height} and {scale_width}",
        )
    rows, columns = (None if s is None else np.float32(s) for s in (scale_height, scale_width))
    out = _resized(h, height, rows, mode), _resized(w, width, columns, mode)
    if min(out) < 1:
        raise ShapeError(
            _RESIZE,
            f"the output must have at least one row and column, got size {out} from data"
            f" {ins[0].shape} with mode='{mode}'",
        )
    if 0 in (h, w):
        raise ShapeError(_RESIZE, f"data must not be empty, got {ins[0].shape}")
    return [Type((n, c, *out), ins[0].dtype)]


@lru_cache(maxsize=256)
def resize_taps(n_in: int, n_out: int, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """(lower input, weight of the one after it) of every output, int64 and float32."""
    if n_in == n_out:
        return np.arange(n_out), np.zeros(n_out, np.float32)
    i = np.arange(n_out, dtype=np.float32)
    if n_out == 1:  # the first element, whatever the rule: as MXNet
        at = i
    elif align_corners:
        at = i * np.float32((n_in - 1) / (n_out - 1))
    else:
        at = np.maximum((i + np.float32(0.5)) * np.float32(n_in / n_out) - np.float32(0.5), 0)
    low = np.minimum(at.astype(np.int64), n_in - 1)
    return low, (at - low).astype(np.float32)


@lru_cache(maxsize=256)
def _matrix(n_in: int, n_out: int, align_corners: bool) -> np.ndarray:
    """(n_out, n_in) float32: the weights of the inputs of every output."""
    low, weight = resize_taps(n_in, n_out, align_corners)
    matrix = np.zeros((n_out, n_in), np.float32)
    rows = np.arange(n_out)
    np.add.at(matrix, (rows, low), 1 - weight)
    np.add.at(matrix, (rows, np.minimum(low + 1, n_in - 1)), weight)
    return matrix


def _matrices(xp, small, large, align_corners, dtype):
    return [xp.asarray(_matrix(a, b, align_corners)).astype(dtype) for a, b in zip(small, large)]


def _resize_ref(xp, x, like=None, *, align_corners, **attrs):
    types = [Type(a.shape) for a in (x, like) if a is not None]
    out = _resize_infer(types, align_corners=align_corners, **attrs)[0].shape[2:]
    rows, columns = _matrices(xp, x.shape[2:], out, align_corners, x.dtype)
    return rows @ x @ columns.T


def _resize_grad(F, dys, xs, ys, align_corners, mode, **_):
    dx = F._bilinear_resize_grad(dys[0], data_shape=xs[0].shape, align_corners=align_corners)
    return [dx, None] if mode == "like" else [dx]


_SIZES = (
    Param("height", "int", 1),
    Param("width", "int", 1),
    Param("scale_height", "float?", None),
    Param("scale_width", "float?", None),
)
_ALIGN = Param("align_corners", "bool", True)
_MODES = ("like", "odd_scale", "size", *_EVEN_ODD)

operator(
    _RESIZE,
    inputs=("data", "like"),
    input_names=lambda mode, **_: ("data", "like") if mode == "like" else ("data",),
    params=(*_SIZES, Param("mode", _MODES, "size"), _ALIGN),
    infer=_resize_infer,
    ref=_resize_ref,
    grad=_resize_grad,
    samples=(
        sample((2, 2, 3, 4), height=5, width=7),
        sample((1, 2, 5, 6), height=2, width=3, align_corners=False),
        sample((1, 2, 4, 5), scale_height=1.5, scale_width=0.5, align_corners=False),
        sample((1, 2, 4, 5), mode="odd_scale", scale_height=2.0, scale_width=2.0),
        sample((1, 1, 4, 5), mode="to_even_up"),
        sample((1, 1, 3, 4), mode="to_odd_down"),
        sample((1, 2, 4, 5), (1, 1, 3, 6), mode="like"),
    ),
    doc=(
        "Bilinear resizing of (N, C, H, W). mode: size (height and width, or scale_height and"
        " scale_width times the input's), odd_scale (scales that keep even sizes even and odd ones"
        " odd), like (the size of a second array), to_even_down, to_even_up, to_odd_down,"
        " to_odd_up (one more or less where needed). align_corners: the corner pixels' centres"
        " meet; otherwise the images' borders do."
    ),
)


def _resize_back_infer(ins, data_shape, align_corners):
    dy = ins[0]
    if len(data_shape) != 4 or len(dy.shape) != 4 or dy.shape[:2] != tuple(data_shape[:2]):
        raise ShapeError(
            "_bilinear_resize_grad", f"dy must be (N, C, h, w) for {data_shape}, got {dy.shape}"
        )
    return [Type(data_shape, float_dtype("_bilinear_resize_grad", ins, ("dy",)))]


def _resize_back_ref(xp, dy, *, data_shape, align_corners):
    rows, columns = _matrices(xp, data_shape[2:], dy.shape[2:], align_corners, dy.dtype)
    return rows.T @ dy @ columns


operator(
    "_bilinear_resize_grad",
    inputs=("dy",),
    params=(Param("data_shape", "shape"), _ALIGN),
    infer=_resize_back_infer,
    ref=_resize_back_ref,
    grad=lambda F, dys, xs, ys, align_corners, **_: [
        F._contrib_BilinearResize2D(
            dys[0], height=xs[0].shape[2], width=xs[0].shape[3], align_corners=align_corners
        )
    ],
    samples=(
        sample((2, 2, 5, 7), data_shape=(2, 2, 3, 4)),
        sample((1, 2, 2, 3), data_shape=(1, 2, 5, 6), align_corners=False),
    ),
    doc="Gradient of BilinearResize2D with respect to its data, which has shape data_shape.",
)


# ---- Crop ----------------------------------------------------------------------------------------


def _crop_place(shape, like, offset, h_w, center_crop):
    """(top, left, height, width) of the crop. Raises OperatorError."""
    if len(offset) != 2 or len(h_w) != 2:
        raise OperatorError("Crop", f"offset and h_w must have 2 entries, got {offset} and {h_w}")
    size = tuple(like[2:]) if like is not None else tuple(h_w)
    rest = tuple(a - b for a, b in zip(shape[2:], size))
    if min(size) < 1 or min(rest) < 0:
        raise ShapeError(
            "Crop",
            f"the crop must have between 1 element and the size {shape[2:]} of data, got {size}",
            fix="set h_w, or give a second array to crop like" if like is None else None,
        )
    at = tuple(r // 2 for r in rest) if center_crop else tuple(offset)
    if any(not 0 <= a <= r for a, r in zip(at, rest)):
        raise OperatorError(
            "Crop", f"offset must be from 0 to {rest}, the size that is cut off, got {offset}"
        )
    return *at, *size


def _crop_infer(ins, num_args, offset, h_w, center_crop):
    shape = images("Crop", "data", ins[0])
    if num_args not in (1, 2):
        raise OperatorError("Crop", f"num_args must be 1 or 2, got {num_args}")
    like = images("Crop", "crop_like", ins[1]) if num_args == 2 else None
    *_, h, w = _crop_place(shape, like, offset, h_w, center_crop)
    return [Type((*shape[:2], h, w), ins[0].dtype)]


def _crop_ref(xp, x, like=None, *, num_args, **attrs):
    top, left, h, w = _crop_place(x.shape, None if like is None else like.shape, **attrs)
    return x[:, :, top : top + h, left : left + w].copy()


def _crop_grad(F, dys, xs, ys, num_args, **attrs):
    shape = xs[0].shape
    top, left, h, w = _crop_place(shape, xs[1].shape if num_args == 2 else None, **attrs)
    width = (0, 0, 0, 0, top, shape[2] - top - h, left, shape[3] - left - w)
    dx = F.pad(dys[0], mode="constant", pad_width=width)
    return [dx, None][:num_args]


operator(
    "Crop",
    inputs=("*data",),
    variadic_key="num_args",
    params=(
        Param("num_args", "int"),
        Param("offset", "shape", (0, 0)),
        Param("h_w", "shape", (0, 0)),
        Param("center_crop", "bool", False),
    ),
    infer=_crop_infer,
    ref=_crop_ref,
    grad=_crop_grad,
    samples=(
        sample((2, 2, 5, 6), num_args=1, offset=(1, 2), h_w=(3, 2)),
        sample((1, 2, 5, 6), (1, 1, 2, 3), num_args=2, center_crop=True),
    ),
    doc=(
        "A part of (N, C, H, W): of size h_w or, with two inputs, of the second one's size; at"
        " offset (top, left), or in the middle with center_crop."
    ),
)
