"""npx.save and npx.load: the files of nd.save with arrays of mx.np."""

from __future__ import annotations

from os import PathLike
from typing import Any

from .. import serialization
from ..ndarray import NDArray, seen_as
from ..numpy.array import ndarray


def save(file: str | PathLike[str], arr: Any) -> None:
    """Writes an array, a list of arrays or a dict of name -> array. See nd.save."""
    serialization.save(file, list(arr) if isinstance(arr, tuple) else arr)


def load(file: str | PathLike[str]) -> list[ndarray] | dict[str, ndarray]:
    """The arrays of a file, written by npx.save or nd.save: a list, or a dict if they have names.
    Sparse ones stay NDArrays. See nd.load."""
    found = serialization.load(file)
    if isinstance(found, dict):
        return {name: _dense(x) for name, x in found.items()}
    return [_dense(x) for x in found]


def _dense(x: NDArray) -> Any:
    return seen_as(ndarray, x) if x.stype == "default" else x
