"""Cropping an image with one copy."""

from __future__ import annotations

from typing import Any

from ...ndarray import functions as nd
from ...ndarray.ndarray import NDArray, from_memory, like, state


def cropped(image: Any, x: int, y: int, width: int, height: int) -> NDArray:
    """The part of `width` x `height` pixels at column x, row y of an image (..., H, W, C).

    Implemented as a copy, because an operator would need a plan for each position.
    """
    rows, columns = image.shape[-3:-1]
    inside = 0 <= x <= columns - width and 0 <= y <= rows - height and width > 0 < height
    dense = isinstance(image, NDArray) and image.stype == "default" and image.context.on_host
    if state.recording or not inside or not dense:
        return nd._image_crop(image, x=x, y=y, width=width, height=height)
    image.wait_to_read()
    part = image._memory()[..., y : y + height, x : x + width, :]
    return like(image, from_memory(part, image.context, image._spec.dtype))
