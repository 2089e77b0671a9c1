"""Encoded images (JPEG, PNG, ...) to NumPy and back, by Pillow."""

from __future__ import annotations

import io

import numpy as np

from ...engine.error import MXNetError


def _pillow():
    try:
        from PIL import Image
    except ImportError:
        raise MXNetError(
            "images: Pillow is needed to decode and encode images\n  fix: pip install pillow"
        ) from None
    return Image


def decode(data: bytes, color: int = 1) -> np.ndarray:
    """Encoded bytes -> uint8 array: (H, W, 3) red, green, blue, or (H, W).

    color: 1 colour, 0 grey, -1 as stored. Raises MXNetError when the bytes are no image.
    """
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(data))
        if color == 0:
            return np.asarray(image.convert("L"))
        if color < 0 and image.mode in ("1", "L", "I;16"):
            return np.asarray(image.convert("L"))
        return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise MXNetError(
            f"images: cannot decode {len(data)} bytes beginning {bytes(data[:8])!r}: {error}"
        ) from None


def read(path, color: int = 1) -> np.ndarray:
    """The image in a file as `decode` gives it."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return decode(data, color)
    except MXNetError as error:
        raise MXNetError(f"{error}\n  at: {path}") from None


def encode(image: np.ndarray, extension: str = ".jpg", quality: int = 95) -> bytes:
    """A uint8 array (H, W, 3) or (H, W) as bytes. quality: JPEG 1..100, PNG compression 1..9."""
    options = {
        ".jpg": ("JPEG", {"quality": quality}),
        ".jpeg": ("JPEG", {"quality": quality}),
        ".png": ("PNG", {"compress_level": min(quality, 9)}),
    }
    if extension.lower() not in options:
        raise MXNetError(
            f"images: the format must be one of {', '.join(options)}, got {extension!r}"
        )
    name, chosen = options[extension.lower()]
    target = io.BytesIO()
    _pillow().fromarray(np.ascontiguousarray(image, np.uint8)).save(target, name, **chosen)
    return target.getvalue()
