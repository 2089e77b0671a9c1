"""Encoded images (JPEG, PNG, ...) to NumPy and back: JPEG by simplejpeg if installed, everything
else by Pillow."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import warnings
from os import PathLike
from typing import Any

import numpy as np

from ..engine.error import InvalidValue, MXNetError

JPEG_START = b"\xff\xd8\xff"


@functools.cache
def _simplejpeg():
    """The module, or None if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def _pillow():
    try:
        from PIL import Image
    except ImportError:
        raise MXNetError(
            "images: Pillow is needed to decode and encode images\n  fix: pip install pillow"
            " simplejpeg"
        ) from None
    return Image


def decode(
    data: Any, color: int = 1, reduce_to: tuple[int, int] = (0, 0), strict: bool = False
) -> np.ndarray:
    """Encoded bytes -> uint8 array: (H, W, 3) red, green, blue, or (H, W).

    Args:
        data: bytes, or anything with the buffer protocol.
        color: 1 colour, 0 grey, -1 as stored.
        reduce_to: (height, width) that suffice: a larger JPEG may be decoded at 1/2, 1/4 or 1/8 of
            its size, which is faster. (0, 0): the full size.
        strict: raise for a damaged JPEG, which is otherwise decoded as far as possible, with a
            warning.
    EXIF orientation is ignored, as in MXNet. Raises MXNetError if the bytes are not an image.
    """
    if _simplejpeg() is not None and bytes(data[:3]) == JPEG_START:
        image = _decode_jpeg(data, color, reduce_to, strict)
        if image is not None:
            return image
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(data))
        if image.mode.startswith("I"):  # of 16 bits the upper 8, as OpenCV; `convert` clips at 255
            image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")  # else Pillow warns
        grey = color == 0 or (color < 0 and image.mode in ("1", "L"))
        return np.asarray(image.convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, ValueError, MemoryError, pillow.DecompressionBombError) as error:
        why = "no known format" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise MXNetError(
            f"images: cannot decode {len(data)} bytes beginning {bytes(data[:8])!r}: {why}"
        ) from None


def _decode_jpeg(data, color, reduce_to, strict):
    """None if Pillow must decode the bytes, as for four colours. A damaged file, unless strict, is
    decoded as far as possible, with a warning."""
    try:
        grey = _simplejpeg().decode_jpeg_header(data)[2] == "Gray" if color < 0 else color == 0
    except ValueError:
        return None
    try:
        image = _jpeg_pixels(data, grey, reduce_to, strict=True)
    except ValueError as error:
        try:
            image = _jpeg_pixels(data, grey, reduce_to, strict=False)
        except ValueError:
            return None
        if strict:
            raise MXNetError(f"images: a damaged JPEG of {len(data)} bytes: {error}") from None
        warnings.warn(f"images: a damaged JPEG of {len(data)} bytes: {error}", stacklevel=4)
    return image[..., 0] if grey else image


def _jpeg_pixels(data, grey, reduce_to, strict):
    return _simplejpeg().decode_jpeg(
        data,
        "GRAY" if grey else "RGB",
        min_height=reduce_to[0],
        min_width=reduce_to[1],
        strict=strict,
    )


def jpeg_size(data: Any) -> tuple[int, int] | None:
    """(height, width) of a JPEG, from its header; None for other bytes."""
    if _simplejpeg() is None or bytes(data[:3]) != JPEG_START:
        return None
    try:
        return _simplejpeg().decode_jpeg_header(data)[:2]
    except ValueError:
        return None


def size(data: Any) -> tuple[int, int] | None:
    """(height, width) of an image, from its header; None for bytes that cannot be decoded."""
    found, pillow = jpeg_size(data), _pillow()
    if found is None:
        with contextlib.suppress(OSError, SyntaxError, ValueError, pillow.DecompressionBombError):
            found = pillow.open(io.BytesIO(data)).size[::-1]
    return found


def read(
    path: str | PathLike[str],
    color: int = 1,
    reduce_to: tuple[int, int] = (0, 0),
    strict: bool = False,
) -> np.ndarray:
    """The image in a file as `decode` gives it. Raises MXNetError that names the file."""
    with open(os.fspath(path), "rb") as file:
        data = file.read()
    try:
        return decode(data, color, reduce_to, strict)
    except MXNetError as error:
        raise MXNetError(f"{error}\n  at: {path}") from None


def encode(image: np.ndarray, extension: str = ".jpg", quality: int = 95) -> bytes:
    """A uint8 array (H, W, 3) or (H, W) as bytes. quality: JPEG 1..100, PNG compression 1..9."""
    kind = extension.lower()
    if kind not in (".jpg", ".jpeg", ".png"):
        raise InvalidValue(
            f"images: the format must be one of .jpg, .jpeg, .png, got {extension!r}"
        )
    image = np.ascontiguousarray(image, np.uint8)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    if kind != ".png" and _simplejpeg() is not None and image.ndim == 3 and image.shape[2] == 3:
        return _simplejpeg().encode_jpeg(image, quality, "RGB", "420")
    target = io.BytesIO()
    chosen = {"compress_level": min(quality, 9)} if kind == ".png" else {"quality": quality}
    _pillow().fromarray(image).save(target, "PNG" if kind == ".png" else "JPEG", **chosen)
    return target.getvalue()
