"""Exchange with NumPy and other libraries: zero-copy through DLPack and from_numpy, copies through
__array__."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..engine import Context, callback, cpu, current_context, ffi, lib
from ..engine.device import of_dlpack
from ..engine.error import DeviceError, InvalidType, InvalidValue, MXNetError, OutOfMemory, compose
from ..kernels.record import dtype_name
from ..kernels.spec import NUMPY_DTYPES, spec
from . import dlpack as dlpack_
from .ndarray import NDArray, ReadOnly, from_memory, make

ENTERED_BY_US = (b"dltensor", b"dltensor_versioned")


# ---- out -----------------------------------------------------------------------------------------


class _Memory:
    """An array's memory for NumPy; keeps the array alive, without its tape entry."""

    def __init__(self, array: NDArray):
        lib.pl_array_expose(array._handle)
        self.array = array.detach()
        s = array._spec
        self.__array_interface__ = {
            "version": 3,
            "shape": s.shape,
            "typestr": np.dtype(s.dtype).str,
            "data": (
                int(ffi.cast("uintptr_t", lib.pl_array_data(array._handle))),
                bool(lib.pl_array_protected(array._handle)),
            ),
        }


def _shared(array: NDArray) -> np.ndarray:
    """A NumPy array on the same memory; the caller has waited. Raises BufferError for bfloat16."""
    if array._spec.dtype == "bfloat16":
        raise BufferError(
            compose(
                "DLPack: bfloat16 arrays cannot be shared, since NumPy has no such dtype",
                fix="x.astype('float32')",
            )
        )
    return np.asarray(_Memory(array)) if array.size else np.empty(array.shape, array._spec.dtype)


def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule on this array's memory, for from_dlpack of other libraries. Waits until nobody
    writes it.

    Later operations of plait on the array do not wait for the other library, nor it for them.
    A read-only array is exported with DLPack 1.0's read-only flag if max_version allows it, else
    copied.
    Raises BufferError for bfloat16, for another device, or with a stream.
    """
    if not self._spec.device.on_host:
        if dl_device is None or dl_device == self.__dlpack_device__():
            return dlpack_.capsule_of(self.copy() if copy else self)
        if dl_device != cpu().dlpack or copy is False:
            raise BufferError(
                f"DLPack: an array on {self.context} cannot be given on device {dl_device}"
                + " without a copy" * (copy is False)
            )
        self, stream, copy = self.as_in_context(cpu()), None, None
    if stream is not None:
        raise BufferError(f"DLPack: a CPU array takes no stream, got {stream!r}")
    self.wait_to_write()
    self.wait_to_read()
    if not self.writable and (max_version is None or max_version[0] < 1) and copy is not False:
        self = self.copy()  # an old capsule has no read-only flag
        self.wait_to_read()
    return _shared(self).__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def __dlpack_device__(self) -> tuple[int, int]:
    """(1, 0): the CPU; (2, i): gpu(i)."""
    return self._spec.device.dlpack


def to_dlpack_for_read(data: NDArray) -> Any:
    """A DLPack capsule to read from; waits until the contents are computed. A read-only array is
    copied, because the other library could write to it."""
    if not data._spec.device.on_host:
        return dlpack_.capsule_of(data)
    data = data if data.writable else data.copy()
    data.wait_to_read()
    return _shared(data).__dlpack__()


def to_dlpack_for_write(data: NDArray) -> Any:
    """A DLPack capsule to write to; waits for pending reads and writes of the array. Raises
    ValueError for a read-only array."""
    if not data._spec.device.on_host:
        return dlpack_.capsule_of(data)
    if not data.writable:
        raise InvalidValue(compose("to_dlpack_for_write: the array is read-only", fix="x.copy()"))
    data.wait_to_write()
    data.wait_to_read()
    return _shared(data).__dlpack__()


def __array__(self, dtype=None, copy=None) -> np.ndarray:
    """A copy of the values for NumPy. Raises ValueError if copy is False: operations could still
    write the memory."""
    if copy is False:
        raise InvalidValue(
            compose(
                "NumPy cannot access an NDArray without a copy",
                fix="np.from_dlpack(x) shares the memory",
            )
        )
    values = self.asnumpy()
    return values if dtype is None else values.astype(dtype, copy=False)


# ---- in ------------------------------------------------------------------------------------------


class _Capsule:
    """Wraps a bare capsule for NumPy's from_dlpack."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return cpu().dlpack


def _is_capsule(value) -> bool:
    return type(value).__name__ == "PyCapsule"


def from_dlpack(dlpack: Any) -> NDArray:
    """An NDArray on the memory of another library's array (anything with __dlpack__), or of a
    capsule.

    Memory that is read-only, not contiguous or not aligned is copied. The other array is kept alive
    while the NDArray uses it. Raises TypeError for other objects and used capsules, DeviceError for
    arrays that are not on the CPU.
    """
    return imported(dlpack)


