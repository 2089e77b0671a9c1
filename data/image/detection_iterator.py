"""ImageDetIter: batches of images and of their objects, for detection."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue, MXNetError
from .. import streams
from .augmenter import IMAGENET_MEAN, IMAGENET_STD, colour_statistics
from .detection_augmenter import CreateDetAugmenter
from .iterator import ImageIter

OBJECT_NUMBERS = 5  # class and box
PADDING = -1.0


class ImageDetIter(ImageIter):
    """Batches of images with their objects: labels (batch_size, most objects, numbers per object).

    A label in a file is flat: length of the header, numbers per object, the rest of the header,
    then objects (class, xmin, ymin, xmax, ymax, ...) with coordinates relative to the image's size.
    Short labels are padded with rows of -1. `label_shape` is found by reading all labels once.

    Args:
        aug_list: DetAugmenters; default: CreateDetAugmenter(data_shape, **kwargs).
        The others as of ImageIter.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
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
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ):
        super().__init__(
            batch_size=batch_size,
            data_shape=data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=[],
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
        )
        self.auglist = CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.label_shape = self._estimate_label_shape()
        self.provide_label = [(label_name, (batch_size, *self.label_shape))]

    # ---- labels ----------------------------------------------------------------------------------

    def _parse_label(self, label) -> np.ndarray:
        """A flat label -> its objects whose box is not empty, (n, numbers per object) float32."""
        flat = np.asarray(label.asnumpy() if hasattr(label, "asnumpy") else label, np.float32)
        flat = flat.ravel()
        if flat.size < 2 + OBJECT_NUMBERS:
            raise MXNetError(f"ImageDetIter: a label must have 7 or more numbers, got {flat.size}")
        header, width = int(flat[0]), int(flat[1])
        if header < 2 or width < OBJECT_NUMBERS or (flat.size - header) % width:
            raise MXNetError(
                f"ImageDetIter: a label of {flat.size} numbers does not hold objects of {width}"
                f" numbers after a header of {header}"
            )
        objects = flat[header:].reshape(-1, width)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        if not len(objects):
            raise MXNetError("ImageDetIter: a label has no object with a non-empty box")
        return objects

    def _check_valid_label(self, label) -> None:
        if label.ndim != 2 or label.shape[1] < OBJECT_NUMBERS:
            raise MXNetError(
                f"ImageDetIter: a label must have the shape (1+, 5+), got {label.shape}"
            )
        valid = (label[:, 0] >= 0) & (label[:, 3] > label[:, 1]) & (label[:, 4] > label[:, 2])
        if not valid.any():
            raise MXNetError("ImageDetIter: a label has no valid object")

    def _estimate_label_shape(self) -> tuple[int, int]:
        """(most objects of an image, numbers of an object)."""
        most, width = 0, OBJECT_NUMBERS
        self.reset()
        while True:
            try:
                label, _ = self.next_sample()
            except StopIteration:
                break
            objects = self._parse_label(label)
            most, width = max(most, len(objects)), objects.shape[1]
        self.reset()
        return most, width

    def reshape(self, data_shape: Sequence[int] | None = None, label_shape: Any = None) -> None:
        """Other shapes for images (3, height, width) and labels (objects, numbers); None: as is."""
        if data_shape is not None:
            self.check_data_shape(data_shape)
            name = self.provide_data[0][0]
            self.provide_data = [(name, (self.batch_size, *data_shape))]
            self.data_shape = tuple(data_shape)
        if label_shape is not None:
            self.check_label_shape(label_shape)
            name = self.provide_label[0][0]
            self.provide_label = [(name, (self.batch_size, *label_shape))]
            self.label_shape = tuple(label_shape)

    def check_label_shape(self, label_shape: Any) -> None:
        """Raises ValueError unless the labels fit into label_shape."""
        if len(label_shape) != 2:
            raise InvalidValue("label_shape should have length 2")
        if label_shape[0] < self.label_shape[0]:
            raise InvalidValue(
                f"Attempts to reduce label count from {self.label_shape[0]} to {label_shape[0]},"
                " not allowed."
            )
        if label_shape[1] != self.label_shape[1]:
            raise InvalidValue(
                f"label_shape object width inconsistent: {self.label_shape[1]} vs {label_shape[1]}."
            )

    def sync_label_shape(self, it: Any, verbose: bool = False) -> ImageDetIter:
        """Gives this iterator and `it` the larger of their label shapes. Returns `it`."""
        if not isinstance(it, ImageDetIter):
            raise InvalidType("sync_label_shape: it must be an ImageDetIter")
        (mine, width), (theirs, their_width) = self.label_shape, it.label_shape
        if width != their_width:
            raise InvalidValue(f"sync_label_shape: objects have {width} and {their_width} numbers")
        most = max(mine, theirs)
        if most > mine:
            self.reshape(None, (most, width))
        if most > theirs:
            it.reshape(None, (most, width))
        if verbose and mine != theirs:
            logging.info("Resized label_shape to (%d, %d).", most, width)
        return it

    # ---- batches ---------------------------------------------------------------------------------

    def _empty_batch(self):
        data, label = super()._empty_batch()
        label[...] = PADDING
        return data, label

    def _next_valid(self):
        """(image, objects) of the next image, augmented; images without a valid object are
        skipped."""
        while True:
            label, encoded = self.next_sample()
            data = self.imdecode(encoded)
            try:
                self.check_valid_image([data])
                data, objects = self.augmentation_transform(data, self._parse_label(label))
                self._check_valid_label(objects)
            except RuntimeError as error:
                logging.debug("Invalid image, skipping: %s", error)
                continue
            return data, objects

    def _batchify(self, batch_data, batch_label, start=0) -> int:
        i = start
        while i < self.batch_size:
            try:
                data, objects = self._next_valid()
            except StopIteration:
                if not i:
                    raise
                break
            batch_data[i] = self.postprocess_data(data).asnumpy()
            batch_label[i] = PADDING
            batch_label[i, : len(objects)] = objects
            i += 1
        return i

    def augmentation_transform(self, data: Any, label: Any) -> Any:  # type: ignore[override]  # MXNet's signature
        """Applies all augmenters to the image and its objects."""
        for augmenter in self.auglist:
            data, label = augmenter(data, label)
        return data, label

    # ---- to look at ------------------------------------------------------------------------------

    def draw_next(
        self,
        color: Any = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Any = None,
    ) -> Iterator[Any]:
        """Gives the next images as (H, W, 3) uint8 arrays, blue, green, red, with boxes drawn.

        Args:
            color: red, green, blue of the boxes; None: a random one for each.
            thickness: of the lines, in pixels.
            mean, std: the normalisation to undo: True (ImageNet's) or (3,) arrays.
            clip: limit values to 0 .. 255.
            waitKey: milliseconds to show each in a window, 0: until a key (needs OpenCV); None: not
                shown.
            window_name: title of that window.
            id2labels: names of classes, written beside the boxes.
        """
        mean = colour_statistics("mean", mean, IMAGENET_MEAN)
        std = colour_statistics("std", std, IMAGENET_STD)
        while True:
            try:
                data, objects = self._next_valid()
            except StopIteration:
                return
            image = data.asnumpy().astype(np.float32)
            image = image * std if std is not None else image
            image = image + mean if mean is not None else image
            image = np.clip(image, 0, 255) if clip else image
            drawn = _with_boxes(image.astype(np.uint8), objects, color, thickness, id2labels)
            if waitKey is not None:
                _show(window_name, drawn, waitKey)
            yield drawn


def _with_boxes(image, objects, color, thickness, names) -> np.ndarray:
    """(H, W, 3) red, green, blue -> blue, green, red with the objects' boxes."""
    from PIL import Image, ImageDraw

    height, width, _ = image.shape
    picture = Image.fromarray(image)
    pen = ImageDraw.Draw(picture)
    for row in objects:
        x1, y1, x2, y2 = (int(v) for v in row[1:5] * [width, height, width, height])
        if x1 < 0 or x2 < x1 or y2 < y1:
            continue
        chosen = tuple(color) if color else tuple(int(v) for v in streams.numpy().rand(3) * 255)
        pen.rectangle((x1, y1, x2, y2), outline=chosen, width=thickness)
        if names and int(row[0]) in names:
            pen.text((x1 + 5, y1 + 5), str(names[int(row[0])]), fill=(255, 255, 255))
    return np.ascontiguousarray(np.asarray(picture)[..., ::-1])


def _show(title, image, milliseconds) -> None:
    try:
        import cv2
    except ImportError:
        raise MXNetError(
            "draw_next: waitKey needs OpenCV\n  fix: pip install opencv-python, or waitKey=None"
        ) from None
    cv2.imshow(title, image)
    cv2.waitKey(milliseconds)
