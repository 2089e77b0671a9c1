"""ImageIter: batches of images from a record file, a list file or a list, through augmenters."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from numbers import Number
from os import PathLike
from typing import Any

import numpy as np

from ...engine import files
from ...engine.error import InvalidValue, MXNetError
from ...kernels.spec import DType
from ...ndarray import functions as nd
from ...ndarray.creation import array
from ...ndarray.ndarray import from_memory
from ...ndarray.numpy_mode import in_mode
from ...ndarray.saved_state import StateError, copied
from .. import recordio, streams
from ..io.desc import DataBatch, DataIter
from ..io.image_list import parse_line
from .augmenter import CreateAugmenter
from .pixels import imdecode

LABEL_DTYPES = ("int32", "float32", "int64", "float64")
LAST_BATCH = ("pad", "discard", "roll_over")


def read_list(path: str | PathLike[str], dtype: DType) -> dict:
    """A list file (.lst), lines "index<TAB>label<TAB>...<TAB>path" -> {index: (labels, path)}."""
    entries = {}
    with files.reading(path, "image list"), open(path) as lines:
        for n, line in enumerate(lines, 1):
            try:
                index, labels, name = parse_line(line)
                entries[index] = (array(labels, dtype=dtype), name)
            except ValueError:
                raise MXNetError(
                    f"image list: line {n} must be index<TAB>label<TAB>path, got {line!r}\n"
                    f"  at: {path}"
                ) from None
    return entries


def named_list(imglist: list[Any], dtype: DType) -> dict:
    """A list of [label, path], [label, label, ..., path] or [[label, ...], path] by number from
    "1"."""
    entries = {}
    for number, item in enumerate(imglist, 1):
        if len(item) > 2:
            labels = item[:-1]
        else:
            labels = [item[0]] if isinstance(item[0], Number) else item[0]
        entries[str(number)] = (array(labels, dtype=dtype), item[-1])
    return entries


class BrokenImage(MXNetError):
    """An image that cannot be decoded."""


class ImageIter(DataIter):
    """Batches of images, each through a list of augmenters.

    Args:
        batch_size: images in a batch.
        data_shape: (3, height, width) of an image.
        label_width: numbers in a label.
        path_imgrec, path_imgidx: a record file and its index; the index is needed for shuffle and
            num_parts.
        path_imglist, path_root: a list file and the folder of its paths; with path_imgrec: other
            labels for its records.
        imglist: a list of [label(s), path] in place of path_imglist.
        shuffle: a new random order each epoch (from Python's `random`).
        num_parts, part_index: only one of num_parts equal parts.
        aug_list: augmenters; default: CreateAugmenter(data_shape, **kwargs).
        data_name, label_name: names in provide_data and provide_label.
        dtype: of labels given as text or lists.
        last_batch_handle: "pad" fills a short last batch with samples from the start, "discard"
            drops it, "roll_over" keeps it for the next epoch.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: DType = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ):
        super().__init__()
        if not (path_imgrec or path_imglist or isinstance(imglist, list)):
            raise InvalidValue("ImageIter: needs path_imgrec, path_imglist or a list as imglist")
        if dtype not in LABEL_DTYPES:
            raise InvalidValue(f"ImageIter: dtype must be one of {LABEL_DTYPES}, got {dtype!r}")
        if last_batch_handle not in LAST_BATCH:
            raise InvalidValue(
                f"ImageIter: last_batch_handle must be one of {LAST_BATCH}, got"
                f" {last_batch_handle!r}"
            )
        self.check_data_shape(data_shape)
        data_shape = tuple(data_shape)
        self.imgrec: recordio.MXRecordIO | None = None
        self.imgidx: list | None = None
        if path_imgrec and path_imgidx:
            self.imgrec = indexed = recordio.MXIndexedRecordIO(path_imgidx, path_imgrec, "r")
            self.imgidx = list(indexed.keys)
        elif path_imgrec:
            self.imgrec = recordio.MXRecordIO(path_imgrec, "r")
        self.imglist: dict[Any, tuple[np.ndarray, str]] | None = None
        if path_imglist:
            self.imglist = read_list(path_imglist, dtype)
        elif isinstance(imglist, list):
            self.imglist = named_list(imglist, dtype)
        self.path_root = path_root
        self.batch_size, self.data_shape, self.label_width = batch_size, data_shape, label_width
        self.provide_data: list[tuple[str, tuple[int, ...]]] = [
            (data_name, (batch_size, *data_shape))
        ]
        label_shape = (label_width,) if label_width > 1 else ()
        self.provide_label: list[tuple[str, tuple[int, ...]]] = [
            (label_name, (batch_size, *label_shape))
        ]
        self.shuffle = shuffle
        self.seq = self._sequence(path_imgidx, num_parts, part_index)
        self.auglist: Sequence[Callable[..., Any]]
        self.auglist = CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.cur = 0
        self.last_batch_handle = last_batch_handle
        self._kept: tuple | None = None  # (data, label, how many) of a batch that rolls over
        self._exhausted = False
        self.reset()

    def _sequence(self, path_imgidx, num_parts, part_index):
        """The keys of the images in order; None: the order of the record file."""
        if self.imgrec is None:
            seq = list(self._listed)
        elif self.shuffle or num_parts > 1 or path_imgidx:
            if self.imgidx is None:
                raise InvalidValue("ImageIter: shuffle and num_parts need path_imgidx")
            seq = self.imgidx
        else:
            return None
        if num_parts > 1:
            if not 0 <= part_index < num_parts:
                raise InvalidValue(
                    f"ImageIter: part_index must be in [0, {num_parts}), got {part_index}"
                )
            n = len(seq) // num_parts
            seq = seq[part_index * n : (part_index + 1) * n]
        return seq

    @property
    def num_image(self) -> int | None:
        """Images in an epoch; None: the record file says."""
        return None if self.seq is None else len(self.seq)

    @property
    def _records(self) -> recordio.MXRecordIO:
        """The record file, which is there where no list gives the images."""
        assert self.imgrec is not None
        return self.imgrec

    @property
    def _listed(self) -> dict[Any, tuple[np.ndarray, str]]:
        """The list of images, which is there where no record file gives them."""
        assert self.imglist is not None
        return self.imglist

    # ---- epochs ----------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        at = self._records.tell() if self.seq is None else None
        kept = {"seq": copied(self.seq), "cur": self.cur, "kept": copied(self._kept), "at": at}
        return kept | {"exhausted": self._exhausted}

    def load_state_dict(self, state: Any) -> None:
        if sorted(state["seq"] or ()) != sorted(self.seq or ()):
            raise StateError("ImageIter: the saved position is for different images")
        self.seq, self.cur, self._kept = state["seq"], state["cur"], state["kept"]
        self._exhausted = state["exhausted"]
        if self.seq is None:
            self._records._go_to(state["at"])

    def reset(self) -> None:
        """Begins an epoch, with the samples that rolled over first."""
        if self.seq is not None and self.shuffle:
            streams.python().shuffle(self.seq)
        if self._kept is None:
            self._rewind()

    def hard_reset(self) -> None:
        """Begins an epoch and drops the samples that rolled over."""
        self._kept = None
        if self.seq is not None and self.shuffle:
            streams.python().shuffle(self.seq)
        self._rewind()

    def _rewind(self):
        if self.imgrec is not None:
            self.imgrec.reset()
        self.cur, self._exhausted = 0, False

    def next_sample(self) -> Any:
        """(label, encoded image) of the next image. Raises StopIteration at the end."""
        if self._exhausted:
            raise StopIteration
        if self.seq is None:
            record = self._records.read()
            if record is None:
                if self.last_batch_handle != "discard":
                    self._records.reset()
                raise StopIteration
            header, data = recordio.unpack(record)
            return header.label, data
        if self.cur >= len(self.seq):
            if self.last_batch_handle != "discard":
                self.cur = 0
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is None:
            label, name = self._listed[key]
            return label, self.read_image(name)
        assert isinstance(self.imgrec, recordio.MXIndexedRecordIO)  # keys come from its index
        header, data = recordio.unpack(self.imgrec.read_idx(key))
        return (header.label if self.imglist is None else self.imglist[key][0]), data

    # ---- batches ---------------------------------------------------------------------------------

    def _batchify(self, batch_data: np.ndarray, batch_label: np.ndarray, start: int = 0) -> int:
        """Fills a batch from entry `start` on. Returns the number of entries filled; raises
        StopIteration if that is 0."""
        i = start
        while i < self.batch_size:
            try:
                label, encoded = self.next_sample()
            except StopIteration:
                if not i:
                    raise
                break
            data = self.imdecode(encoded)
            try:
                self.check_valid_image(data)
            except RuntimeError as error:
                logging.debug("Invalid image, skipping: %s", error)
                continue
            image = self.postprocess_data(self.augmentation_transform(data))
            batch_data[i] = image.asnumpy()
            batch_label[i] = _label_values(label, batch_label.shape[1:])
            i += 1
        return i

    def _empty_batch(self):
        return (
            np.zeros(self.provide_data[0][1], np.float32),
            np.zeros(self.provide_label[0][1], np.float32),
        )

    def next(self) -> DataBatch:
        if self._kept is not None:
            data, label, n = self._kept
        else:
            data, label = self._empty_batch()
            n = self._batchify(data, label)
        pad = self.batch_size - n
        if pad:
            if self.last_batch_handle == "discard":
                raise StopIteration
            if self.last_batch_handle == "roll_over" and self._kept is None:
                self._kept = data, label, n
                raise StopIteration
            self._fill_up(data, label, n)
            self._exhausted = self.last_batch_handle == "pad"
            self._kept = None
        arrays = [in_mode(from_memory(values)) for values in (data, label)]
        return DataBatch(arrays[:1], arrays[1:], pad=pad)

    def _fill_up(self, data, label, n) -> None:
        """Fills the rest of a batch with images from the start, repeatedly if there are few."""
        before = -1
        while before < n < self.batch_size:
            before, n = n, self._batchify(data, label, n)

    # ---- steps that a subclass may replace -------------------------------------------------------

    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raises ValueError unless data_shape is (3, height, width)."""
        if len(data_shape) != 3:
            raise InvalidValue("data_shape should have length 3, with dimensions CxHxW")
        if data_shape[0] != 3:
            raise InvalidValue("This iterator expects inputs to have 3 channels.")

    def check_valid_image(self, data: Any) -> None:
        """Raises RuntimeError unless data holds an image."""
        if len(data[0].shape) == 0:
            raise MXNetError("Data shape is wrong")

    def imdecode(self, s: Any) -> Any:
        """Encoded bytes -> (H, W, C) uint8. Raises MXNetError that names the image."""
        try:
            return imdecode(s)
        except (MXNetError, ValueError) as error:
            raise BrokenImage(f"Broken image {self._place()}, {error}") from None

    def _place(self) -> str:
        if self.seq is None:
            return f"in {self._records.uri}"
        key = self.seq[(self.cur % len(self.seq)) - 1]
        return f"filename: {self.imglist[key][1]}" if self.imglist else f"index: {key}"

    def read_image(self, fname: str) -> bytes:
        """The bytes of an image file in path_root."""
        path = os.path.join(self.path_root or "", fname)
        return files.read(path, type(self).__name__, "is path_root the folder of the images?")

    def augmentation_transform(self, data: Any) -> Any:
        """Applies all augmenters to the image."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """(H, W, C) -> (C, H, W)."""
        return nd.transpose(datum, axes=(2, 0, 1))


def _label_values(label, shape) -> np.ndarray:
    values = np.asarray(label.asnumpy() if hasattr(label, "asnumpy") else label, np.float32)
    n = int(np.prod(shape))
    if values.size != n:
        raise InvalidValue(
            f"ImageIter: label_width is {n}, but an image has {values.size} labels: {values}"
        )
    return values.reshape(shape)
