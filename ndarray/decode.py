"""Operators whose result shape depends on the bytes: _cvimdecode, _cvimread, _imdecode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.error import InvalidType, InvalidValue, MXNetError
from . import codec, functions
from .ndarray import NDArray, from_memory
from .numpy_mode import in_mode


def _bytes_of(buf):
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, np.ndarray):
        if buf.dtype != np.uint8:
            raise InvalidType(f"imdecode: buf must be bytes (uint8), got {buf.dtype}")
        return buf.tobytes()
    return bytes(buf)


def _flag(flag) -> int:
    if int(flag) not in (0, 1):
        raise InvalidValue(f"imdecode: flag must be 0 (grey) or 1 (colour), got {flag}")
    return int(flag)


def _given(image: np.ndarray, to_rgb, out):
    """(H, W, C) as an NDArray, or in `out`."""
    if image.ndim == 2:
        image = image[..., None]
    elif not to_rgb:
        image = image[..., ::-1]
    made = in_mode(from_memory(image))
    if out is None:
        return made
    if out.shape != made.shape:
        raise InvalidValue(
            f"imdecode: out must have the image's shape {made.shape}, got {out.shape}"
        )
    functions.cast(made, dtype=out.dtype, out=out)
    return out


def _cvimdecode(buf, flag=1, to_rgb=True, out=None) -> NDArray:
    """Encoded bytes (bytes, or a uint8 array) -> (H, W, C) uint8.

    Args:
        flag: 1 three channels, 0 grey: one channel.
        to_rgb: red, green, blue; False: blue, green, red.
        out: an array of the image's shape to write.
    Raises: MXNetError if the bytes are not an image.
    """
    data = _bytes_of(buf)
    if not data:
        raise MXNetError("imdecode: the buffer is empty")
    return _given(codec.decode(data, _flag(flag)), to_rgb, out)


def _cvimread(filename, flag=1, to_rgb=True, out=None) -> NDArray:
    """An image file -> (H, W, C) uint8; arguments as of `_cvimdecode`."""
    try:
        image = codec.read(filename, _flag(flag))
    except OSError as error:
        raise _file_error(filename, error) from None
    return _given(image, to_rgb, out)


class ImageFileError(MXNetError, FileNotFoundError):
    """An image file that cannot be read."""


def _file_error(filename, error):
    return ImageFileError(f"imread: cannot read {str(filename)!r}: {error.strerror}")


def imdecode(
    str_img: Any,
    clip_rect: Sequence[int] = (0, 0, 0, 0),
    out: Any = None,
    index: int = 0,
    channels: int = 3,
    mean: NDArray | None = None,
) -> NDArray:
    """Encoded bytes -> (C, H, W) float32; older than `mx.image.imdecode`.

    Args:
        clip_rect: (x0, y0, x1, y1), the region to return; all zero: everything.
        out: (C, H, W), or (N, C, H, W) whose entry `index` is written.
        channels: 3, or 1: grey.
        mean: subtracted, (C, H, W).
    """
    if channels not in (1, 3):
        raise InvalidValue(f"imdecode: channels must be 1 or 3, got {channels}")
    image = codec.decode(_bytes_of(str_img), int(channels == 3))
    image = image if image.ndim == 3 else image[..., None]
    x0, y0, x1, y1 = clip_rect
    if y1 > y0 and x1 > x0:
        image = image[y0:y1, x0:x1]
    values = image.transpose(2, 0, 1).astype(np.float32)
    if mean is not None:
        values = values - mean.asnumpy()
    made = from_memory(np.ascontiguousarray(values))
    if out is None:
        return made
    target = out[index] if out.ndim == 4 else out
    functions.cast(made, dtype=out.dtype, out=target)
    return out


def _imdecode(mean, index, x0, y0, x1, y1, c, size, str_img, out=None) -> NDArray:
    """`imdecode` with separate arguments; size: the number of bytes."""
    return imdecode(str_img[:size], (x0, y0, x1, y1), out, index, c, mean)
