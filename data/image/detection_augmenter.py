"""Augmenters for detection: transformations of an image (H, W, C) and its objects.

Objects are rows (class, xmin, ymin, xmax, ymax, ...) of a NumPy array; coordinates are relative to
the image's width and height.
"""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...ndarray import functions as nd
from .. import streams
from .augmenter import Augmenter, ForceResizeAug, ResizeAug, colour_augmenters, described
from .pixels import copyMakeBorder, fixed_crop

SMALLEST_PIXELS = 2  # smaller crops, objects and margins are rejected


class DetAugmenter:
    """Base of augmenters for detection: `__call__(src, label)` returns both, transformed."""

    def __init__(self, **kwargs: Any):
        self._kwargs = described(kwargs)

    def dumps(self) -> Any:
        """JSON text: [name, parameters]."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: Any, label: Any) -> Any:
        raise InvalidType(f"{type(self).__name__} must define __call__(src, label)")


class DetBorrowAug(DetAugmenter):
    """An image augmenter that leaves object positions unchanged."""

    def __init__(self, augmenter: Any):
        if not isinstance(augmenter, Augmenter):
            raise InvalidType(
                f"DetBorrowAug: augmenter must be an Augmenter, got {type(augmenter).__name__}"
            )
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: Any, label: Any) -> Any:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """Applies one augmenter of aug_list, drawn at random; with probability skip_prob none."""

    def __init__(self, aug_list: Sequence[Any], skip_prob: int = 0):
        super().__init__(skip_prob=skip_prob)
        aug_list = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        for aug in aug_list:
            if not isinstance(aug, DetAugmenter):
                raise InvalidValue("DetRandomSelectAug: aug_list must hold DetAugmenters only")
        self.aug_list, self.skip_prob = aug_list, skip_prob if aug_list else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [a.dumps() for a in self.aug_list]]

    def __call__(self, src: Any, label: Any) -> Any:
        if streams.python().random() < self.skip_prob:
            return src, label
        streams.python().shuffle(self.aug_list)
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Mirrors left and right with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any, label: Any) -> Any:
        if streams.python().random() < self.p:
            src = nd.flip(src, axis=1)
            label[:, [1, 3]] = 1.0 - label[:, [3, 1]]
        return src, label


def _range(name: str, value, where: str) -> Sequence:
    if isinstance(value, (tuple, list)):
        return value
    if not isinstance(value, Number):
        raise InvalidType(f"{where}: {name} must be a number or a range, got {value!r}")
    logging.info("Using fixed %s: %s in %s", name.replace("_", " "), value, where)
    return (value, value)


def _areas(boxes: np.ndarray) -> np.ndarray:
    """Of rows (xmin, ymin, xmax, ymax, ...)."""
    return np.maximum(0, boxes[:, 3] - boxes[:, 1]) * np.maximum(0, boxes[:, 2] - boxes[:, 0])


class _RandomFrame(DetAugmenter):
    """A rectangle of random area and aspect ratio around or inside the image."""

    def __init__(
        self, aspect_ratio_range: Any, area_range: Any, max_attempts: int, **described_too: Any
    ):
        where = type(self).__name__
        self.aspect_ratio_range = _range("aspect_ratio_range", aspect_ratio_range, where)
        self.area_range = _range("area_range", area_range, where)
        super().__init__(
            aspect_ratio_range=self.aspect_ratio_range,
            area_range=self.area_range,
            max_attempts=max_attempts,
            **described_too,
        )
        self.max_attempts = max_attempts
        (low, high), (narrow, wide) = self.area_range, self.aspect_ratio_range
        self.enabled = False
        if high <= self.least_area or low > high:
            warnings.warn(f"Skip {where} due to invalid area_range: {area_range}", stacklevel=3)
        elif narrow > wide or narrow <= 0:
            warnings.warn(
                f"Skip {where} due to invalid aspect_ratio_range: {aspect_ratio_range}",
                stacklevel=3,
            )
        else:
            self.enabled = True

    least_area = 0.0


class DetRandomCropAug(_RandomFrame):
    """Crops a random region that covers enough of the objects.

    Args:
        min_object_covered: the crop must cover more than this fraction of each object that it
            intersects.
        aspect_ratio_range: of the crop's width / height.
        area_range: of the crop's area relative to the image's.
        min_eject_coverage: objects covered by less are removed.
        max_attempts: draws before the image is returned unchanged.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ):
        super().__init__(
            aspect_ratio_range,
            area_range,
            max_attempts,
            min_object_covered=min_object_covered,
            min_eject_coverage=min_eject_coverage,
        )
        self.min_object_covered = min_object_covered
        self.min_eject_coverage = min_eject_coverage

    def __call__(self, src: Any, label: Any) -> Any:
        found = self._proposal(label, src.shape[0], src.shape[1])
        if found is None:
            return src, label
        x, y, w, h, label = found
        return fixed_crop(src, x, y, w, h, None), label

    def _covers(self, label, x, y, w, h, width, height) -> bool:
        """Does the crop satisfy min_object_covered?"""
        if w * h < SMALLEST_PIXELS:
            return False
        boxes = label[:, 1:5]
        areas = _areas(boxes)
        large = areas * width * height > SMALLEST_PIXELS
        if not large.any():
            return False
        low = np.array([x / width, y / height], boxes.dtype)
        high = np.array([(x + w) / width, (y + h) / height], boxes.dtype)
        intersection = np.concatenate(
            [np.maximum(boxes[large, :2], low), np.minimum(boxes[large, 2:], high)], axis=1
        )
        shares = _areas(intersection) / areas[large]
        shares = shares[shares > 0]
        return shares.size > 0 and bool(shares.min() > self.min_object_covered)

    def _moved(self, label, x, y, w, h, width, height):
        """The objects in coordinates relative to the crop; None if none is left."""
        left, top, share_w, share_h = x / width, y / height, w / width, h / height
        out = label.copy()
        out[:, (1, 3)] = (out[:, (1, 3)] - left) / share_w
        out[:, (2, 4)] = (out[:, (2, 4)] - top) / share_h
        out[:, 1:5] = np.clip(out[:, 1:5], 0, 1)
        coverage = _areas(out[:, 1:5]) * share_w * share_h / _areas(label[:, 1:5])
        kept = (out[:, 3] > out[:, 1]) & (out[:, 4] > out[:, 2])
        kept &= coverage > self.min_eject_coverage
        return out[kept] if kept.any() else None

    def _proposal(self, label, height, width):
        """(x, y, width, height, label) of a crop, in pixels; None if no draw fits."""
        if not self.enabled or height <= 0 or width <= 0:
            return None
        least, most = (share * height * width for share in self.area_range)
        for _ in range(self.max_attempts):
            ratio = streams.python().uniform(*self.aspect_ratio_range)
            if ratio <= 0:
                continue
            h, highest = (int(round(math.sqrt(area / ratio))) for area in (least, most))
            if round(highest * ratio) > width:
                highest = int((width + 0.4999999) / ratio)
            highest = min(highest, height)
            h = min(h, highest)
            if h < highest:
                h = streams.python().randint(h, highest)
            w = int(round(h * ratio))
            if w * h < least:  # rounding
                h += 1
                w = int(round(h * ratio))
            if w * h > most:
                h -= 1
                w = int(round(h * ratio))
            if not (least <= w * h <= most and 0 <= w <= width and 0 <= h <= height):
                continue
            y = streams.python().randint(0, max(0, height - h))
            x = streams.python().randint(0, max(0, width - w))
            if self._covers(label, x, y, w, h, width, height):
                moved = self._moved(label, x, y, w, h, width, height)
                if moved is not None:
                    return x, y, w, h, moved
        return None


