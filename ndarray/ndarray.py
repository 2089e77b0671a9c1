"""NDArray: an array whose contents the engine computes; a handle of the core and an interned
Spec."""

from __future__ import annotations

import threading

import numpy as np

from ..engine import current_context, lib, wait
from ..engine._array import Array, make, set_class  # noqa: F401
from ..engine.error import InvalidType, OutOfMemory
from ..kernels.plan import MAX_BYTES, view_as_numpy
from ..kernels.record import dtype_name
from ..kernels.spec import NUMPY_DTYPES, Spec, spec


class NDArray(Array):
    """A multi-dimensional array of one dtype on one device; operations on it run asynchronously.

    Made by `nd.array`, `nd.zeros` ..., not by calling the class. Reading values (asnumpy, printing)
    waits for them.
    """

    __slots__ = ()
    __array_priority__ = 1000.0

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spec.shape

    @property
    def dtype(self):
        """The NumPy type, e.g. numpy.float32."""
        d = NUMPY_DTYPES[self._spec.dtype]
        return d if d.names else d.type

    @property
    def size(self) -> int:
        return self._spec.size

    @property
    def ndim(self) -> int:
        return len(self._spec.shape)

    @property
    def context(self):
        return self._spec.device

    ctx = context

    @property
    def stype(self) -> str:
        return "default"

    @property
    def handle(self) -> int:
        return self._handle

    # ---- values ----------------------------------------------------------------------------------

    def wait_to_read(self) -> None:
        """Blocks until the contents are computed. Raises the MXNetError of the operation that
        failed, if one did."""
        wait(self._handle)

    def wait_to_write(self) -> None:
        """Blocks until nothing reads or writes the array any more."""
        wait(self._handle, for_write=True)

    def asnumpy(self) -> np.ndarray:
        """A copy as a NumPy array; waits for the contents."""
        wait(self._handle)
        return self._memory().copy()

    def _memory(self) -> np.ndarray:
        """The memory itself as a NumPy array, valid while self lives; the caller has waited."""
        return view_as_numpy(lib.pl_array_data(self._handle), self._spec)


set_class(NDArray)


def empty_like_spec(s: Spec) -> NDArray:
    """Uninitialised memory of a spec. Raises MemoryError."""
    s.device.check()
    handle = lib.pl_array_new(s.nbytes) if s.nbytes <= MAX_BYTES else 0
    if not handle:
        raise OutOfMemory(
            f"no memory for an array of shape {s.shape} and dtype {s.dtype} ({s.nbytes} bytes)"
        )
    return make(handle, s)


def from_memory(values: np.ndarray, ctx=None, dtype: str | None = None) -> NDArray:
    """A new array with a copy of NumPy values."""
    name = dtype or dtype_name(values.dtype)
    out = empty_like_spec(spec(tuple(values.shape), name, ctx or current_context()))
    if values.size:
        out._memory()[...] = (
            values if NUMPY_DTYPES[name] == values.dtype else _converted(values, name)
        )
    return out


def _converted(values: np.ndarray, name: str) -> np.ndarray:
    from ..kernels.spec import BFLOAT16, from_bfloat16, round_to_bfloat16

    if values.dtype == BFLOAT16:
        values = from_bfloat16(values)
    if name == "bfloat16":
        return round_to_bfloat16(values)
    with np.errstate(all="ignore"):
        return values.astype(NUMPY_DTYPES[name])


class _State(threading.local):
    """What autograd's scopes switch, for each thread."""

    recording = False
    training = False
    asked_recording = False  # has is_recording() been called since a trace began?


state = _State()


def check_nd(value, what: str):
    if not isinstance(value, NDArray):
        raise InvalidType(
            f"{what} must be an NDArray, got {type(value).__name__}\n  fix: nd.array(x)"
        )
