"""NDArray: an array whose contents the engine computes; a handle of the core and an interned
Spec."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..engine import Context, callback, cpu, cpu_pinned, current_context, ffi, lib, location, wait
from ..engine._array import Array, invoke, make, make_of, set_class
from ..engine.error import DeviceError, InvalidType, OutOfMemory
from ..kernels.plan import MAX_BYTES, transfer_plan
from ..kernels.record import dtype_name
from ..kernels.reference import view_as_numpy
from ..kernels.spec import NUMPY_DTYPES, Spec, fits, spec

if TYPE_CHECKING:
    from ._methods import Methods  # a stub: what is added to the class below
else:
    Methods = Array


class NDArray(Methods):
    """A multi-dimensional array of one dtype on one device; operations on it run asynchronously.

    Made by `nd.array`, `nd.zeros` ..., not by calling the class. Reading values (asnumpy, printing)
    waits for them.
    """

    __slots__ = ()
    __array_priority__ = 1000.0
    # np.add(x, y) is a TypeError, and a NumPy number times x is left to x
    __array_ufunc__ = None
    _element: ClassVar[tuple[int, ...]] = (1,)  # the shape of one element, x[0] of a vector

    def __init__(self, handle: Any, writable: bool = True):
        if handle is not None:  # MXNet's pickles create an array that __setstate__ fills
            raise InvalidType(
                f"NDArray: cannot be called to make an array, got {handle!r}\n"
                "  fix: nd.array(x), nd.zeros(shape) or another function of nd"
            )

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spec.shape

    @property
    def dtype(self) -> Any:
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
    def context(self) -> Context:
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
        """Blocks until the contents are computed. Raises the MXNetError of a failed operation."""
        wait(self._handle)

    def wait_to_write(self) -> None:
        """Blocks until all pending reads and writes of the array are done."""
        wait(self._handle, for_write=True)

    def asnumpy(self) -> np.ndarray:
        """A copy as a NumPy array; waits for the contents."""
        if not self._spec.device.on_host:
            return fetch(self)
        wait(self._handle)
        return self._memory().copy()

    def _values(self) -> np.ndarray:
        """The values, read-only: the memory itself, or a copy from a GPU; waits."""
        if not self._spec.device.on_host:
            return fetch(self)
        wait(self._handle)
        return self._memory()

    def _memory(self) -> np.ndarray:
        """The memory itself as a NumPy array, valid while self lives; the caller has waited. Raises
        DeviceError for memory of a GPU."""
        if not self._spec.device.on_host:
            raise DeviceError(f"the host cannot access memory of {self._spec.device}")
        return view_as_numpy(lib.pl_array_data(self._handle), self._spec)


set_class(NDArray, spec((0,), "float32", cpu()), fits)


def make_view(array: NDArray, s: Spec | None = None, offset: int = 0) -> NDArray:
    """The memory of a dense array from byte `offset` on as another array of its class, not
    recorded. s: its spec."""
    handle = lib.pl_array_view(array._handle, offset)
    if not handle:
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    return make_of(array.__class__, handle, array._spec if s is None else s)


def seen_as(cls: type, x: NDArray) -> Any:
    """A dense array under the rules of another class: the same memory and tape entry. Raises
    TypeError for a sparse one."""
    if x.__class__ is cls:
        return x
    if x._spec.stype != "default":
        raise InvalidType(
            f"as_np_ndarray: the array is {x._spec.stype}, and mx.np has only dense ones\n  fix:"
            " x.tostype('default')"
        )
    made = make_view(x)
    made.__class__ = cls
    made._tape = x._tape
    return made


def like(x: NDArray, made: NDArray) -> NDArray:
    """A dense array that nobody else has, made one of the class of x."""
    if x._spec.stype == "default":
        made.__class__ = x.__class__
    return made


def empty_like_spec(s: Spec) -> NDArray:
    """Uninitialised memory of a spec. Raises MemoryError."""
    s.device.check()
    handle = lib.pl_array_new_in(s.device.memory, s.nbytes) if s.nbytes <= MAX_BYTES else 0
    if not handle:
        raise OutOfMemory(
            f"no memory for an array of shape {s.shape} and dtype {s.dtype} ({s.nbytes} bytes)"
            f" on {s.device}"
        )
    return make(handle, s)


def from_memory(
    values: np.ndarray, ctx: Context | None = None, dtype: str | None = None
) -> NDArray:
    """A new array with a copy of NumPy values."""
    name = dtype or dtype_name(values.dtype)
    out = empty_like_spec(spec(tuple(values.shape), name, ctx or current_context()))
    if values.size:
        on_host = out._spec.device.on_host
        # whole numbers become floats while they are copied: nothing can overflow
        exact = on_host and values.dtype.kind in "iub" and name in ("float32", "float64")
        if not exact and values.dtype != NUMPY_DTYPES[name]:
            values = _converted(values, name)
        if on_host:
            out._memory()[...] = values
        else:
            send(values, out)
    return out


class ReadOnly:
    """Read-only NumPy memory borrowed by an array; `holds` looks it up by address, for operators
    that have only that."""

    __slots__ = ("__weakref__", "_start", "_stop", "_values")
    _living: ClassVar[weakref.WeakSet[ReadOnly]] = weakref.WeakSet()

    def __init__(self, values: np.ndarray):
        self._values, self._start = values, values.ctypes.data
        self._stop = self._start + values.nbytes
        ReadOnly._living.add(self)

    @staticmethod
    def holds(address: int) -> bool:
        return any([r._start <= address < r._stop for r in list(ReadOnly._living)])


# ---- to a GPU and back ---------------------------------------------------------------------------

STAGED_BYTES = 4 << 20  # up to this size values go through page-locked memory, without waiting


def borrow(values: np.ndarray, s: Spec) -> NDArray:
    """An NDArray of a spec on the host over contiguous NumPy memory, which it keeps alive."""
    number = callback.keep(values)
    data = ffi.cast("void *", values.ctypes.data)
    handle = lib.pl_array_wrap(data, s.nbytes, callback.RELEASE, callback.pointer_to(number))
    if not handle:
        callback.drop(number)
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    return make(handle, s)


def send(values: np.ndarray, target: NDArray) -> None:
    """Writes NumPy values of its dtype and shape into an array on a GPU; they may change
    afterwards."""
    s = target._spec
    if s.nbytes <= STAGED_BYTES:
        source = empty_like_spec(spec(s.shape, s.dtype, cpu_pinned()))
        source._memory()[...] = values
        way = "staged"
    else:
        source = borrow(np.ascontiguousarray(values), spec(s.shape, s.dtype, cpu()))
        way = "waits"
    plan = transfer_plan(source._spec, s, way)
    invoke(plan.handle, plan.in_specs, plan.out_specs, [source], [target], (), location.capture())
    if way == "waits":
        wait(source._handle, for_write=True)


def fetch(array: NDArray) -> np.ndarray:
    """The values of an array on a GPU. Raises the error of the operation that computes them."""
    s = array._spec
    values = np.empty(s.shape, NUMPY_DTYPES[s.dtype])
    host = borrow(values, spec(s.shape, s.dtype, cpu()))
    plan = transfer_plan(s, host._spec, "waits")
    invoke(plan.handle, plan.in_specs, plan.out_specs, [array], [host], (), location.capture())
    wait(host._handle)
    return values


def _converted(values: np.ndarray, name: str) -> np.ndarray:
    from ..kernels.spec import BFLOAT16, from_bfloat16, round_to_bfloat16

    if values.dtype == BFLOAT16:
        values = from_bfloat16(values)
    if name == "bfloat16":
        return round_to_bfloat16(values)
    with np.errstate(all="ignore"):
        return values.astype(NUMPY_DTYPES[name])


class _State(threading.local):
    """The per-thread state of autograd's scopes."""

    recording = False
    training = False
    asked_recording = False  # has is_recording() been called since a trace began?

    def __init__(self) -> None:
        self.outer: list[tuple[bool, bool]] = []  # the enclosing states of each `with`


state = _State()


class Scope:
    """A `with` that switches recording and training; None leaves one unchanged."""

    def __init__(self, recording: bool | None, training: bool | None):
        self._wanted = recording, training

    def __enter__(self):
        state.outer.append((state.recording, state.training))
        recording, training = self._wanted
        if recording is not None:
            state.recording = recording
        if training is not None:
            state.training = training

    def __exit__(self, *error):
        state.recording, state.training = state.outer.pop()


def check_nd(value: Any, what: str) -> None:
    if not isinstance(value, NDArray):
        raise InvalidType(
            f"{what} must be an NDArray, got {type(value).__name__}\n  fix: nd.array(x)"
        )
