"""Data sets of images: IDX files (MNIST, FashionMNIST), CIFAR, scikit-learn's digits, folders,
record files.

Nothing is downloaded: if a file is missing, the error says where it was looked for and how to get
it.
"""

from __future__ import annotations

import importlib.util
import os
import tarfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ....data import recordio
from ....data.download import local_folder
from ....data.idx import DatasetError, find, read_bytes, read_idx
from ....engine.error import compose
from ....ndarray import codec
from ....ndarray.ndarray import from_memory
from ....ndarray.numpy_mode import in_mode
from ..dataset import Dataset, RecordFileDataset

__all__ = [
    "MNIST",
    "FashionMNIST",
    "CIFAR10",
    "CIFAR100",
    "Digits",
    "ImageRecordDataset",
    "ImageFolderDataset",
]

SHARED = Path("/usr/share/datasets")  # the folder of Debian's data set packages
TEST_EVERY = 5  # of the 1797 digits, every fifth is for testing


class _Images(Dataset, ABC):
    """Images in memory: item i is ((H, W, C) uint8 NDArray, label int32), through `transform` if
    there is one."""

    def __init__(self, root: str | Path, transform: Callable[..., Any] | None):
        self._transform = transform
        self._root = local_folder(root)
        images, labels = self._load()
        self._data = np.ascontiguousarray(images, np.uint8)
        self._label = np.ascontiguousarray(labels, np.int32)

    @abstractmethod
    def _load(self) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, H, W, C) and labels (N,)."""

    def __len__(self):
        return len(self._label)

    def __getitem__(self, idx):
        image, label = in_mode(from_memory(self._data[idx])), self._label[idx]
        return self._transform(image, label) if self._transform is not None else (image, label)


class MNIST(_Images):
    """Handwritten digits, 28 x 28 x 1, 10 classes: 60,000 for training, 10,000 for testing.

    Args:
        root: folder of the IDX files (train-images-idx3-ubyte[.gz], ...); then
            /usr/share/datasets/mnist is tried.
        train: training or test images.
        transform: (image, label) -> item.
    Raises: DatasetError if the files are missing or broken.
    """

    shared_names: tuple[str, ...] = ("mnist",)
    advice = "copy the four IDX files (train-images-idx3-ubyte.gz, ...) to root"

    def __init__(
        self,
        root: str = "~/.mxnet/datasets/mnist",
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ):
        self._train = train
        super().__init__(root, transform)

    def _load(self):
        part = "train" if self._train else "t10k"
        images, labels = (
            read_idx(self._file(f"{part}-{kind}"))
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        )
        if images.ndim != 3 or labels.shape != (len(images),):
            raise DatasetError(
                compose(
                    "images must be (N, H, W) and labels (N,), got "
                    f"{images.shape} and {labels.shape}",
                    str(self._root),
                )
            )
        return images[..., None], labels

    def _file(self, name: str) -> Path:
        folders = [self._root, *(SHARED / n for n in self.shared_names)]
        found = find(folders, [name, name.replace("-idx", ".idx")])
        if found is None:
            raise DatasetError(
                compose(
                    f"{type(self).__name__}: no file {name} or {name}.gz in "
                    f"{', '.join(map(str, folders))}",
                    fix=self.advice,
                )
            )
        return found


class FashionMNIST(MNIST):
    """Images of clothing, in the format of MNIST; also in /usr/share/datasets. Source: Xiao et al.
    2017."""

    shared_names = ("fashion-mnist", "fashion_mnist")
    advice = "apt-get install dataset-fashion-mnist, or copy the four IDX files to root"

    def __init__(
        self,
        root: str = "~/.mxnet/datasets/fashion-mnist",
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ):
        super().__init__(root, train, transform)


class CIFAR10(_Images):
    """Small photographs, 32 x 32 x 3, 10 classes: 50,000 for training, 10,000 for testing. Source:
    Krizhevsky 2009.

    root: folder of the binary version: its data_batch_1.bin ..., or cifar-10-binary.tar.gz.
    """

    archive, folder = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
    label_bytes = 1

    def __init__(
        self,
        root: str = "~/.mxnet/datasets/cifar10",
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ):
        self._train = train
        super().__init__(root, transform)

    def _names(self) -> list[str]:
        return [f"data_batch_{i}.bin" for i in range(1, 6)] if self._train else ["test_batch.bin"]

    def _label_of(self, labels: np.ndarray) -> np.ndarray:
        return labels[:, 0]

    def _load(self):
        row_bytes = self.label_bytes + 3 * 32 * 32
        parts = []
        for name in self._names():
            values = np.frombuffer(self._read(name), np.uint8)
            if not values.size or values.size % row_bytes:
                raise DatasetError(
                    compose(
                        f"{name} must hold rows of {row_bytes} bytes, got {values.size} bytes",
                        str(self._root),
                        "is it the binary version, copied as a whole?",
                    )
                )
            parts.append(values.reshape(-1, row_bytes))
        rows = np.concatenate(parts)
        images = rows[:, self.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, self._label_of(rows[:, : self.label_bytes])

    def _read(self, name: str) -> bytes:
        folders = [self._root, self._root / self.folder, SHARED / type(self).__name__.lower()]
        found = find(folders, [name])
        if found is not None:
            return read_bytes(found)
        for folder in folders:
            if (folder / self.archive).is_file():
                with tarfile.open(folder / self.archive) as archive:
                    member = archive.extractfile(f"{self.folder}/{name}")
                    if member is not None:
                        return member.read()
        raise DatasetError(
            compose(
                f"{type(self).__name__}: no file {name} or {self.archive} in "
                f"{', '.join(map(str, folders))}",
                fix=f"copy {self.archive} to root",
            )
        )


class CIFAR100(CIFAR10):
    """As CIFAR10 with 20 classes, or 100 with fine_label. root: train.bin, test.bin, or
    cifar-100-binary.tar.gz."""

    archive, folder = "cifar-100-binary.tar.gz", "cifar-100-binary"
    label_bytes = 2

    def __init__(
        self,
        root: str = "~/.mxnet/datasets/cifar100",
        fine_label: bool = False,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ):
        self._fine_label = fine_label
        super().__init__(root, train, transform)

    def _names(self):
        return ["train.bin"] if self._train else ["test.bin"]

    def _label_of(self, labels):
        return labels[:, int(self._fine_label)]


class Digits(_Images):
    """Handwritten digits, 8 x 8 x 1 with values 0 .. 255, 10 classes: 1437 for training, 360 for
    testing.

    The images included in scikit-learn. Source: Alpaydin and Kaynak 1998, UCI machine
    learning repository.

    Args:
        root: folder of digits.csv[.gz]; None: scikit-learn's own.
        train: training images, or the test images: every fifth of the file.
        transform: (image, label) -> item.
    """

    def __init__(
        self,
        root: str | None = None,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ):
        self._train = train
        super().__init__(_sklearn_folder() if root is None else root, transform)

    def _load(self):
        path = find([self._root], ["digits.csv"])
        if path is None:
            raise DatasetError(
                compose(
                    f"Digits: no file digits.csv or digits.csv.gz in {self._root}",
                    fix="pip install scikit-learn, which brings it along",
                )
            )
        try:
            rows = np.array([line.split(b",") for line in read_bytes(path).split()], np.float64)
        except ValueError:
            rows = np.zeros((0, 0))
        if rows.ndim != 2 or rows.shape[1] != 65:
            raise DatasetError(
                compose("digits.csv must have rows of 64 values and a label", str(path))
            )
        # the file is sorted by writer: each writer is in both parts
        test = np.arange(len(rows)) % TEST_EVERY == 0
        rows = rows[~test if self._train else test]
        return np.rint(rows[:, :64] * (255 / 16)).reshape(-1, 8, 8, 1), rows[:, 64]


def _sklearn_folder() -> Path:
    """scikit-learn's data folder, found without importing it."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise DatasetError(
            compose(
                "Digits: scikit-learn, which brings the images along, is not installed",
                fix="pip install scikit-learn, or give root=",
            )
        )
    return Path(found.submodule_search_locations[0]) / "datasets" / "data"


