"""JPEG files for the input pipeline benchmark: 256 x 256, as detailed as photographs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

COUNT, EDGE, CROP, BATCH = 384, 256, 224, 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make() -> Any:
    """(folder, paths): COUNT files in two folders, removed with `folder`."""
    from PIL import Image

    folder = tempfile.TemporaryDirectory(prefix="plait-images-")
    rng, paths = np.random.RandomState(0), []
    for i in range(COUNT):
        image = np.zeros((EDGE, EDGE, 3))
        for cells, height in ((4, 120), (16, 60), (64, 40), (EDGE, 12)):
            coarse = Image.fromarray(rng.randint(0, 256, (cells, cells, 3)).astype(np.uint8))
            image += np.asarray(coarse.resize((EDGE, EDGE), Image.Resampling.BICUBIC)) * (
                height / 256
            )
        path = os.path.join(folder.name, "ab"[i % 2], f"{i:04}.jpg")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        paths.append(path)
    return folder, paths


def forever(batches: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from batches()
