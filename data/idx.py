"""IDX files (the format of MNIST and similar data sets), plain or gzip-compressed."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from ..engine.error import MXNetError, compose

MAX_AXES = 32  # of an IDX file: NumPy's limit
IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class DatasetError(MXNetError, FileNotFoundError):
    """The files of a data set are missing or invalid."""


def read_bytes(path: Path) -> bytes:
    """A file's contents, decompressed if it is a gzip file. Raises DatasetError if it is
    truncated."""
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise DatasetError(
            compose(f"the gzip file is broken: {error}", str(path), "copy it again")
        ) from None


def read_idx(path: Path) -> np.ndarray:
    """The array of an IDX file (.gz or not). Raises DatasetError if it is not an IDX file or is
    truncated.

    Source: LeCun et al., the MNIST database: two zeros, a type code, the number of axes, the sizes,
        the values.
    """
    data = read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in IDX_DTYPES:
        raise DatasetError(
            compose(f"an IDX file begins with 0, 0 and a type code, got {data[:4]!r}", str(path))
        )
    dtype, n_axes = np.dtype(IDX_DTYPES[data[2]]), data[3]
    start = 4 + 4 * n_axes
    shape = struct.unpack(f">{n_axes}I", data[4:start]) if len(data) >= start else ()
    n_bytes = math.prod(shape) * dtype.itemsize
    if math.prod(filter(None, shape)) * dtype.itemsize >= 1 << 63:  # with a 0: no bytes, no array
        raise DatasetError(compose(f"no array has the IDX file's shape {shape}", str(path)))
    if len(data) < start + n_bytes or len(shape) != n_axes or n_axes > MAX_AXES:
        raise DatasetError(
            compose(
                f"the IDX file is truncated: shape {shape} needs {n_bytes} bytes of values, got "
                f"{max(0, len(data) - start)}",
                str(path),
                "copy it again",
            )
        )
    return np.frombuffer(data, dtype, offset=start, count=n_bytes // dtype.itemsize).reshape(shape)


def find(folders: list[Path], names: list[str]) -> Path | None:
    """The first of the files `names` (or names.gz) in the folders."""
    for folder in folders:
        for name in names:
            for path in (folder / name, folder / (name + ".gz")):
                if path.is_file():
                    return path
    return None