class ImageRecordDataset(RecordFileDataset):
    """Images of a .rec file: item i is (image NDArray (H, W, C), label).

    Args:
        filename: the .rec file; the .idx file is in the same folder.
        flag: 1 colour, 0 grey.
        transform: (image, label) -> item.
    """

    def __init__(
        self,
        filename: str | PathLike[str],
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
    ):
        super().__init__(filename)
        self._flag, self._transform = flag, transform

    def __getitem__(self, idx):
        header, data = recordio.unpack(super().__getitem__(idx))
        image = _image(codec.decode(data, self._flag))
        return (
            self._transform(image, header.label)
            if self._transform is not None
            else (image, header.label)
        )


class ImageFolderDataset(Dataset):
    """Images in one folder per class: item i is (image NDArray (H, W, C), number of the class).

    Args:
        root: holds the folders; classes are numbered in the order of their names, see `synsets`.
        flag: 1 colour, 0 grey.
        transform: (image, label) -> item.
    """

    extensions = (".jpg", ".jpeg", ".png")

    def __init__(self, root: str, flag: int = 1, transform: Callable[..., Any] | None = None):
        self._root, self._flag, self._transform = os.path.expanduser(root), flag, transform
        self._exts = list(self.extensions)
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        for folder in sorted(os.listdir(self._root)):
            path = os.path.join(self._root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"Ignoring {path}, which is not a directory.", stacklevel=2)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                if os.path.splitext(name)[1].lower() in self._exts:
                    self.items.append((os.path.join(path, name), label))
                else:
                    warnings.warn(
                        f"Ignoring {os.path.join(path, name)}: its name must end with one of "
                        f"{', '.join(self._exts)}",
                        stacklevel=2,
                    )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        path, label = self.items[idx]
        image = _image(codec.read(path, self._flag))
        return self._transform(image, label) if self._transform is not None else (image, label)


def _image(values: np.ndarray):
    return in_mode(from_memory(values if values.ndim == 3 else values[..., None]))
