"""Model folders: a network that takes pictures, and what its graph cannot say, in `model.json`.

docs/design/model-folder.md describes the files.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

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


class Model:
    """The network in a model folder. Raises FileError for a folder without one, MXNetError for a
    description that it does not understand.

    net: the block. description: what model.json says. classes: their names. shape: (H, W, C) of a
    picture.
    """

    def __init__(self, folder: str | PathLike[str]):
        path = Path(folder) / DESCRIPTION
        text = files.read(str(path), "a model folder", "give a folder that `plait train` wrote")
        self.description = parse_json(text, f"{path}: it")
        try:
            if self.description["format"] != FORMAT:
                raise ValueError(f"its format is {self.description['format']!r}, not {FORMAT!r}")
            (picture,), (output,) = self.description["inputs"], self.description["outputs"]
            _, height, width, channels = picture["shape"]
            if picture["layout"] != "NHWC" or picture["dtype"] != "uint8":
                raise ValueError("its input is no picture: uint8 with layout NHWC")
            self.shape = (int(height), int(width), int(channels))
            self.resize, self.classes = int(picture["resize"]), list(output["classes"])
            parts = [Path(folder) / self.description[k] for k in ("symbol", "params")]
        except (KeyError, TypeError, ValueError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise MXNetError(
                compose(f"a model folder: model.json cannot be used: {why}", str(path))
            ) from None
        self.net = SymbolBlock.imports(str(parts[0]), [picture["name"]], str(parts[1]))
        self.net.hybridize(static_alloc=True, static_shape=True)

    def read(self, path: str | PathLike[str]) -> np.ndarray:
        """The picture in a file as the network takes it: uint8 (H, W, C). Raises MXNetError or
        OSError that name the file."""
        return self.fit(codec.read(path, int(self.shape[2] == 3), strict=True))

    def fit(self, picture: np.ndarray) -> np.ndarray:
        """A picture uint8 (H, W[, C]) of any size, resized and cut to the network's."""
        x = from_memory(np.ascontiguousarray(picture.reshape(*picture.shape[:2], -1)))
        height, width, _ = self.shape
        if min(x.shape[:2]) != self.resize:
            x = Resize(self.resize, keep_ratio=True)(x)
        return CenterCrop((width, height))(x).asnumpy()

    def predict(self, pictures: np.ndarray) -> np.ndarray:
        """Pictures uint8 (N, H, W, C) -> probabilities float32 (N, classes)."""
        return self.net(nd.array(pictures, dtype="uint8")).asnumpy()
