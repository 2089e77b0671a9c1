"""ImageRecordIter: batches of the images in record files, decoded, augmented and normalised in
threads."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...engine import current_context, lib
from ...engine._core import ffi
from ...engine.error import InvalidValue, MXNetError, compose
from ...kernels.record import DTYPES, REQUIRED
from ...kernels.spec import spec
from ...ndarray import NDArray, codec, serialization
from ...ndarray.ndarray import empty_like_spec, from_memory
from .. import recordio
from ..sampler import host_generator
from .augmentation import DRAWS, Augmentation, Draws, address, run, with_rows
from .image_list import parse_line
from .options import option, read, shows
from .records import Order, Records
from .source import MXDataIter, Sample, positive, shape_of

OUT_DTYPES = ("float32", "uint8", "int8")
CHANNELS = (1, 3)
REDUCE_MARGIN = 2  # a JPEG is decoded at a reduced size while it stays this much larger


@dataclasses.dataclass
class Reading:
    """Which records are read, and how batches are formed."""

    path_imglist: str = option("", "list file (.lst) with other labels for the records' ids")
    path_imgrec: str = option("", "record file (.rec), or a folder of them")
    path_imgidx: str = option("", "index file (.idx); without, the records are counted first")
    label_width: int = option(1, "numbers in a label")
    data_shape: tuple = option(REQUIRED, "(channels, height, width) of an image; 1 or 3 channels")
    batch_size: int = option(REQUIRED, "images in a batch")
    preprocess_threads: int = option(4, "threads that decode and augment; at most one a core")
    verbose: bool = option(True, "accepted, nothing is printed")
    num_parts: int = option(1, "give only one of so many equal parts of the records")
    part_index: int = option(0, "which part")
    device_id: int = option(0, "accepted: batches are in the memory of the CPU")
    shuffle_chunk_size: int = option(0, "accepted: shuffling is over all records")
    shuffle_chunk_seed: int = option(0, "added to the seed of the order")
    seed_aug: int | None = option(None, "seed of the augmentations; None: mx.random.seed's stream")
    shuffle: bool = option(False, "random order, another one each epoch")
    seed: int = option(0, "seed of the order")
    round_batch: bool = option(
        True, "fill a short last batch from the next epoch; False: with zeros"
    )
    prefetch_buffer: int = option(4, "batches made ahead")
    ctx: str = option("gpu", "accepted: batches are in the memory of the CPU")
    dtype: str | None = option(None, "of the images: float32, uint8 or int8; None: float32")
    data_name: str = option("data", "name in provide_data")
    label_name: str = option("softmax_label", "name in provide_label")

    def check(self, where: str) -> None:
        if not self.path_imgrec:
            raise InvalidValue(f"{where}: path_imgrec must name a record file")
        self.data_shape = shape_of(self.data_shape, f"{where}: data_shape")
        if len(self.data_shape) != 3 or self.data_shape[0] not in CHANNELS:
            raise InvalidValue(
                f"{where}: data_shape must be (channels, height, width) with 1 or 3 channels, got"
                f" {self.data_shape}"
            )
        self.batch_size = positive(self.batch_size, f"{where}: batch_size")
        if not 0 <= self.part_index < self.num_parts:
            raise InvalidValue(
                f"{where}: part_index must be in [0, {self.num_parts}), got {self.part_index}"
            )
        if self.dtype in (None, "None"):
            self.dtype = "float32"
        if str(self.dtype) not in OUT_DTYPES:
            name = np.dtype(self.dtype).name
            if name not in OUT_DTYPES:
                raise InvalidValue(
                    f"{where}: dtype must be one of {', '.join(OUT_DTYPES)}, got {name}"
                )
            self.dtype = name


@dataclasses.dataclass
class Scaling:
    """Normalisation of bytes: (x - mean) * scale / std."""

    mean_img: str = option(
        "", "file of the mean image, an array (C, H, W) as nd.save writes it; made if it is missing"
    )
    mean_r: float = option(0.0, "subtracted from red")
    mean_g: float = option(0.0, "subtracted from green")
    mean_b: float = option(0.0, "subtracted from blue")
    mean_a: float = option(0.0, "accepted: images have no fourth channel")
    std_r: float = option(1.0, "red is divided by it")
    std_g: float = option(1.0, "green is divided by it")
    std_b: float = option(1.0, "blue is divided by it")
    std_a: float = option(1.0, "accepted: images have no fourth channel")
    scale: float = option(1.0, "all values are multiplied by it")

    mean_image: np.ndarray | None = dataclasses.field(default=None, init=False)

    def check(self, where: str) -> None:
        if 0 in (self.std_r, self.std_g, self.std_b):
            raise InvalidValue(f"{where}: std_r, std_g and std_b must not be 0")

    def place(
        self, image: Any, out: Any, mirror: bool, contrast: float = 1.0, light: float = 0.0
    ) -> None:
        """Writes ((x - mean) * contrast + light) * scale / std of an image (H, W, C) into its slot
        (C, H, W) of a batch."""
        stds = (self.std_r, self.std_g, self.std_b)
        means = (self.mean_r, self.mean_g, self.mean_b)
        factors = [contrast * self.scale / std for std in stds]
        shifts = [light * self.scale / std for std in stds]
        place_image(image, out, mirror, means, factors, shifts, self.mean_image)


@dataclasses.dataclass
class Normalisation(Scaling):
    """Normalisation of bytes: ((x - mean) * contrast + illumination) * scale / std."""

    mirror: bool = option(False, "mirror left and right")
    rand_mirror: bool = option(False, "mirror left and right with probability 1/2")
    max_random_contrast: float = option(0.0, "times a random factor in 1 +- v")
    max_random_illumination: float = option(0.0, "plus a random number in +- v")

    def place_at_random(self, image: np.ndarray, out: np.ndarray, draws: Draws) -> None:
        """Writes an image (H, W, C) into its slot (C, H, W) of a batch."""
        mirror = self.mirror or (self.rand_mirror and draws.uniform(0, 1) < 0.5)
        contrast = draws.uniform(1 - self.max_random_contrast, 1 + self.max_random_contrast)
        light = draws.uniform(-self.max_random_illumination, self.max_random_illumination)
        self.place(image, out, mirror, contrast, light)


PLAIN = Normalisation()


def place_image(
    image: Any,
    out: Any,
    mirror: bool,
    means: Any,
    factors: Any,
    shifts: Any,
    mean_image: Any = None,
) -> None:
    """Writes (x - mean) * factor + shift of an image (H, W, C) into out (C, H, W)."""
    height, width, channels = image.shape
    image = with_rows(image)
    params = ffi.new(
        "plk_place *",
        {
            "height": height,
            "width": width,
            "row_bytes": image.strides[0],
            "n_channels": channels,
            "out_dtype": DTYPES.index(out.dtype.name),
            "mirror": mirror,
            "mean": means,
            "factor": factors,
            "shift": shifts,
            "mean_image": mean_image.ctypes.data if mean_image is not None else 0,
        },
    )
    run(lib.plk_place_run, params, image, address(out))


def image_of(record: Any, color: int, resize: int, where: str) -> Any:
    """(header, uint8 image (H, W, C), its size before the decoder reduced it) of a record."""
    header, data = recordio.unpack(record)
    full_size, reduce_to = None, (0, 0)
    if resize > 0:
        full_size = codec.jpeg_size(data)
        if full_size is not None:
            shorter = min(full_size)
            height, width = full_size
            reduce_to = (
                -(-REDUCE_MARGIN * resize * height // shorter),
                -(-REDUCE_MARGIN * resize * width // shorter),
            )
    try:
        image = codec.decode(data, color, reduce_to)
    except MXNetError as error:
        raise MXNetError(f"{error}\n  at: record {header.id} in {where}") from None
    return header, image if image.ndim == 3 else image[..., None], full_size


class _Batch:
    """An unfinished batch: its arrays and the parts that threads work on."""

    def __init__(self, data: NDArray, label: np.ndarray, pad: int, index: np.ndarray, before: Any):
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.before = before  # the state of its source
        self.parts: list[Future] = []


class BatchSource:
    """Batches of records, prepared in advance by threads.

    fill(number, image, label, draws) -> id: writes the image (C, H, W) and the flat label of a
    record into a batch, on any thread.
    """

    def __init__(self, reading: Reading, records: Records, label_shape: Any, fill: Any):
        self._reading, self._fill, self._label_shape = reading, fill, label_shape
        self._spec = spec(
            (reading.batch_size, *reading.data_shape), str(reading.dtype), current_context()
        )
        self._order = Order(
            len(records),
            reading.batch_size,
            reading.round_batch,
            reading.shuffle,
            (reading.seed + reading.shuffle_chunk_seed) % 2**63,
        )
        seed = reading.seed_aug
        self._rng = host_generator() if seed is None else np.random.default_rng(seed % 2**63)
        self._n_threads = max(1, min(reading.preprocess_threads, len(os.sched_getaffinity(0))))
        self._pool = ThreadPoolExecutor(self._n_threads, "plait-images")
        self._ahead: deque[_Batch] = deque()

    def read(self) -> Sample | None:
        self._make_ahead()
        if not self._ahead:
            return None
        batch = self._ahead.popleft()
        self._make_ahead()
        for part in batch.parts:
            part.result()
        label = batch.label.reshape(-1, *self._label_shape)
        return Sample(batch.data, from_memory(label), batch.pad, batch.index)

    def state_dict(self) -> dict:
        return self._ahead[0].before if self._ahead else self._place()

    def _place(self) -> dict:
        return {"order": self._order.state_dict(), "draws": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict) -> None:
        self._drop()
        self._order.load_state_dict(state["order"])
        self._rng.bit_generator.state = state["draws"]
        self._make_ahead()

    def rewind(self) -> None:
        dropped = self._drop()
        self._order.rewind(whole=dropped)
        self._make_ahead()

    def _drop(self) -> bool:
        """Drops the prepared batches. Returns whether there were any."""
        dropped = [part for batch in self._ahead for part in batch.parts]
        for part in dropped:
            part.cancel()
        for part in dropped:
            if not part.cancelled():
                part.exception()
        self._ahead.clear()
        return bool(dropped)

    def _make_ahead(self) -> None:
        while len(self._ahead) < max(1, self._reading.prefetch_buffer):
            before = self._place()
            found = self._order.next()
            if found is None:
                return
            self._ahead.append(self._begun(*found, before))

    def _begun(self, numbers: np.ndarray, pad: int, before: dict) -> _Batch:
        n, size = len(numbers), self._reading.batch_size
        data = empty_like_spec(self._spec)
        images = data._memory()
        images[n:] = 0
        label = np.zeros((size, math.prod(self._label_shape)), np.float32)
        batch = _Batch(data, label, pad, np.zeros(size, np.uint64), before)
        draws = self._rng.random((n, DRAWS))
        for begin in range(0, n, -(-n // self._n_threads)):
            rows = range(begin, min(n, begin + -(-n // self._n_threads)))
            part = self._pool.submit(self._make, batch, images, numbers, draws, rows)
            batch.parts.append(part)
        return batch

    def _make(self, batch, images, numbers, draws, rows) -> None:
        for i in rows:
            batch.index[i] = self._fill(int(numbers[i]), images[i], batch.label[i], Draws(draws[i]))

    def __del__(self):
        if hasattr(self, "_pool"):
            self._pool.shutdown(wait=False, cancel_futures=True)


# ---- images for classification -------------------------------------------------------------------


def labels_of(path: str | PathLike[str]) -> dict[int, np.ndarray]:
    """The labels of a list file (.lst) by record id."""
    found = {}
    with open(path) as lines:
        for n, line in enumerate(lines, 1):
            try:
                number, labels, _ = parse_line(line)
                found[number] = np.array(labels, np.float32)
            except ValueError:
                raise MXNetError(
                    compose(f"image list: line {n} must be id<TAB>label<TAB>path, got {line!r}"),
                ) from None
    return found


class _Filler:
    """Makes one record's image and label."""

    def __init__(
        self,
        where: Any,
        reading: Any,
        augmentation: Any,
        normalisation: Any,
        records: Any,
        labels: Any,
    ):
        self.where, self.reading, self.records, self.labels = where, reading, records, labels
        self.augmentation, self.normalisation = augmentation, normalisation

    def __call__(self, number: int, image: np.ndarray, label: np.ndarray, draws: Draws) -> int:
        reading = self.reading
        color = int(reading.data_shape[0] == 3)
        header, pixels, full_size = image_of(
            self.records[number], color, self.augmentation.resize, self.records.name(number)
        )
        self._put_label(header, label)
        part = self.augmentation.apply(pixels, reading.data_shape, draws, full_size)
        self.normalisation.place_at_random(part, image, draws)
        return header.id

    def _put_label(self, header, label) -> None:
        values = header.label
        if self.labels is not None:
            values = self.labels.get(header.id)
            if values is None:
                raise MXNetError(
                    f"{self.where}: path_imglist has no label of the record {header.id}"
                )
        values = np.atleast_1d(values)
        if len(values) != label.size:
            raise MXNetError(
                f"{self.where}: label_width is {label.size}, but the record {header.id} has"
                f" {len(values)} labels\n  fix: label_width={len(values)}"
            )
        label[...] = values


