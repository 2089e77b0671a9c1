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
from ...ndarray.ndarray import from_memory

AUGMENTS = ("none", "shift", "photo")


@dataclass
class Pictures:
    """A data set of pictures for training and validation.

    train, valid: items are (uint8 (H, W, C), float32 number of the class).
    resize: pixels of the shorter edge before the centre is cut out. mean, std: of a training
        picture's channels, in [0, 1]. workers: processes that are worth having. skipped: lines
        about files that cannot be read. others: how many files have which other endings. digest:
        differs for other files, classes or divisions.
    """

    name: str
    classes: Sequence[str]
    train: Dataset
    valid: Dataset
    shape: tuple[int, int, int]
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str
    workers: int = 0
    skipped: list[str] = field(default_factory=list)
    others: str = ""


def rounded(values: Any) -> tuple[float, ...]:
    """Numbers with the four digits that scaling needs."""
    return tuple(round(float(v), 4) for v in values)


class Prepare:
    """Makes pictures of one size from pictures of any, in two parts: one that is always the same,
    whose result may be kept, and one that is random.

    size: pixels of both edges of the result. resize: of the shorter edge before the centre is cut
    out. augment: "none", "shift" by up to an eighth, or "photo": random crops of at least half the
    area, mirrored half of the time.
    """

    def __init__(self, size: int, resize: int, augment: str = "none"):
        self.size, self.augment = size, augment
        # crops of half the area, 0.7 of an edge, need not be enlarged
        self.edge = 3 * size // 2 if augment == "photo" else max(resize, size)
        # (height, width) that suffice of a JPEG; otherwise decoded in full, as by Model.read
        self.enough = (self.edge, self.edge) if augment == "photo" else (0, 0)
        self._resize = Resize(self.edge, keep_ratio=True)
        self._centre = CenterCrop(size)
        self._crop = RandomResizedCrop(size, scale=(0.5, 1.0))
        self._mirror = RandomFlipLeftRight()

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        """picture: uint8 (H, W, C). Returns uint8 (size, size, C)."""
        return self.random(self.fixed(picture))

    def fixed(self, picture: np.ndarray) -> np.ndarray:
        """The part that is always the same: uint8 (H, W, C) -> uint8, no larger than is needed."""
        x, shorter = from_memory(np.ascontiguousarray(picture)), min(picture.shape[:2])
        if shorter > self.edge or (shorter < self.edge and self.augment != "photo"):
            x = self._resize(x)
        return (x if self.augment == "photo" else self._centre(x)).asnumpy()

    def random(self, picture: np.ndarray) -> np.ndarray:
        """The random part, of a result of `fixed`: uint8 (size, size, C)."""
        if self.augment == "photo":
            return self._mirror(self._crop(from_memory(picture))).asnumpy()
        return self._shifted(picture) if self.augment == "shift" else picture

    def _shifted(self, picture: np.ndarray) -> np.ndarray:
        """A random place of the picture with a border of repeated pixels, an eighth wide."""
        border, rng = max(1, self.size // 8), host_generator()
        padded = np.pad(picture, ((border, border), (border, border), (0, 0)), mode="edge")
        top, left = rng.integers(2 * border + 1, size=2).tolist()
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
