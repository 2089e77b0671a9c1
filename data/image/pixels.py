"""Functions on single images (H, W, C): read, resize, crop, rotate.

Interpolation methods (`interp`) are OpenCV's numbers: 0 nearest, 1 linear, 2 cubic, 3 area,
4 Lanczos; 9 selects by size: cubic to enlarge, area to shrink, else linear; 10 draws one of 0 .. 4.
Sizes are (width, height). Random draws are Python's `random` and NumPy's `np.random`, as in MXNet.
"""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...ndarray import NDArray, _internal
from ...ndarray.creation import array
from .. import streams
from .crop import cropped
from .rotate import imrotate

AUTO, RANDOM = 9, 10
CROP_ATTEMPTS = 10


def imread(filename: Any, *args: Any, **kwargs: Any) -> NDArray:
    """An image file -> (H, W, C) uint8.

    Args:
        flag: 1 (default) three channels, 0 grey: one channel.
        to_rgb: True (default) red, green, blue; False blue, green, red.
        out: an array of the image's shape to write.
    Raises: MXNetError if the file does not exist or is not an image.
    """
    return _internal._cvimread(filename, *args, **kwargs)


def imdecode(buf: Any, *args: Any, **kwargs: Any) -> NDArray:
    """Encoded bytes (bytes, bytearray, uint8 array) -> (H, W, C) uint8; arguments as of `imread`.

    Raises: ValueError for a str, MXNetError if the bytes are not an image.
    """
    if not isinstance(buf, (NDArray, bytes, bytearray, memoryview, np.ndarray)):
        raise InvalidValue(
            f"imdecode: buf must be bytes, bytearray or an array, got {type(buf).__name__}\n"
            "  fix: open the file with 'rb'"
        )
    return _internal._cvimdecode(buf, *args, **kwargs)


def imresize(src: Any, w: int, h: int, *args: Any, **kwargs: Any) -> NDArray:
    """An image (H, W, C) resized to w x h pixels.

    Args:
        interp: 0 .. 4 (default 1), 9 or 10.
        out: an array (h, w, C) to write.
    """
    if args:
        kwargs["interp"], *rest = args
        kwargs.update(zip(("out",), rest))
    interp = _get_interp_method(int(kwargs.pop("interp", 1)), (*src.shape[:2], h, w))
    return _internal._cvimresize(src, w=int(w), h=int(h), interp=interp, **kwargs)


def copyMakeBorder(
    src: Any, top: int, bot: int, left: int, right: int, *args: Any, **kwargs: Any
) -> NDArray:  # noqa: N802
    """An image (H, W, C) with margins of the given numbers of pixels.

    Args:
        type: 0 (default) a colour, 1 the edge repeated, 2 mirrored, 3 wrapped, 4 mirrored without
            the edge.
        value, values: the colour: one number, or one for each channel.
    """
    return _internal._cvcopyMakeBorder(src, top, bot, left, right, *args, **kwargs)


def _get_interp_method(interp, sizes=()) -> int:
    """0 .. 4 for any interpolation method; sizes: (old height, old width, new height, new
    width)."""
    if interp == AUTO:
        if not sizes:
            return 2
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return 2
        return 3 if height < old_height and width < old_width else 1
    if interp == RANDOM:
        return streams.python().randint(0, 4)
    if interp not in range(5):
        raise InvalidValue(f"Unknown interp method {interp}: expected 0, 1, 2, 3, 4, 9 or 10")
    return interp


def _size_of(src) -> tuple[int, int]:
    """(height, width) of an image."""
    if len(src.shape) != 3:
        raise InvalidValue(f"image: src must be (H, W, C), got {src.shape}")
    return src.shape[0], src.shape[1]


