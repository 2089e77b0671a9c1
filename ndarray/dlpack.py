"""DLPack for memory that the host cannot read: capsules on our arrays, and arrays on capsules of
others.

NumPy, which speaks for the host's memory (interop.py), knows no other. Source: DLPack, dlpack.h.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from ..engine import Context, callback, ffi, lib
from ..engine._array import lend
from ..engine.device import of_dlpack
from ..engine.error import InvalidType, MXNetError, OutOfMemory, compose
from ..kernels.spec import ITEM_BYTES, spec
from .ndarray import NDArray, make

NAME, USED = b"dltensor", b"used_dltensor"
# dtype -> (code, bits)
CODES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bfloat16": (4, 16),
    "bool": (6, 8),
}
DTYPES = {code: name for name, code in CODES.items()}

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),  # device_type, device_id
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


@functools.cache
def _python(name: str, result, *arguments):
    """A function of Python's C API."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


def _pointer(capsule, name: bytes) -> int | None:
    valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
    get = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return get(capsule, name) if valid(capsule, name) else None


# ---- out -----------------------------------------------------------------------------------------


def capsule_of(array: NDArray) -> Any:
    """A capsule on the memory of an array on a GPU; waits for its pending writes. Later operations
    and the other library do not wait for each other."""
    array.wait_to_write()
    array.wait_to_read()
    lib.pl_array_expose(array._handle)
    s = array._spec
    shape = (ctypes.c_int64 * len(s.shape))(*s.shape)
    code, bits = CODES[s.dtype]
    data = int(ffi.cast("uintptr_t", lib.pl_array_data(array._handle)))
    tensor = Tensor(data, s.device.dlpack, len(s.shape), code, bits, 1, shape)
    managed = Managed(tensor)
    managed.context = callback.keep((managed, shape, array.detach()))
    return lend(ctypes.addressof(managed))


# ---- in ------------------------------------------------------------------------------------------


class _Foreign:
    """Memory of another library, released when this object is freed."""

    def __init__(self, managed: Managed):
        self._managed = managed

    def __del__(self):
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def device_of(capsule: Any) -> Context | None:
    """The device of a fresh capsule; None for one of another kind, or that is not fresh."""
    address = _pointer(capsule, NAME)
    return None if address is None else of_dlpack(*Managed.from_address(address).tensor.device)


def array_of(producer: Any) -> NDArray:
    """An NDArray on the memory of a capsule, or of anything with __dlpack__, on a GPU.

    Raises InvalidType for unsupported dtypes, MXNetError for non-contiguous memory, DeviceError for
    an unusable GPU.
    """
    capsule = producer
    if hasattr(producer, "__dlpack__"):
        kind, number = producer.__dlpack_device__()
        _usable(kind, number)
        stream = lib.pl_gpu_compute_stream(number)  # the producer waits for its pending work
        capsule = producer.__dlpack__(stream=int(ffi.cast("uintptr_t", stream)))
    address = _pointer(capsule, NAME)
    if address is None:
        raise InvalidType("from_dlpack: the capsule was used before or is not a DLPack capsule")
    managed = Managed.from_address(address)
    t = managed.tensor
    device = _usable(*t.device)
    name = DTYPES.get((t.code, t.bits))
    if name is None or t.lanes != 1:
        raise InvalidType(f"from_dlpack: DLPack dtype ({t.code}, {t.bits}, {t.lanes}) is unknown")
    shape = tuple(t.shape[: t.ndim])
    if t.strides and prod(shape):
        strides, wanted = t.strides[: t.ndim], 1
        for n, stride in zip(reversed(shape), reversed(strides)):
            if n > 1 and stride != wanted:
                raise MXNetError(
                    compose(
                        f"from_dlpack: memory of a GPU must be contiguous, got strides {strides} "
                        f"for shape {shape}",
                        fix="x.contiguous()",
                    )
                )
            wanted *= n
    _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(capsule, USED)
    s = spec(shape, name, device)
    kept = callback.keep(_Foreign(managed))
    data = ffi.cast("void *", (t.data or 0) + t.byte_offset)
    handle = lib.pl_array_wrap_in(
        device.memory,
        data,
        prod(shape) * ITEM_BYTES[name],
        callback.RELEASE,
        callback.pointer_to(kept),
    )
    if not handle:
        callback.drop(kept)
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    return make(handle, s)


def _usable(kind: int, number: int) -> Context:
    """The device that DLPack names so. Raises DeviceError where it cannot be used."""
    device = of_dlpack(kind, number)
    assert device is not None  # interop.py asks first
    device.check()
    return device
