"""MNISTIter: batches from a pair of IDX files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.error import InvalidValue
from ...kernels.spec import DType
from ...ndarray.ndarray import from_memory
from ...ndarray.saved_state import Stateful
from ..idx import DatasetError, read_idx
from .source import MXDataIter, Sample, parsed, positive, refuse_positional, warn_unknown


def _array(path: str, n_axes: int, argument: str) -> np.ndarray:
    file = Path(path).expanduser()
    try:
        values = read_idx(file)
    except OSError as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(
            f"MNISTIter: {argument}: cannot read {path!r}: {error.strerror}"
        ) from None
    if values.ndim != n_axes:
        raise DatasetError(
            f"MNISTIter: {argument} must have {n_axes} axes, got shape {values.shape}\n  at: {path}"
        )
    return values


class _Images(Stateful):
    """The source: complete batches only, in the same order every epoch."""

    not_state = ("_images", "_labels", "_size")

    def __init__(self, images: Any, labels: Any, batch_size: int):
        self._images, self._labels, self._size, self._at = images, labels, batch_size, 0

    def rewind(self) -> None:
        self._at = 0

    def read(self) -> Sample | None:
        begin, end = self._at, self._at + self._size
        if end > len(self._labels):
            return None
        self._at = end
        data = self._images[begin:end].astype(np.float32) * np.float32(1 / 256)
        label = self._labels[begin:end].astype(np.float32)
        return Sample(from_memory(data), from_memory(label), 0, np.zeros(self._size, np.uint64))


def MNISTIter(  # noqa: N802 - MXNet's name
    *args: Any,
    image: str = "./train-images-idx3-ubyte",
    label: str = "./train-labels-idx1-ubyte",
    batch_size: int = 128,
    shuffle: bool = True,
    flat: bool = False,
    seed: int = 0,
    silent: bool = False,
    num_parts: int = 1,
    part_index: int = 0,
    prefetch_buffer: int = 4,
    ctx: str = "gpu",
    dtype: DType | None = None,
    data_name: str = "data",
    label_name: str = "softmax_label",
    **unknown: Any,
) -> MXDataIter:
    """An iterator over images and labels in IDX files (.gz or not): float32 values in [0, 1).

    Samples of an incomplete last batch are dropped.

    Args:
        shuffle: once, by `seed`. flat: (batch_size, H * W) instead of (batch_size, 1, H, W).
        num_parts, part_index: only one of num_parts equal parts of the samples.
        prefetch_buffer, ctx, input_shape: accepted and ignored.
    Raises: DatasetError (MXNetError) when a file is missing or broken.
    """
    refuse_positional("MNISTIter", args)
    warn_unknown("MNISTIter", unknown.keys() - {"input_shape"})
    if dtype not in (None, "None") and np.dtype(dtype) != np.float32:
        raise InvalidValue(f"MNISTIter: dtype must be float32, got {dtype!r}")
    images, labels = _array(image, 3, "image"), _array(label, 1, "label")
    if len(images) != len(labels):
        raise InvalidValue(
            f"MNISTIter: there must be a label for each image, got {len(images)} images and"
            f" {len(labels)} labels"
        )
    size = positive(batch_size, "MNISTIter: batch_size")
    parts, part = positive(num_parts, "MNISTIter: num_parts"), int(parsed(part_index))
    if not 0 <= part < parts:
        raise InvalidValue(f"MNISTIter: part_index must be in [0, {parts}), got {part}")
    chosen = np.arange(len(labels) * part // parts, len(labels) * (part + 1) // parts)
    if parsed(shuffle):
        np.random.RandomState(int(parsed(seed))).shuffle(chosen)
    if len(chosen) < size:
        raise InvalidValue(
            f"MNISTIter: batch_size={size} is more than the {len(chosen)} images there are"
        )
    height, width = images.shape[1:]
    images = images[chosen].reshape(
        (len(chosen), height * width) if parsed(flat) else (len(chosen), 1, height, width)
    )
    if not parsed(silent):
        shape = (size, *images.shape[1:])
        logging.info(
            "MNISTIter: load %d images, shuffle=%d, shape=%s",
            len(chosen),
            bool(parsed(shuffle)),
            shape,
        )
    return MXDataIter(_Images(images, labels[chosen], size), data_name, label_name)
