"""ImageDetRecordIter: batches of images in record files with their objects, for detection."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ...engine.error import InvalidValue, MXNetError
from ...kernels.ops.image_resize import resized
from .. import recordio
from .augmentation import AUTO, RANDOM, Draws, as_bytes, resize_bytes, shifted_hls
from .image_record import BatchSource, Reading, Scaling, image_of, labels_of, mean_image_in
from .options import option, read, shows
from .records import Records
from .source import MXDataIter

FACTS = 4  # before a label: channels, height and width of the image, length of the label
OBJECT_NUMBERS = 5  # class and box
RESIZE_MODES = ("force", "shrink", "fit")
EMIT_MODES = ("center", "overlap")


@dataclasses.dataclass
class DetReading(Reading):
    """Which records are read, and how batches are formed."""

    path_imgrec: str = option("./data/imgrec.rec", "record file (.rec), or a folder of them")
    label_width: int = option(-1, "numbers in a label; -1: as many as it has")
    label_pad_width: int = option(0, "labels are filled up to this length; 0: to the longest one")
    label_pad_value: float = option(-1.0, "what labels are filled up with")
    aug_seq: str = option("det_aug_default", "accepted: the sequence of this list")


@dataclasses.dataclass
class DetAugmentation:
    """Augmentations of an image and its objects, in this order."""

    resize: int = option(-1, "length of the shorter edge in pixels, before all else; -1: as it is")
    rand_crop_prob: float = option(0.0, "probability of a crop")
    min_crop_scales: tuple = option((0.0,), "least edge of a crop in the image's; one a sampler")
    max_crop_scales: tuple = option((1.0,), "most edge of a crop")
    min_crop_aspect_ratios: tuple = option((1.0,), "least width / height of a crop")
    max_crop_aspect_ratios: tuple = option((1.0,), "most width / height of a crop")
    min_crop_overlaps: tuple = option((0.0,), "least intersection / union of crop and an object")
    max_crop_overlaps: tuple = option((1.0,), "most intersection / union")
    min_crop_sample_coverages: tuple = option((0.0,), "least intersection / crop")
    max_crop_sample_coverages: tuple = option((1.0,), "most intersection / crop")
    min_crop_object_coverages: tuple = option((0.0,), "least intersection / object")
    max_crop_object_coverages: tuple = option((1.0,), "most intersection / object")
    num_crop_sampler: int = option(1, "number of samplers; lists of one value serve all of them")
    crop_emit_mode: str = option(
        "center", "objects stay whose centre is in the crop, or 'overlap': by emit_overlap_thresh"
    )
    emit_overlap_thresh: float = option(0.3, "least share of an object inside the crop")
    max_crop_trials: tuple = option((25,), "draws of a crop before the next sampler is tried")
    rand_pad_prob: float = option(0.0, "probability of a margin")
    max_pad_scale: float = option(1.0, "most edge with the margin in the image's")
    max_random_hue: int = option(0, "add a random number in [-v, v] to the hue (of 180)")
    random_hue_prob: float = option(0.0, "its probability")
    max_random_saturation: int = option(0, "the same for the saturation (of 255)")
    random_saturation_prob: float = option(0.0, "its probability")
    max_random_illumination: int = option(0, "the same for the lightness (of 255)")
    random_illumination_prob: float = option(0.0, "its probability")
    max_random_contrast: float = option(0.0, "times a random factor in 1 +- v")
    random_contrast_prob: float = option(0.0, "its probability")
    rand_mirror_prob: float = option(0.0, "probability to mirror left and right")
    fill_value: int = option(127, "colour of the margin")
    inter_method: int = option(
        1, "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 chosen by the sizes, 10 random"
    )
    resize_mode: str = option(
        "force",
        "into data_shape: 'force' whatever the ratio, 'shrink' larger images, 'fit' all at the same"
        " ratio; zeros fill the rest",
    )

    def check(self, where: str) -> None:
        for name, allowed in (("resize_mode", RESIZE_MODES), ("crop_emit_mode", EMIT_MODES)):
            if getattr(self, name) not in allowed:
                raise InvalidValue(
                    f"{where}: {name} must be one of {', '.join(allowed)}, got"
                    f" {getattr(self, name)!r}"
                )
        if self.inter_method not in (*range(5), AUTO, RANDOM):
            raise InvalidValue(f"{where}: invalid inter_method {self.inter_method}")
        for field in dataclasses.fields(self):
            if isinstance(field.default, tuple):
                values = getattr(self, field.name)
                if len(values) not in (1, self.num_crop_sampler):
                    raise InvalidValue(
                        f"{where}: {field.name} must have 1 or num_crop_sampler ="
                        f" {self.num_crop_sampler} values, got {len(values)}"
                    )

    # ---- the steps -------------------------------------------------------------------------------

    def apply(
        self, image: Any, objects: Any, shape: Any, draws: Draws, full_size: Any = None
    ) -> Any:
        """(image, objects), changed; objects are rows (class, xmin, ymin, xmax, ymax, ...)."""
        if self.resize > 0:
            before = full_size or image.shape[:2]
            size = resized(before[0], before[1], (self.resize,), keep_ratio=True)
            image = self._resized(image, size[0], size[1], draws)
        image = self._coloured(image, draws)
        if draws.uniform(0, 1) < self.rand_mirror_prob:
            image = image[:, ::-1]
            objects = objects.copy()
            objects[:, [1, 3]] = 1 - objects[:, [3, 1]]
        if self.max_pad_scale > 1 and draws.uniform(0, 1) < self.rand_pad_prob:
            image, objects = self._padded(image, objects, draws)
        if self.num_crop_sampler > 0 and draws.uniform(0, 1) < self.rand_crop_prob:
            image, objects = self._cropped(image, objects, draws)
        return self._fitted(image, shape, draws), objects

    def _resized(self, image, height, width, draws):
        h, w = image.shape[:2]
        method = self.inter_method
        if method == AUTO:
            method = 2 if height > h and width > w else 3 if height < h and width < w else 1
        elif method == RANDOM:
            method = draws.whole(0, 4)
        return resize_bytes(image, height, width, method)

    def _coloured(self, image, draws):
        if image.shape[2] != 3:
            return image
        shifts = [
            int(draws.uniform(-most, most)) if draws.uniform(0, 1) < probability else 0
            for most, probability in (
                (self.max_random_hue, self.random_hue_prob),
                (self.max_random_illumination, self.random_illumination_prob),
                (self.max_random_saturation, self.random_saturation_prob),
            )
        ]
        if any(shifts):
            image = shifted_hls(image, *shifts)
        if self.max_random_contrast > 0 and draws.uniform(0, 1) < self.random_contrast_prob:
            most = self.max_random_contrast
            image = as_bytes(image * np.float32(draws.uniform(1 - most, 1 + most)))
        return image

    def _padded(self, image, objects, draws):
        scale = draws.uniform(1, self.max_pad_scale)
        h, w = image.shape[:2]
        new_h, new_w = int(h * scale), int(w * scale)
        y, x = draws.whole(0, new_h - h), draws.whole(0, new_w - w)
        margin = ((y, new_h - h - y), (x, new_w - w - x), (0, 0))
        objects = objects.copy()
        objects[:, [1, 3]] = (objects[:, [1, 3]] * w + x) / new_w
        objects[:, [2, 4]] = (objects[:, [2, 4]] * h + y) / new_h
        return np.pad(image, margin, constant_values=self.fill_value), objects

    def _cropped(self, image, objects, draws):
        """The first valid crop that a sampler draws; the unchanged image if there is none."""
        for sampler in sorted(range(self.num_crop_sampler), key=lambda _: draws.uniform(0, 1)):
            for _ in range(int(_of(self.max_crop_trials, sampler))):
                box = self._box(image, sampler, draws)
                if box is None or not self._is_good(box, objects, sampler):
                    continue
                kept = self._kept(box, objects)
                if len(kept):
                    h, w = image.shape[:2]
                    left, top, right, bottom = (
                        int(round(v * e)) for v, e in zip(box, (w, h, w, h))
                    )
                    if right > left and bottom > top:
                        return image[top:bottom, left:right], kept
        return image, objects

    def _box(self, image, sampler, draws):
        """(xmin, ymin, xmax, ymax) of a crop, relative to the image's size."""
        scale = draws.uniform(
            _of(self.min_crop_scales, sampler), _of(self.max_crop_scales, sampler)
        )
        shape = image.shape[1] / image.shape[0]
        low = max(_of(self.min_crop_aspect_ratios, sampler) / shape, scale * scale)
        high = min(_of(self.max_crop_aspect_ratios, sampler) / shape, 1 / max(scale * scale, 1e-12))
        if scale <= 0 or low > high:
            return None
        ratio = math.sqrt(draws.uniform(low, high))
        width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
        x, y = draws.uniform(0, 1 - width), draws.uniform(0, 1 - height)
        return x, y, x + width, y + height

    def _is_good(self, box, objects, sampler) -> bool:
        """Does an object in the crop satisfy the sampler's constraints?"""
        common = _common(box, objects)
        area = (box[2] - box[0]) * (box[3] - box[1])
        own = (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])
        good = np.ones(len(objects), bool)
        for kind, values in (
            ("overlaps", common / (own + area - common)),
            ("sample_coverages", common / area),
            ("object_coverages", common / np.maximum(own, 1e-12)),
        ):
            good &= values >= _of(getattr(self, f"min_crop_{kind}"), sampler)
            good &= values <= _of(getattr(self, f"max_crop_{kind}"), sampler)
        return bool(good.any())

    def _kept(self, box, objects):
        """The objects that remain, relative to the crop."""
        x1, y1, x2, y2 = box
        if self.crop_emit_mode == "center":
            x, y = objects[:, [1, 3]].mean(axis=1), objects[:, [2, 4]].mean(axis=1)
            stays = (x >= x1) & (x <= x2) & (y >= y1) & (y <= y2)
        else:
            own = (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])
            stays = _common(box, objects) / np.maximum(own, 1e-12) > self.emit_overlap_thresh
        kept = objects[stays]
        kept[:, [1, 3]] = np.clip((kept[:, [1, 3]] - x1) / (x2 - x1), 0, 1)
        kept[:, [2, 4]] = np.clip((kept[:, [2, 4]] - y1) / (y2 - y1), 0, 1)
        return kept

    def _fitted(self, image, shape, draws):
        _, height, width = shape
        if self.resize_mode == "force":
            return self._resized(image, height, width, draws)
        h, w = image.shape[:2]
        ratio = min(height / h, width / w)
        if self.resize_mode == "shrink" and ratio >= 1:
            return image
        return self._resized(image, max(1, int(h * ratio)), max(1, int(w * ratio)), draws)


