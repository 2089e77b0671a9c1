"""What the Python array API standard asks of an array beside NumPy's interface."""

from __future__ import annotations

from typing import Any

from ...engine import Context
from ...engine.error import InvalidValue, ShapeError
from ...engine.lazy import submodule
from .array import ndarray

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def __array_namespace__(self: ndarray, *, api_version: str | None = None) -> Any:
    """The functions of the array API standard. Raises ValueError for an unknown version."""
    if api_version not in (None, *VERSIONS):
        raise InvalidValue(
            f"__array_namespace__: api_version must be one of {', '.join(VERSIONS)}, got"
            f" {api_version!r}"
        )
    return submodule(__package__, "array_api")  # which stands on mx.np


def to_device(self: ndarray, device: Context, /, *, stream: Any = None) -> Any:
    """The array on a device. Raises ValueError for a stream: plait orders its operations itself."""
    if stream is not None:
        raise InvalidValue(f"to_device: stream must be None, got {stream!r}")
    return self.as_in_context(device)


def _transposed(self: ndarray) -> Any:
    """Matrices with rows and columns exchanged."""
    if self.ndim < 2:
        raise ShapeError("mT", f"x must have at least 2 axes, got shape {self.shape}")
    return self.swapaxes(-1, -2)


for _function in (__array_namespace__, to_device):
    setattr(ndarray, _function.__name__, _function)
setattr(ndarray, "device", property(lambda self: self.context, doc="Where the array is."))
setattr(ndarray, "mT", property(_transposed))
