"""The models in a folder: names, versions, and for each whether it is loaded and how it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.error import MXNetError
from . import buckets, model
from .protocol import NAMES, Tensor
from .refused import Refused

CLOSE = 1e-3  # of the largest number: rows of a batch may differ so much from single ones
WARM_SECONDS = 0.2  # in which a size is timed


class Served:
    """One version of a model.

    state: loading, ready or failed; error: why it failed. batched: whether the first axis of all
    arrays is that of independent rows, which requests may share.
    """

    def __init__(self, name: str, version: str, folder: Path):
        self.name, self.version, self.folder = name, version, folder
        self.state, self.error = "loading", ""
        self.model: model.Model | None = None
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.batched, self.plan = False, buckets.linear(1)
        self.shapes: set[tuple] = set()  # undeclared ones that were compiled

    def load(self, read: Callable[[Path], model.Model], most: int) -> None:
        """Reads the files and runs each size of a batch once, which compiles it."""
        try:
            made = read(self.folder)
            self.inputs, self.outputs = list(made.inputs), list(made.outputs)
            self._warm(made, most)
            self.model, self.state = made, "ready"
        except Exception as error:  # whatever a file does, the other models are served
            self.state = "failed"
            self.error = str(error) if isinstance(error, (MXNetError, OSError)) else repr(error)

    def _warm(self, made: model.Model, most: int) -> None:
        if not all(i.shape is not None and i.datatype is not None for i in self.inputs):
            return  # nothing to run it with, and nothing to compare rows with
        first = all(i.shape[0] == -1 for i in self.inputs if i.shape is not None)
        self._outputs(made.run(model.examples(self.inputs, 1)), first)
        self.batched = first and bool(self.inputs) and most > 1 and rows_are_independent(
            made, self.inputs
        )  # fmt: skip
        seconds = {n: seconds_of(made, self.inputs, n)
                   for n in (buckets.sizes(most) if self.batched else [1])}  # fmt: skip
        # sizes that vary besides the rows: what was measured says nothing of them
        fixed = all(n > 0 for i in self.inputs for n in (i.shape or ())[1:])
        self.plan = buckets.Plan(seconds) if fixed else buckets.linear(max(seconds))

    def _outputs(self, results: list[np.ndarray], batched: bool) -> None:
        """Types and shapes of outputs that are not declared."""
        for i, x in enumerate(results):
            old = self.outputs[i] if i < len(self.outputs) else Tensor(f"output{i}", None, None)
            shape = old.shape or ((-1, *x.shape[1:]) if batched and x.ndim else x.shape)
            self.outputs[i : i + 1] = [old._replace(datatype=NAMES[x.dtype], shape=shape)]

    def rows(self, arrays: list[np.ndarray]) -> int:
        """Of a request; 1 where it does not share a call. Raises Refused."""
        if not self.batched:
            return 1
        if any(a.ndim == 0 for a in arrays) or len({len(a) for a in arrays}) != 1:
            shapes = [list(a.shape) for a in arrays]
            raise Refused(422, f"the first axis of all inputs must be that of rows, got {shapes}")
        if len(arrays[0]) > self.plan.most:
            raise Refused(
                413, f"{len(arrays[0])} rows, but a request may have {self.plan.most}\n  fix:"
                " several requests, or start the server with a larger --max-batch",
            )  # fmt: skip
        return len(arrays[0])

    def admit(self, arrays: list[np.ndarray], most: int) -> tuple:
        """The signature of a request's arrays: what may run in one call. Raises Refused where it
        would be one compiled program too many."""
        skip = int(self.batched)
        key = tuple((a.shape[skip:], a.dtype.str) for a in arrays)
        if key not in self.shapes:
            if len(self.shapes) >= most:
                raise Refused(
                    422, f"the model already serves {most} shapes of inputs, and none is"
                    f" {[list(a.shape) for a in arrays]}\n  fix: pad them, or --max-shapes",
                )  # fmt: skip
            self.shapes.add(key)
        return key

    def described(self, versions: list[str]) -> dict[str, Any]:
        """The metadata of the protocol."""
        return {
            "name": self.name,
            "versions": versions,
            "platform": self.model.platform if self.model else "",
            "inputs": [t.described() for t in self.inputs],
            "outputs": [t.described() for t in self.outputs],
        }


def rows_are_independent(made: model.Model, inputs: list[Tensor]) -> bool:
    """Has each row of a batch the results that it has alone?"""
    arrays = model.examples(inputs, 2, seed=0)
    together = made.run([a.copy() for a in arrays])
    for row in range(2):
        alone = made.run([a[row : row + 1].copy() for a in arrays])
        for a, b in zip(alone, together):
            if a.ndim == 0 or len(a) != 1 or b.shape != (2, *a.shape[1:]):
                return False
            a, b = a[0].astype(np.float64), b[row].astype(np.float64)
            if not np.allclose(a, b, atol=CLOSE * np.abs(a).max(initial=1e-6), equal_nan=True):
                return False
    return True


def seconds_of(made: model.Model, inputs: list[Tensor], rows: int) -> float:
    """The least of some calls."""
    least, end = float("inf"), None
    for _ in range(10):
        arrays = model.examples(inputs, rows)
        start = time.perf_counter()
        made.run(arrays)
        now = time.perf_counter()
        if end is None:  # this call compiled
            end = now + WARM_SECONDS
            continue
        least = min(least, now - start)
        if now > end:
            break
    return least


class Repository:
    """The models of a folder. The folder is a model, or has versions of one (folders 1, 2 ...), or
    has folders that are so. name: of the model, if it is one; else the folder's."""

    def __init__(self, folder: Path, name: str | None = None):
        self.models: dict[str, dict[str, Served]] = {}
        if not folder.is_dir():
            raise MXNetError(f"{folder} is no folder\n  fix: give a folder with a model in it")
        for own, version, place in _places(folder, name):
            self.models.setdefault(own, {})[version] = Served(own, version, place)
        if not self.models:
            raise MXNetError(
                f"{folder} has no model: a folder of one holds X-symbol.json and X-0000.params,"
                " X-model.json and X-model.params, or X.onnx"
            )

    def __iter__(self) -> Iterator[Served]:
        for versions in self.models.values():
            yield from versions.values()

    def find(self, name: str, version: str | None) -> Served:
        """A model; the highest version that is not failed, if none is given. Raises Refused."""
        versions = self.models.get(name)
        if versions is None:
            raise Refused(404, f"no model {name[:80]!r}\n  fix: one of {sorted(self.models)}")
        if version is None:
            good = [v for v in versions.values() if v.state != "failed"] or [*versions.values()]
            return max(good, key=lambda v: int(v.version))
        if version not in versions:
            raise Refused(
                404, f"model {name!r} has no version {version[:80]!r}\n  fix: one of"
                f" {sorted(versions, key=int)}",
            )  # fmt: skip
        return versions[version]


def _places(folder: Path, name: str | None) -> Iterator[tuple[str, str, Path]]:
    if model.is_model(folder) or _versions(folder):
        yield from _of_model(name or folder.resolve().name, folder)
        return
    if name is not None:
        raise MXNetError(f"{folder} is no model, so it cannot be named {name!r}")
    for part in sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] != "."):
        yield from _of_model(part.name, part)


def _of_model(name: str, folder: Path) -> Iterator[tuple[str, str, Path]]:
    if model.is_model(folder):
        yield name, "1", folder
    for version in _versions(folder):
        yield name, version.name, version


def _versions(folder: Path) -> list[Path]:
    numbered = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit() and p.is_dir()]
    return sorted((p for p in numbered if model.is_model(p)), key=lambda p: int(p.name))
