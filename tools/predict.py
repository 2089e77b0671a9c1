"""`plait predict MODEL FILES`: the classes of pictures, by a network that `plait train` wrote."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..engine.error import InvalidValue, MXNetError, compose
from ..gluon.data.vision import ImageFolderDataset
from .arguments import number
from .model_folder import Model

BATCH = 64


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="plait predict",
        description="Prints the class of each picture and its probability; for pictures in folders"
        " that are named as classes, also how many are right.",
    )
    p.add_argument("model", type=Path, help="a model folder, such as out/convnet-digits")
    p.add_argument("pictures", nargs="+", type=Path, help="files, or folders of them")
    p.add_argument(
        "--top", type=number(int, 1), default=1, metavar="N", help="classes to print; default: 1"
    )
    return p


def files_of(paths: list[Path]) -> list[Path]:
    """The named files, and all pictures in the named folders. Raises InvalidValue without one."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else []
        found += [p for p in inside if p.suffix.lower() in ImageFolderDataset.extensions]
        found += [] if path.is_dir() else [path]
    if not found:
        rule = f"no pictures in {', '.join(map(str, paths))}"
        fix = f"pictures end in {', '.join(ImageFolderDataset.extensions)}"
        raise InvalidValue(compose(rule, fix=fix))
    return found


def predictions(model: Model, paths: list[Path]) -> Iterator[tuple[Path, np.ndarray | str]]:
    """(path, probabilities (classes,)), or (path, why it cannot be read), in order."""
    for start in range(0, len(paths), BATCH):
        read: list[tuple[Path, np.ndarray | str]] = []
        for path in paths[start : start + BATCH]:
            try:
                read.append((path, model.read(path)))
            except (MXNetError, OSError) as error:
                read.append((path, str(error).split("\n")[0]))
        pictures = [p for _, p in read if not isinstance(p, str)]
        results = iter(model.predict(np.stack(pictures)) if pictures else ())
        for path, picture in read:
            yield path, picture if isinstance(picture, str) else next(results)


def main(argv: list[str]) -> int:
    """Prints a line for each picture. Returns 1 if one could not be read, else 0."""
    args = parser().parse_args(argv)
    model, paths = Model(args.model), files_of(args.pictures)
    width = max(len(str(path)) for path in paths)
    right = known = failed = 0
    for path, found in predictions(model, paths):
        if isinstance(found, str):
            print(f"{path!s:{width}}  cannot be read: {found}")
            failed += 1
            continue
        best = np.argsort(-found, kind="stable")[: args.top]
        print(
            f"{path!s:{width}}  " + ", ".join(f"{model.classes[i]} {found[i]:.1%}" for i in best),
            flush=True,
        )
        if path.parent.name in model.classes:
            known += 1
            right += path.parent.name == model.classes[best[0]]
    if known:
        print(f"{right} of {known} are right: {right / known:.2%}")
    return int(failed > 0)
