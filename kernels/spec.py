"""Specs: shape, dtype, device and memory layout of an array, interned so that plans are found by
identity."""

from __future__ import annotations

import threading
import weakref
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..engine.error import DeviceError, DTypeError, InvalidType, ShapeError
from ..engine.recent import Recent
from .layouts import physical_shape
from .record import DTYPES, Type

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # as MXNet shows it to NumPy
NUMPY_DTYPES = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in DTYPES}
ITEM_BYTES = {name: dtype.itemsize for name, dtype in NUMPY_DTYPES.items()}
DType: TypeAlias = "str | type | np.dtype[Any]"  # a dtype as users give it
STYPES = ("default", "row_sparse", "csr")  # of storage; index = MXNet's number


class Spec:
    """Interned: two arrays of the same shape, dtype, device, layout and storage type have the same
    Spec object. Made by `spec`."""

    __slots__ = (
        "shape",
        "dtype",
        "device",
        "layout",
        "size",
        "nbytes",
        "type",
        "stype",
        "label",
        "__weakref__",
    )
    shape: tuple[int, ...]
    dtype: str
    device: Any
    layout: str
    size: int
    nbytes: int
    type: Type
    stype: str
    label: bytes  # as the profiler shows it

    def __repr__(self):
        return f"{self.dtype}{list(self.shape)}@{self.device}"


_alive: weakref.WeakValueDictionary[tuple, Spec] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # of _alive
_interned = Recent(1 << 11)  # of those alive, the ones used last


def spec(
    shape: tuple[int, ...], dtype: str, device: Any, layout: str = "", stype: str = "default"
) -> Spec:
    """The one Spec of this shape (tuple of ints), dtype name, device (a Context) and layout. stype:
    default, row_sparse or csr; no plan is made for the sparse ones."""
    key: tuple = (shape, dtype, device, layout) if layout else (shape, dtype, device)
    if stype != "default":
        key = (shape, dtype, device, layout, stype)
    found = _interned[key]
    if found is None:
        made = Spec()
        made.shape, made.dtype, made.device, made.layout = shape, dtype, device, layout
        made.stype = stype
        made.size = prod(shape)
        made.nbytes = prod(physical_shape(shape, layout)) * ITEM_BYTES[dtype]
        made.type = Type(shape, dtype, layout)
        made.label = (str(shape) if dtype == "float32" else f"{dtype} {shape}").encode()
        with _lock:
            found = _interned[key] = _alive.setdefault(key, made)
    return found


def fits(given: Spec, wanted: Spec, role: str, i: int) -> None:
    """Where an array's Spec is not the one that a plan or program was compiled for: may the array
    enter it all the same? Raises DTypeError, ShapeError, DeviceError, InvalidType where not.

    Devices may differ if their memory is the same: cpu(1) reads what cpu(0) made.
    """
    at, want, have = f"{role} {i}", f"{wanted.dtype} {wanted.shape}", f"{given.dtype} {given.shape}"
    if given.stype != "default":
        raise InvalidType(f"{at} must be dense, got {given.stype}\n  fix: x.tostype('default')")
    if given.dtype != wanted.dtype:
        fix = f"x.astype({wanted.dtype!r})"
        raise DTypeError(at, f"must be {want}, as it was compiled for, got {have}", fix)
    if (given.shape, given.layout) != (wanted.shape, wanted.layout):
        raise ShapeError(at, f"must be {want}, as it was compiled for, got {have}")
    if given.device.memory != wanted.device.memory:
        raise DeviceError(
            f"{at} must be on {wanted.device}, as it was compiled for, got {given.device}\n"
            f"  fix: x.as_in_context({wanted.device})"
        )


def round_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float array -> bfloat16 bits (structured dtype BFLOAT16), to nearest even; NaN stays NaN."""
    bits = np.asarray(x, np.float32, order="C").view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, np.uint16(0x7FC0), rounded).astype(np.uint16).view(BFLOAT16)


def from_bfloat16(x: np.ndarray) -> np.ndarray:
    """bfloat16 bits (BFLOAT16 or uint16) -> float32 array."""
    return (np.asarray(x, order="C").view(np.uint16).astype(np.uint32) << 16).view(np.float32)