class DetRandomPadAug(_RandomFrame):
    """Places the image at a random position in a larger one.

    Args:
        aspect_ratio_range: of width / height of the larger image.
        area_range: of its area relative to the image's, above 1.
        max_attempts: draws before the image is returned unchanged.
        pad_val: colour of the margin, red, green, blue.
    """

    least_area = 1.0

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: int | Sequence[int] = (128, 128, 128),
    ):
        colour = (pad_val,) * 3 if isinstance(pad_val, int) else pad_val
        super().__init__(aspect_ratio_range, area_range, max_attempts, pad_val=colour)
        self.pad_val = pad_val

    def __call__(self, src: Any, label: Any) -> Any:
        height, width = src.shape[:2]
        found = self._proposal(height, width)
        if found is None:
            return src, label
        x, y, w, h = found
        out = label.copy()
        out[:, (1, 3)] = (out[:, (1, 3)] * width + x) / w
        out[:, (2, 4)] = (out[:, (2, 4)] * height + y) / h
        margins = (y, h - y - height, x, w - x - width)
        return copyMakeBorder(src, *margins, 0, values=self.pad_val), out

    def _proposal(self, height, width):
        """(x, y, width, height): the position in the larger image, and that image's size; None if
        no draw fits."""
        if not self.enabled or height <= 0 or width <= 0:
            return None
        least, most = (share * height * width for share in self.area_range)
        for _ in range(self.max_attempts):
            ratio = streams.python().uniform(*self.aspect_ratio_range)
            if ratio <= 0:
                continue
            h, highest = (int(round(math.sqrt(area / ratio))) for area in (least, most))
            if round(h * ratio) < width:
                h = int((width + 0.499999) / ratio)
            h = min(max(h, height), highest)
            if h < highest:
                h = streams.python().randint(h, highest)
            w = int(round(h * ratio))
            if h - height < SMALLEST_PIXELS or w - width < SMALLEST_PIXELS:
                continue
            y = streams.python().randint(0, max(0, h - height))
            x = streams.python().randint(0, max(0, w - width))
            return x, y, w, h
        return None