def _of(values, sampler: int):
    return values[sampler] if len(values) > 1 else values[0]


def _common(box, objects):
    """Areas of the intersections of the objects with a box."""
    width = np.minimum(objects[:, 3], box[2]) - np.maximum(objects[:, 1], box[0])
    height = np.minimum(objects[:, 4], box[3]) - np.maximum(objects[:, 2], box[1])
    return np.maximum(width, 0) * np.maximum(height, 0)


@dataclasses.dataclass
class DetScaling(Scaling):
    """Normalisation of bytes: (x - mean) * scale / std; std 0 means no division."""

    std_r: float = option(0.0, "red is divided by it, unless it is 0")
    std_g: float = option(0.0, "green is divided by it, unless it is 0")
    std_b: float = option(0.0, "blue is divided by it, unless it is 0")
    std_a: float = option(0.0, "accepted: images have no fourth channel")

    def check(self, where: str) -> None:
        self.std_r, self.std_g, self.std_b = (
            std or 1.0 for std in (self.std_r, self.std_g, self.std_b)
        )


class _DetFiller:
    """Makes one record's image and its flat label: sizes, header, objects."""

    def __init__(self, where: Any, reading: Any, augmentation: Any, scaling: Any, records: Any):
        self.where, self.reading, self.records = where, reading, records
        self.augmentation, self.scaling = augmentation, scaling
        self.labels = labels_of(reading.path_imglist) if reading.path_imglist else None
        self.width = self._longest()

    def _longest(self) -> int:
        longest = 0
        for number in range(len(self.records)):
            header, _ = recordio.unpack(self.records[number])
            longest = max(longest, len(self._label(header)))
        if self.reading.label_pad_width <= 0:
            return longest
        if self.reading.label_pad_width < longest:
            raise InvalidValue(
                f"{self.where}: label_pad_width = {self.reading.label_pad_width} is less than the"
                f" longest label's {longest} numbers"
            )
        return self.reading.label_pad_width

    def _label(self, header) -> np.ndarray:
        values = np.atleast_1d(header.label)
        if self.labels is not None:
            if header.id not in self.labels:
                raise MXNetError(
                    f"{self.where}: path_imglist has no label of the record {header.id}"
                )
            values = self.labels[header.id]
        if self.reading.label_width > 0 and len(values) != self.reading.label_width:
            raise MXNetError(
                f"{self.where}: label_width is {self.reading.label_width}, but the record"
                f" {header.id} has {len(values)} labels"
            )
        if len(values) < 2 or values[0] < 2 or values[1] < OBJECT_NUMBERS:
            raise MXNetError(
                f"{self.where}: the label of the record {header.id} must begin with the lengths of"
                f" its header (2 or more) and of an object (5 or more), got {values[:2]}"
            )
        return values

    def __call__(self, number: int, image: np.ndarray, label: np.ndarray, draws: Draws) -> int:
        shape = self.reading.data_shape
        header, pixels, full_size = image_of(
            self.records[number],
            int(shape[0] == 3),
            self.augmentation.resize,
            self.records.name(number),
        )
        values = self._label(header)
        n_header, n_object = int(values[0]), int(values[1])
        objects = values[n_header:].reshape(-1, n_object)
        part, objects = self.augmentation.apply(pixels, objects, shape, draws, full_size)
        height, width = part.shape[:2]
        if (height, width) == shape[1:]:
            self.scaling.place(part, image, False)
        else:
            small = np.empty((shape[0], height, width), image.dtype)
            self.scaling.place(part, small, False)
            image[...] = 0
            image[:, :height, :width] = small
        flat = np.concatenate([values[:n_header], objects.ravel()])
        label[...] = self.reading.label_pad_value
        label[:FACTS] = (shape[0], height, width, len(flat))
        label[FACTS : FACTS + len(flat)] = flat
        return header.id


@shows(DetReading, DetAugmentation, DetScaling)
def ImageDetRecordIter(**kwargs: Any) -> MXDataIter:  # noqa: N802 - MXNet's name
    """An iterator over the images of record files and their objects.

    Labels are (batch_size, 4 + longest label): channels, height and width of the image, the length
    of its label; then the label: length of its header, numbers per object, the rest of the header,
    and objects (class, xmin, ymin, xmax, ymax, ...) with coordinates relative to the image's size.

    Raises: MXNetError when a file is missing or broken, ValueError for a wrong parameter.
    """
    where = "ImageDetRecordIter"
    kinds = (DetReading, DetAugmentation, DetScaling)
    reading, augmentation, scaling = read(where, kinds, kwargs)
    for options in (reading, augmentation, scaling):
        options.check(where)
    records = Records(
        reading.path_imgrec, reading.path_imgidx, reading.num_parts, reading.part_index
    )
    if scaling.mean_img:
        scaling.mean_image = mean_image_in(where, scaling.mean_img, reading.data_shape)
    fill = _DetFiller(where, reading, augmentation, scaling, records)
    source = BatchSource(reading, records, (FACTS + fill.width,), fill)
    return MXDataIter(source, reading.data_name, reading.label_name)
