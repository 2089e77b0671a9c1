"""Data sets by name: arrays of small pictures, in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.idx import DatasetError
from ...gluon.data import ArrayDataset, Dataset
from ...gluon.data.vision import MNIST, Digits, FashionMNIST
from .pictures import Pictures, Prepare, Prepared, rounded

NUMERALS = tuple("0123456789")
CLOTHES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


@dataclass(frozen=True)
class Named:
    """A data set with a name. make(train=bool) reads it. epochs: a sensible number of passes."""

    make: Callable[..., Any]
    classes: tuple[str, ...]
    epochs: int


DATASETS = {
    "digits": Named(Digits, NUMERALS, 15),
    "mnist": Named(MNIST, NUMERALS, 3),
    "fashion-mnist": Named(FashionMNIST, CLOTHES, 3),
}


def is_installed(name: str) -> bool:
    """Are the files of a data set on this machine?"""
    try:
        DATASETS[name].make(train=False)
    except DatasetError:
        return False
    return True


def load(name: str, size: int | None = None, augment: str = "none") -> Pictures:
    """A data set by name. size: of the pictures, None: as they are. augment: as for Prepare."""
    named = DATASETS[name]
    train, valid = named.make(train=True), named.make(train=False)
    height, _, channels = train._data.shape[1:]
    size = size or height

    def prepared(images: Any, augment: str) -> Dataset:
        pictures = ArrayDataset(images._data, images._label.astype(np.float32))
        if size == height and augment == "none":
            return pictures
        return Prepared(pictures, Prepare(size, size, augment))

    return Pictures(
        name,
        named.classes,
        prepared(train, augment),
        prepared(valid, "none"),
        (size, size, channels),
        size,
        rounded([np.mean(train._data) / 255]),
        rounded([np.std(train._data) / 255]),
        name,
    )
