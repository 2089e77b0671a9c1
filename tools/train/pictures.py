"""What training gets from a data set: pictures as bytes, in memory or from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...data.sampler import host_generator
from ...gluon.data import Dataset
from ...gluon.data.vision.transforms import (
    CenterCrop,
    RandomFlipLeftRight,
    RandomResizedCrop,
    Resize,
)
from ...ndarray.ndarray import NDArray, from_memory

AUGMENTS = ("none", "shift", "photo")


@dataclass
class Pictures:
    """A data set of pictures for training and validation.

    train, valid: items are (uint8 (H, W, C), float32 number of the class).
    resize: pixels of the shorter edge before the centre is cut out. mean, std: of a training
        picture's channels, in [0, 1]. workers: processes that are worth having. skipped: lines
        about files that cannot be read.
    """

    name: str
    classes: Sequence[str]
    train: Dataset
    valid: Dataset
    shape: tuple[int, int, int]
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    workers: int = 0
    skipped: list[str] = field(default_factory=list)


def rounded(values: Any) -> tuple[float, ...]:
    """Numbers with the four digits that scaling needs."""
    return tuple(round(float(v), 4) for v in values)


class Prepare:
    """Makes pictures of one size from pictures of any.

    size: pixels of both edges of the result. resize: of the shorter edge before the crop.
    augment: "none" cuts out the centre, "shift" a random place, "photo" a random crop of at least
        half the area, mirrored half of the time.
    """

    def __init__(self, size: int, resize: int, augment: str = "none"):
        self.size, self.augment = size, augment
        # below this many pixels, a decoder may not shrink a picture
        self.enough = 2 * size if augment == "photo" else resize
        self._resize = Resize(max(resize, size), keep_ratio=True)
        self._centre = CenterCrop(size)
        self._crop = RandomResizedCrop(size, scale=(0.5, 1.0))
        self._mirror = RandomFlipLeftRight()

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        """picture: uint8 (H, W, C). Returns uint8 (size, size, C)."""
        x = from_memory(np.ascontiguousarray(picture))
        if self.augment == "photo":
            return self._mirror(self._crop(x)).asnumpy()
        if min(picture.shape[:2]) != self._resize._size[0]:
            x = self._resize(x)
        return self._centre(x).asnumpy() if self.augment == "none" else self._shifted(x)

    def _shifted(self, x: NDArray) -> np.ndarray:
        """A random place of the picture with a border of repeated pixels, an eighth wide."""
        border = max(1, self.size // 8)
        padded = np.pad(x.asnumpy(), ((border, border), (border, border), (0, 0)), mode="edge")
        rng = host_generator()
        top = int(rng.integers(padded.shape[0] - self.size + 1))
        left = int(rng.integers(padded.shape[1] - self.size + 1))
        return np.ascontiguousarray(padded[top : top + self.size, left : left + self.size])


class Prepared(Dataset):
    """Items (prepare(picture), label) of a data set of (picture, label)."""

    def __init__(self, pictures: Any, prepare: Prepare):
        self._pictures, self._prepare = pictures, prepare

    def __len__(self):
        return len(self._pictures)

    def __getitem__(self, idx):
        picture, label = self._pictures[idx]
        return self._prepare(picture), label