def CreateMultiRandCropAugmenter(  # noqa: N802 - MXNet's name
    min_object_covered: float = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: float = 0.3,
    max_attempts: int = 50,
    skip_prob: int = 0,
) -> DetRandomSelectAug:
    """A choice among several DetRandomCropAug: each parameter is one value for all, or a list."""
    columns = [
        value if isinstance(value, list) else [value]
        for value in (
            min_object_covered,
            aspect_ratio_range,
            area_range,
            min_eject_coverage,
            max_attempts,
        )
    ]
    n = max(map(len, columns))
    if any(len(c) not in (1, n) for c in columns):
        raise InvalidValue(
            "CreateMultiRandCropAugmenter: all lists must have one length, got"
            f" {', '.join(str(len(c)) for c in columns)}"
        )
    rows = zip(*(c * n if len(c) == 1 else c for c in columns))
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in rows], skip_prob=skip_prob)


def CreateDetAugmenter(  # noqa: N802 - MXNet's name
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: Any = 0,
    rand_pad: int = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: float = 0.3,
    max_attempts: int = 50,
    pad_val: Sequence[int] = (127, 127, 127),
) -> list[DetAugmenter]:
    """The usual augmenters for detection; the result has data_shape; the aspect ratio is not kept.

    Args:
        data_shape: (channels, height, width).
        resize: length of the shorter edge, in pixels; applied first.
        rand_crop, rand_pad, rand_gray: their probabilities. rand_mirror: with probability 1/2.
        min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts: see
            DetRandomCropAug, DetRandomPadAug; lists make several crop augmenters to choose from.
        pad_val: colour of the margin.
        The others as of CreateAugmenter.
    """
    found: list[DetAugmenter] = []
    if resize > 0:
        found.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        crop = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage)
        found.append(CreateMultiRandCropAugmenter(*crop, max_attempts, skip_prob=1 - rand_crop))
    if rand_mirror > 0:
        found.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        found.append(DetRandomSelectAug([pad], 1 - rand_pad))
    found.append(DetBorrowAug(ForceResizeAug((data_shape[2], data_shape[1]), inter_method)))
    colours = colour_augmenters(
        brightness, contrast, saturation, hue, pca_noise, rand_gray, mean, std
    )
    return found + [DetBorrowAug(augmenter) for augmenter in colours]
