"""Rotation of images about their centre, with linear interpolation and zeros outside."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...ndarray import NDArray
from ...ndarray.ndarray import from_memory, like


def check_zoom(zoom_in: Any, zoom_out: Any) -> None:
    if zoom_in and zoom_out:
        raise InvalidValue("`zoom_in` and `zoom_out` cannot be both True")


def imrotate(
    src: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Images (C, H, W) or (N, C, H, W) of float32, rotated counter-clockwise.

    Args:
        rotation_degrees: number, or for (N, C, H, W) also an NDArray (N,) of them.
        zoom_in: enlarge until no padding shows. zoom_out: shrink until the whole image shows.
    """
    check_zoom(zoom_in, zoom_out)
    if np.dtype(src.dtype) != np.float32:
        raise InvalidType(
            f"imrotate: images must be float32, got {np.dtype(src.dtype)}\n"
            "  fix: put ToTensor() or Cast() before it"
        )
    if src.ndim not in (3, 4):
        raise InvalidValue(f"imrotate: only 3D and 4D are supported, got {src.shape}")
    single = isinstance(rotation_degrees, Number)
    if src.ndim == 3 and not single:
        raise InvalidType("imrotate: the rotation angle of a single image must be a number")
    values = src.asnumpy().reshape(-1, *src.shape[-3:])
    degrees = (
        np.full(len(values), rotation_degrees, np.float64)
        if single
        else np.asarray(rotation_degrees.asnumpy(), np.float64)
    )
    if len(degrees) != len(values):
        raise InvalidValue(
            "imrotate: the number of images must be equal to the number of rotation angles, got"
            f" {len(values)} and {len(degrees)}"
        )
    out = _sampled(values, *_places(values.shape, np.deg2rad(degrees), zoom_in, zoom_out))
    return like(src, from_memory(out.reshape(src.shape), src.context))


def _places(shape, radians, zoom_in, zoom_out):
    """(N, H, W) rows and columns in the source, for each pixel of the result."""
    _, _, height, width = shape
    cos, sin = np.cos(radians)[:, None, None], np.sin(radians)[:, None, None]
    scale: np.ndarray | float = 1.0
    if zoom_in or zoom_out:
        bound_h = np.abs(height * cos) + np.abs(width * sin)
        bound_w = np.abs(height * sin) + np.abs(width * cos)
        scale = np.maximum(bound_h / height, bound_w / width)
        scale = 1 / scale if zoom_in else scale
    middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
    rows = (np.arange(height) - middle_row)[:, None]
    columns = np.arange(width) - middle_column
    at_column = scale * (columns * cos - rows * sin) + middle_column
    at_row = scale * (columns * sin + rows * cos) + middle_row
    return at_row, at_column


def _sampled(values, at_row, at_column):
    n, _, height, width = values.shape
    top, left = np.floor(at_row).astype(int), np.floor(at_column).astype(int)
    out = np.zeros_like(values)
    image = np.arange(n)[:, None, None]
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = top + dy, left + dx
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            near = (1 - np.abs(at_row - i)) * (1 - np.abs(at_column - j))
            weight = np.where(inside, near, 0).astype(values.dtype)
            found = values[image, :, np.clip(i, 0, height - 1), np.clip(j, 0, width - 1)]
            out += weight[:, None] * np.moveaxis(found, -1, 1)
    return out