def imported(dlpack: Any, copy: bool | None = None, read_only: bool = False) -> NDArray:
    """from_dlpack with what mx.np adds. copy: always, or never (BufferError where it is needed).
    read_only: read-only memory gives a read-only array instead of a copy."""
    writable = False
    if _is_capsule(dlpack):
        name = _capsule_name(dlpack)
        if name not in ENTERED_BY_US:
            raise InvalidType(
                "from_dlpack: the capsule was used before or is not a DLPack capsule (its name is"
                f" {name!r})"
            )
        device = dlpack_.device_of(dlpack)
        if device is not None and not device.on_host:
            return _on_gpu(dlpack, copy)
        # old capsules have no read-only flag
        producer, writable = _Capsule(dlpack), name == b"dltensor"
    elif hasattr(dlpack, "__dlpack__"):
        producer = dlpack
        kind, number = dlpack.__dlpack_device__()
        device = of_dlpack(kind, number)
        if device is None:
            raise DeviceError(
                f"from_dlpack: the array is on DLPack device ({kind}, {number}), only the CPU (1,"
                " 0) and CUDA GPUs (2, i) are usable here\n  fix: move it to the CPU first"
            )
        if not device.on_host:
            return _on_gpu(dlpack, copy)
    else:
        raise InvalidType(
            f"from_dlpack: needs an array with __dlpack__ or a capsule, got {type(dlpack).__name__}"
        )
    try:
        values = np.from_dlpack(producer)
    except (RuntimeError, BufferError, ValueError) as error:
        raise MXNetError(f"from_dlpack: {error}") from error
    dtype = dtype_name(values.dtype)
    shared = not copy and _borrowable(values)
    if shared and (values.flags.writeable or writable):
        return _wrapped(values, cpu(), values)
    if shared and read_only:
        return _protected(values, cpu())
    if copy is False:
        raise BufferError(
            compose(
                "from_dlpack: copy=False needs writable, contiguous, aligned memory, got strides"
                f" {values.strides} for shape {values.shape}",
                fix="copy=None",
            )
        )
    return from_memory(values, cpu(), dtype)


def _on_gpu(dlpack: Any, copy: bool | None) -> NDArray:
    found = dlpack_.array_of(dlpack)
    return found.copy() if copy else found


def _protected(values: np.ndarray, device: Context) -> NDArray:
    """A read-only NDArray on read-only memory."""
    out = _wrapped(values, device, ReadOnly(values))
    lib.pl_array_protect(out._handle)
    return out


def _capsule_name(capsule) -> bytes | None:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return name(capsule)


def from_numpy(ndarray: Any, zero_copy: bool = True, array_cls: Any = NDArray) -> NDArray:
    """An NDArray of a NumPy array's dtype; with zero_copy on its memory, which NumPy must not write
    any more. It is on the current device, or on cpu(0) where that cannot read the memory.

    The NumPy array becomes read-only with zero_copy, as in MXNet. If it was read-only before (a
    memory-mapped file, bytes), the NDArray is too, and writing to it raises ValueError.

    Raises ValueError if zero_copy is requested for an array that is not C-contiguous, not aligned,
    or of the other byte order.
    """
    if not isinstance(ndarray, np.ndarray):
        raise InvalidType(f"from_numpy: needs a numpy.ndarray, got {type(ndarray).__name__}")
    name = dtype_name(ndarray.dtype)
    if not zero_copy:
        return from_memory(ndarray, current_context(), name)
    if not _borrowable(ndarray):
        raise InvalidValue(
            compose(
                "from_numpy: zero_copy needs a C-contiguous, aligned array in the machine's byte"
                f" order, got strides {ndarray.strides} for shape {ndarray.shape}, address"
                f" {ndarray.ctypes.data:#x} and dtype {ndarray.dtype.str}",
                fix="zero_copy=False",
            )
        )
    device = current_context()
    device = device if device.on_host else cpu()
    if ndarray.flags.writeable:
        out = _wrapped(ndarray, device, ndarray)
        ndarray.flags.writeable = False
    else:
        out = _protected(ndarray, device)
    return out


def _borrowable(values: np.ndarray) -> bool:
    """Can our kernels use this memory directly?"""
    f = values.flags
    return f.c_contiguous and f.aligned and values.dtype == NUMPY_DTYPES[dtype_name(values.dtype)]


def _wrapped(values: np.ndarray, device: Context, owner) -> NDArray:
    """An NDArray on `values`' memory; the core releases `owner` after the last use of the
    memory."""
    number = callback.keep(owner)
    data = ffi.cast("void *", values.ctypes.data)
    handle = lib.pl_array_wrap(data, values.nbytes, callback.RELEASE, callback.pointer_to(number))
    if not handle:
        callback.drop(number)
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    return make(handle, spec(values.shape, dtype_name(values.dtype), device))


for _method in (__dlpack__, __dlpack_device__, __array__, to_dlpack_for_read, to_dlpack_for_write):
    setattr(NDArray, _method.__name__, _method)
