"""Model folders: a network that takes pictures, and what its graph cannot say, in `model.json`.

docs/design/model-folder.md describes the files.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engine import files
from ..engine.error import MXNetError, compose, parse_json
from ..gluon import SymbolBlock
from ..gluon.data.vision.transforms import CenterCrop, Resize
from ..ndarray import codec
from ..ndarray import functions as nd
from ..ndarray.ndarray import from_memory

FORMAT = "plait model 1"
DESCRIPTION = "model.json"


def write(
    folder: str | PathLike[str],
    net: Any,
    shape: tuple[int, int, int],
    classes: Sequence[str],
    resize: int,
    accuracy: float | None = None,
) -> None:
    """Writes a model folder.

    net: a hybridized block that has run once: uint8 (N, H, W, C) -> probabilities (N, classes).
    shape: (H, W, C) of a picture. resize: pixels of its shorter edge before the centre is cut out.
    accuracy: of the validation pictures, in [0, 1].
    """
    from .. import __version__

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    net.export(str(folder / "model"))
    description = {
        "format": FORMAT,
        "name": folder.name,
        "symbol": "model-symbol.json",
        "params": "model-0000.params",
        "inputs": [
            {
                "name": "data",
                "dtype": "uint8",
                "shape": [None, *shape],
                "layout": "NHWC",
                "resize": resize,
            }
        ],
        "outputs": [
            {
                "name": "probabilities",
                "dtype": "float32",
                "shape": [None, len(classes)],
                "classes": list(classes),
            }
        ],
        "made": {
            "plait": __version__,
            "date": datetime.date.today().isoformat(),
            "accuracy": accuracy,
        },
    }
    text = json.dumps(description, indent=1, ensure_ascii=False)
    files.write(str(folder / DESCRIPTION), text.encode())


class Array(NamedTuple):
    """An input or output. shape: -1 where a size varies. classes: names of the entries along the
    last axis. resize: of a picture (N, H, W, C), pixels of its shorter edge before the centre is
    cut out; 0 for what is no picture."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    resize: int = 0


class Description(NamedTuple):
    """What model.json says. graph: the files of graph and parameters, where it names them."""

    inputs: list[Array]
    outputs: list[Array]
    graph: tuple[Path, Path] | None = None


def describe(folder: str | PathLike[str]) -> Description:
    """Reads model.json. Raises FileError where there is none, MXNetError where it is wrong."""
    path = Path(folder) / DESCRIPTION
    text = files.read(str(path), "a model folder", "give a folder that `plait train` wrote")
    said = parse_json(text, f"{path}: it")
    try:
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, not {FORMAT!r}")
        inputs, outputs = ([_array(entry) for entry in said[k]] for k in ("inputs", "outputs"))
        graph = None
        if "symbol" in said and "params" in said:
            graph = path.parent / said["symbol"], path.parent / said["params"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise _unusable(path, why) from None
    return Description(inputs, outputs, graph)


def _array(entry: dict[str, Any]) -> Array:
    shape = tuple(-1 if n is None else int(n) for n in entry["shape"])
    classes = tuple(map(str, entry.get("classes", ())))
    if any(n == 0 or n < -1 for n in shape):
        raise ValueError(f"a size is null, where it varies, or positive, got {entry['shape']}")
    if classes and shape[-1] not in (-1, len(classes)):
        raise ValueError(f"{len(classes)} classes for the shape {entry['shape']}")
    resize = int(entry["resize"]) if entry.get("layout") == "NHWC" else 0
    if resize and not (entry["dtype"] == "uint8" and len(shape) == 4 and min(shape[1:]) > 0):
        raise ValueError("pictures are uint8 of shape [null, height, width, channels]")
    return Array(str(entry["name"]), str(entry["dtype"]), shape, classes, resize)


def _unusable(path: Path, why: object) -> MXNetError:
    return MXNetError(compose(f"a model folder: {DESCRIPTION} cannot be used: {why}", str(path)))


def fit(picture: np.ndarray, shape: Sequence[int], resize: int) -> np.ndarray:
    """A picture uint8 (H, W[, C]) of any size as uint8 of a shape (H, W, C): its shorter edge is
    resized to so many pixels, and the centre is cut out."""
    x = from_memory(np.ascontiguousarray(picture.reshape(*picture.shape[:2], -1)))
    if min(x.shape[:2]) != resize:
        x = Resize(resize, keep_ratio=True)(x)
    return CenterCrop((shape[1], shape[0]))(x).asnumpy()


class Model:
    """The classifier in a model folder. Raises FileError for a folder without one, MXNetError for
    a description that it does not understand.

    net: the block. classes: their names. shape: (H, W, C) of a picture.
    """

    def __init__(self, folder: str | PathLike[str]):
        inputs, outputs, graph = describe(folder)
        classes = outputs[0].classes if outputs else ()
        if graph is None or [bool(i.resize) for i in inputs] != [True] or not classes:
            raise _unusable(Path(folder) / DESCRIPTION, "it describes no classifier of pictures")
        (picture,) = inputs
        self.shape, self.resize = picture.shape[1:], picture.resize
        self.classes = list(classes)
        self.net = SymbolBlock.imports(str(graph[0]), [picture.name], str(graph[1]))
        self.net.hybridize(static_alloc=True, static_shape=True)

    def read(self, path: str | PathLike[str]) -> np.ndarray:
        """The picture in a file as the network takes it: uint8 (H, W, C). Raises MXNetError or
        OSError that name the file."""
        return self.fit(codec.read(path, int(self.shape[2] == 3), strict=True))

    def fit(self, picture: np.ndarray) -> np.ndarray:
        """A picture uint8 (H, W[, C]) of any size, resized and cut to the network's."""
        return fit(picture, self.shape, self.resize)

    def predict(self, pictures: np.ndarray) -> np.ndarray:
        """Pictures uint8 (N, H, W, C) -> probabilities float32 (N, classes)."""
        return self.net(nd.array(pictures, dtype="uint8")).asnumpy()