def _iterator(where, reading, augmentation, normalisation) -> MXDataIter:
    for options in (reading, augmentation, normalisation):
        options.check(where)
    if reading.dtype == "uint8":  # bytes need only mirroring
        normalisation = dataclasses.replace(
            PLAIN, mirror=normalisation.mirror, rand_mirror=normalisation.rand_mirror
        )
    records = Records(
        reading.path_imgrec, reading.path_imgidx, reading.num_parts, reading.part_index
    )
    width = reading.label_width
    labels = labels_of(reading.path_imglist) if reading.path_imglist else None
    if normalisation.mean_img:
        normalisation.mean_image = _mean_image(where, reading, augmentation, normalisation.mean_img)
    fill = _Filler(where, reading, augmentation, normalisation, records, labels)
    source = BatchSource(reading, records, (width,) if width > 1 else (), fill)
    return MXDataIter(source, reading.data_name, reading.label_name)


def mean_image_in(where: Any, path: str | PathLike[str], shape: Any) -> np.ndarray:
    """The mean image of a file, (C, H, W) float32."""
    found = serialization.load(path)
    mean = (list(found.values()) if isinstance(found, dict) else found)[0]
    if mean.shape != shape:
        raise InvalidValue(
            f"{where}: the mean image must have the shape {shape}, got {mean.shape}\n  at: {path}"
        )
    return np.ascontiguousarray(mean.asnumpy(), np.float32)


