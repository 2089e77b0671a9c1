"""Pictures in folders: which files there are, which can be read, and which are for validation.

A folder has one subfolder a class; or `train/` and `valid/` (also `val`, `validation`, `test`) that
have them. Without the second, every fifth picture of a class, in a random order, is for validation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...engine.error import InvalidValue, MXNetError, compose
from ...gluon.data import Dataset
from ...gluon.data.vision import ImageFolderDataset
from ...ndarray import codec
from ...training.progress import Progress
from .pictures import Pictures, Prepare, Prepared, rounded

VALID = ("valid", "val", "validation", "test")
VALID_EVERY = 5
STATISTICS_PIXELS = 64  # of a picture's shorter edge, for mean and deviation


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Examined(NamedTuple):
    """A file of a class. reason: why it cannot be read, or None. sums: of the red, green and blue
    values in [0, 1] and of their squares, as means over the picture's pixels."""

    path: str
    label: int
    reason: str | None
    grey: bool
    sums: np.ndarray


def load(
    folder: str,
    size: int,
    augment: str = "photo",
    seed: int = 1,
    color: bool | None = None,
) -> Pictures:
    """The pictures in a folder. color: None: in colour unless all of them are grey.

    Every file is decoded once: those that cannot be are left out and named in `skipped`.
    Raises InvalidValue for a folder from which nothing can be learned.
    """
    top = Path(folder)
    train_folder, valid_folder = _parts(top)
    classes = _classes(train_folder)
    found = _examine(_files(train_folder, classes))
    if valid_folder is None:
        train, valid = _split([e for e in found if e.reason is None], seed)
    else:
        held_out = _examine(_files(valid_folder, classes))
        train, valid = ([e for e in part if e.reason is None] for part in (found, held_out))
        found += held_out
    skipped = [f"{e.path}: {e.reason}" for e in found if e.reason is not None]
    _check(train_folder, classes, train, valid, skipped)
    color = not all(e.grey for e in train) if color is None else color
    mean, squares = np.mean([e.sums for e in train], axis=0)
    std = np.sqrt(np.maximum(squares - mean**2, 1e-6))
    resize = round(size * 8 / 7)
    parts = []
    for items, how in ((train, augment), (valid, "none")):
        prepare = Prepare(size, resize, how)
        parts.append(Prepared(Files(items, color, prepare.enough), prepare))
    n = 3 if color else 1
    return Pictures(
        top.resolve().name,
        classes,
        *parts,
        (size, size, n),
        resize,
        rounded(mean[:n]),
        rounded(std[:n]),
        cores(),
        skipped,
    )


class Files(Dataset):
    """Items (uint8 (H, W, C), float32 label) of picture files.

    enough: pixels; a JPEG of at least twice this size is decoded at a fraction of its size.
    """

    def __init__(self, files: Iterable[Examined], color: bool, enough: int):
        self._files = [(e.path, e.label) for e in files]
        self._color, self._enough = int(color), (enough, enough)

    def __len__(self):
        return len(self._files)

    def __getitem__(self, idx):
        path, label = self._files[idx]
        return read(path, self._color, self._enough), np.float32(label)


def read(path: str, color: int, enough: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The picture in a file as uint8 (H, W, C). Raises MXNetError or OSError that name the file."""
    image = codec.read(path, color, enough, strict=True)
    return image if image.ndim == 3 else image[..., None]


# ---- which files ---------------------------------------------------------------------------------


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _parts(top: Path) -> tuple[Path, Path | None]:
    """The folders of the training and validation classes; None: to be split."""
    train = top / "train"
    if not train.is_dir() or not _folders(train):
        return top, None
    held_out = (top / name for name in VALID if (top / name).is_dir())
    return train, next(held_out, None)


def _classes(folder: Path) -> list[str]:
    names = [p.name for p in _folders(folder)]
    if len(names) < 2:
        one = f"only {names[0]}" if names else "none"
        raise InvalidValue(
            compose(
                f"--data: a folder must have one subfolder a class, at least two, got {one}",
                str(folder),
                "move the pictures of each class to a folder of their own",
            )
        )
    return names


def _files(folder: Path, classes: list[str]) -> Iterator[tuple[str, int]]:
    """(path, label) of each file that has the name of a picture."""
    for path in _folders(folder):
        if path.name not in classes:
            raise InvalidValue(
                compose(
                    f"--data: {path.name!r} is no class of the training pictures",
                    str(path),
                    f"the classes are {', '.join(classes[:10])}",
                )
            )
        for file in sorted(path.rglob("*")):
            if file.suffix.lower() in ImageFolderDataset.extensions:
                yield str(file), classes.index(path.name)


def _split(files: list[Examined], seed: int) -> tuple[list[Examined], list[Examined]]:
    """Every fifth picture of each class for validation; of fewer than five, one; of one, none."""
    rng = np.random.default_rng(seed)
    train, valid = [], []
    for label in sorted({e.label for e in files}):
        of_class = [e for e in files if e.label == label]
        n = max(len(of_class) // VALID_EVERY, int(len(of_class) > 1))
        chosen = set(rng.permutation(len(of_class))[:n].tolist())
        for i, e in enumerate(of_class):
            (valid if i in chosen else train).append(e)
    return train, valid


def _check(folder, classes, train, valid, skipped) -> None:
    empty = sorted(set(classes) - {classes[e.label] for e in train})
    if empty or not valid:
        what = f"the class {empty[0]!r} has" if empty else "there are"
        kind = "training" if empty else "validation"
        why = f"; skipped {len(skipped)} files, the first: {skipped[0]}" if skipped else ""
        raise InvalidValue(
            compose(
                f"--data: {what} no {kind} picture that can be read{why}",
                str(folder),
                f"pictures end in {', '.join(ImageFolderDataset.extensions)}",
            )
        )


# ---- which of them can be read -------------------------------------------------------------------


def _examine(files: Iterable[tuple[str, int]]) -> list[Examined]:
    """Decodes every file, on all cores."""
    listed = list(files)
    bar, found = Progress(len(listed), "reading pictures", unit="picture"), []
    with ThreadPoolExecutor(cores()) as pool:
        for examined in pool.map(_examined, listed):
            found.append(examined)
            bar.step()
    bar.close()
    return found


def _examined(file: tuple[str, int]) -> Examined:
    path, label = file
    try:
        image = codec.read(path, -1, (STATISTICS_PIXELS, STATISTICS_PIXELS), strict=True)
    except (MXNetError, OSError) as error:
        return Examined(path, label, str(error).split("\n")[0], False, np.zeros((2, 3)))
    step = max(1, min(image.shape[:2]) // STATISTICS_PIXELS)
    channels = 1 if image.ndim == 2 else 3
    pixels = image[::step, ::step].reshape(-1, channels).astype(np.float32) / 255
    sums = np.stack([pixels.mean(axis=0), (pixels**2).mean(axis=0)])
    return Examined(path, label, None, channels == 1, np.broadcast_to(sums, (2, 3)))
