"""Pictures in folders: which files there are, which can be read, and which are for validation.

A folder has one subfolder a class; or `train/` and `valid/` (also `val`, `validation`, `test`) that
have them. Without the second, every fifth picture of a class, in a random order, is for validation.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
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
from .pictures import Pictures, Prepare, rounded

VALID = ("valid", "val", "validation", "test")
VALID_EVERY = 5
STATISTICS_PIXELS = 64  # of a picture's shorter edge, for mean and deviation


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Examined(NamedTuple):
    """A file of a class. reason: why it cannot be read, or None. sums: of the red, green and blue
    values in [0, 1] and of their squares, as means over the picture's pixels. kept: the picture
    after the fixed part of its preparation, or None to read it again."""

    path: str
    label: int
    reason: str | None
    grey: bool
    sums: np.ndarray
    kept: np.ndarray | None


def load(
    folder: str, size: int, augment: str = "photo", seed: int = 1, color: bool | None = None
) -> Pictures:
    """The pictures in a folder. color: None: in colour unless all of them are grey.

    Every file is decoded once: those that cannot be are left out and named in `skipped`. As many
    pictures as fit into a quarter of the free memory are kept. Raises InvalidValue for a folder
    from which nothing can be learned.
    """
    top = Path(folder)
    train_folder, valid_folder = _parts(top)
    classes = _classes(train_folder)
    files = list(_files(train_folder, classes))
    if valid_folder is None:
        parts = _split(files, seed)
    else:
        parts = files, list(_files(valid_folder, classes))
    resize = round(size * 8 / 7)
    prepare = Prepare(size, resize, augment), Prepare(size, resize)
    found = _examine(parts, prepare)
    skipped = [f"{e.path}: {e.reason}" for part in found for e in part if e.reason is not None]
    train, valid = ([e for e in part if e.reason is None] for part in found)
    _check(train_folder, classes, train, valid, skipped)
    color = not all(e.grey for e in train) if color is None else color
    mean, squares = np.mean([e.sums for e in train], axis=0)
    std = np.sqrt(np.maximum(squares - mean**2, 1e-6))
    n = 3 if color else 1
    return Pictures(
        top.resolve().name,
        classes,
        Files(train, color, prepare[0]),
        Files(valid, color, prepare[1]),
        (size, size, n),
        resize,
        rounded(mean[:n]),
        rounded(std[:n]),
        _digest(top, train, valid),
        cores(),
        skipped,
        _others(top),
    )


def _digest(top: Path, train: list[Examined], valid: list[Examined]) -> str:
    """Of the names of files, their classes, and which are for validation."""
    named = [[(os.path.relpath(e.path, top), e.label) for e in part] for part in (train, valid)]
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


class Files(Dataset):
    """Items (uint8 (size, size, C), float32 label) of picture files."""

    def __init__(self, files: list[Examined], color: bool, prepare: Prepare):
        self.files, self._color, self._prepare = files, color, prepare

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        file = self.files[idx]
        picture = file.kept
        if picture is None or (not self._color and not file.grey):
            picture = self._prepare.fixed(read(file.path, int(self._color), self._prepare.enough))
        elif self._color and file.grey:
            picture = np.repeat(picture, 3, axis=2)
        return self._prepare.random(picture), np.float32(file.label)


def read(path: str, color: int, enough: tuple[int, int] = (0, 0)) -> np.ndarray:
    """The picture in a file as uint8 (H, W, C). color, enough: as `color` and `reduce_to` of
    codec.decode. Raises MXNetError or OSError that name the file."""
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


def _others(top: Path) -> str:
    """How many files have other endings than pictures: "3 .webp, 1 .txt"; "" where none has."""
    pictures = ImageFolderDataset.extensions
    found = (p for p in top.rglob("[!.]*") if p.suffix.lower() not in pictures and p.is_file())
    endings = Counter(p.suffix.lower() or "without an ending" for p in found)
    return ", ".join(f"{n} {ending}" for ending, n in endings.most_common())


def _split(files: list[tuple[str, int]], seed: int) -> tuple[list, list]:
    """Every fifth picture of each class for validation; of fewer than five, one; of one, none."""
    rng = np.random.default_rng(seed)
    train: list[tuple[str, int]] = []
    valid: list[tuple[str, int]] = []
    for label in sorted({label for _, label in files}):
        of_class = [f for f in files if f[1] == label]
        n = max(len(of_class) // VALID_EVERY, int(len(of_class) > 1))
        chosen = set(rng.permutation(len(of_class))[:n].tolist())
        for i, file in enumerate(of_class):
            (valid if i in chosen else train).append(file)
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


def _examine(
    parts: Iterable[list[tuple[str, int]]], prepare: Iterable[Prepare]
) -> list[list[Examined]]:
    """Decodes every file, on all cores. prepare: one for each part."""
    parts = list(parts)
    bar = Progress(sum(map(len, parts)), "reading pictures", unit="picture")
    found: list[list[Examined]] = []
    left = kept_bytes()
    with ThreadPoolExecutor(cores()) as pool:
        for part, how in zip(parts, prepare):
            found.append([])
            for e in pool.map(functools.partial(_examined, prepare=how), part):
                if e.kept is not None:
                    left -= e.kept.nbytes
                found[-1].append(e if left >= 0 else e._replace(kept=None))
                bar.step()
    bar.close()
    return found


def kept_bytes() -> int:
    """A quarter of the memory that is free: how much of it pictures may take."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 4


def _examined(file: tuple[str, int], prepare: Prepare) -> Examined:
    path, label = file
    try:
        image = read(path, -1, prepare.enough)
    except (MXNetError, OSError) as error:
        why = getattr(error, "strerror", None) or str(error).split("\n")[0]
        return Examined(path, label, why, False, np.zeros((2, 3)), None)
    step = max(1, min(image.shape[:2]) // STATISTICS_PIXELS)
    channels = image.shape[2]
    pixels = image[::step, ::step].reshape(-1, channels).astype(np.float32) / 255
    sums = np.stack([pixels.mean(axis=0), (pixels**2).mean(axis=0)])
    kept = prepare.fixed(image)
    return Examined(path, label, None, channels == 1, np.broadcast_to(sums, (2, 3)), kept)