def _mean_image(where, reading, augmentation, path) -> np.ndarray:
    """The mean image of a file; computed over all records and saved if the file does not exist."""
    if Path(path).exists():
        return mean_image_in(where, path, reading.data_shape)
    plain = dataclasses.replace(
        reading, round_batch=False, shuffle=False, num_parts=1, part_index=0, dtype="float32"
    )
    total, n = np.zeros(reading.data_shape, np.float64), 0
    for batch in _iterator(where, plain, augmentation, Normalisation()):
        whole = reading.batch_size - batch.pad
        total += batch.data[0].asnumpy()[:whole].sum(axis=0, dtype=np.float64)
        n += whole
    mean = (total / n).astype(np.float32)
    serialization.save(path, {"mean_img": from_memory(mean)})
    return mean


@shows(Reading, Augmentation, Normalisation)
def ImageRecordIter(**kwargs: Any) -> MXDataIter:  # noqa: N802 - MXNet's name
    """An iterator over the images of record files: data (batch_size, channels, height, width),
    labels (batch_size,) or (batch_size, label_width).

    Raises: MXNetError when a file is missing or broken, ValueError for a wrong parameter.
    """
    chosen = read("ImageRecordIter", (Reading, Augmentation, Normalisation), kwargs)
    return _iterator("ImageRecordIter", *chosen)


@shows(Reading, Augmentation)
def ImageRecordUInt8Iter(**kwargs: Any) -> MXDataIter:  # noqa: N802 - MXNet's name
    """As ImageRecordIter, but gives the bytes of the images, not normalised."""
    return _whole_numbers("ImageRecordUInt8Iter", "uint8", kwargs)


@shows(Reading, Augmentation)
def ImageRecordInt8Iter(**kwargs: Any) -> MXDataIter:  # noqa: N802 - MXNet's name
    """As ImageRecordIter, but gives int8 values, not normalised; values above 127 are clipped."""
    return _whole_numbers("ImageRecordInt8Iter", "int8", kwargs)


def _whole_numbers(where, dtype, kwargs) -> MXDataIter:
    reading, augmentation = read(where, (Reading, Augmentation), kwargs)
    reading.dtype = dtype
    return _iterator(where, reading, augmentation, Normalisation())


ImageRecordIter_v1 = ImageRecordIter
ImageRecordUInt8Iter_v1 = ImageRecordUInt8Iter