def scale_down(src_size: Any, size: Any) -> tuple[int, int]:
    """`size` reduced at the same aspect ratio until it fits into src_size; both (width, height).

    >>> mx.image.scale_down((640, 480), (720, 120))
    (640, 106)
    """
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise InvalidValue(f"image: size must be (width, height), got {size!r}")
    w, h = size
    width, height = src_size
    if height < h:
        w, h = float(w * height) / h, height
    if width < w:
        w, h = width, float(h * width) / w
    return int(w), int(h)


def resize_short(src: Any, size: Any, interp: int = 2) -> NDArray:
    """Resizes an image so that its shorter edge has `size` pixels; keeps the aspect ratio."""
    h, w = _size_of(src)
    new_h, new_w = (size * h // w, size) if h > w else (size, size * w // h)
    return imresize(src, new_w, new_h, interp=_get_interp_method(interp, (h, w, new_h, new_w)))


def fixed_crop(
    src: Any, x0: int, y0: int, w: int, h: int, size: Any = None, interp: int = 2
) -> NDArray:
    """The crop of w x h pixels at column x0, row y0; resized to `size` (width, height) if given."""
    rows, columns = _size_of(src)
    if 0 <= y0 <= rows - h and 0 <= x0 <= columns - w:
        out = cropped(src, x0, y0, w, h)
    else:
        out = src[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (w, h) != tuple(size):
        method = _get_interp_method(interp, (h, w, size[1], size[0]))
        out = imresize(out, *size, interp=method)
    return out


def random_crop(src: Any, size: Any, interp: int = 2) -> Any:
    """A crop of `size` (width, height) at a random position; smaller images are enlarged.

    Returns: the crop, and its position (x0, y0, width, height).
    """
    h, w = _size_of(src)
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = streams.python().randint(0, w - new_w), streams.python().randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: Any, size: Any, interp: int = 2) -> Any:
    """The centre crop of `size` (width, height); smaller images are enlarged.

    Returns: the crop, and its position (x0, y0, width, height).
    """
    h, w = _size_of(src)
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = (w - new_w) // 2, (h - new_h) // 2
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def random_size_crop(
    src: Any, size: Any, area: Any, ratio: Any, interp: int = 2, **kwargs: Any
) -> Any:
    """A crop of random area and aspect ratio, resized to `size` (width, height).

    Args:
        area: range of the crop's fraction of the image's area; one number: from it to 1.
        ratio: range of width / height.
    Returns: the crop, and its position (x0, y0, width, height). If no crop fits, the centre crop.
    Source: Szegedy et al. 2015, arXiv:1409.4842.
    """
    area = _area_argument("random_size_crop", area, kwargs)
    h, w = _size_of(src)
    low, high = (area, 1.0) if isinstance(area, Number) else area
    for _ in range(CROP_ATTEMPTS):
        wanted = streams.python().uniform(low, high) * h * w
        drawn = math.exp(streams.python().uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(wanted * drawn)), round(math.sqrt(wanted / drawn))
        if 0 < new_w <= w and 0 < new_h <= h:
            x0, y0 = streams.python().randint(0, w - new_w), streams.python().randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def _area_argument(where: str, area, kwargs):
    """`area`, or min_area, its old name."""
    if "min_area" in kwargs:
        warnings.warn(
            "`min_area` is deprecated. Please use `area` instead.", DeprecationWarning, stacklevel=3
        )
        area = kwargs.pop("min_area")
    if kwargs:
        raise InvalidType(f"{where}: has no parameter {', '.join(kwargs)}")
    return area


def color_normalize(src: Any, mean: Any, std: Any = None) -> NDArray:
    """(src - mean) / std, written into src; None skips a step."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


def random_rotate(
    src: Any, angle_limits: Any, zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by angles drawn from angle_limits = (low, high) in degrees, one for each image."""
    low, high = angle_limits
    if src.ndim == 3:
        return imrotate(src, float(streams.numpy().uniform(low, high)), zoom_in, zoom_out)
    angles = array(streams.numpy().uniform(low, high, size=len(src)))
    return imrotate(src, angles, zoom_in, zoom_out)
