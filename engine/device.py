"""Devices: `cpu(0)`, `gpu(1)`, the current one of each thread, and what the machine has."""

from __future__ import annotations

import threading
from typing import ClassVar, Self

from . import cuda
from ._core import lib
from .error import DeviceError


class _Current(threading.local):
    context: Context | None = None

    def __init__(self):
        self.outer: list[Context | None] = []  # what each `with` covers


_current = _Current()


class _ContextType(type):
    @property
    def default_ctx(cls) -> Context:
        """The current context of this thread; may be set."""
        return current_context()

    @default_ctx.setter
    def default_ctx(cls, context: Context) -> None:
        _current.context = context


class Context(metaclass=_ContextType):
    """A device. `with mx.cpu(1):` makes it the current one of this thread.

    Args:
        device_type: 'cpu', 'gpu', 'cpu_pinned', 'cpu_shared', or a Context to copy.
        device_id: number of the device, >= 0.
    Raises: DeviceError for an unknown type or a negative number. A GPU that is not there is an
    error at its first use.
    """

    __slots__ = ("_hash", "device_id", "device_typeid")
    devtype2str: ClassVar = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type: ClassVar = {name: number for number, name in devtype2str.items()}

    def __init__(self, device_type: str | Context, device_id: int = 0):
        if isinstance(device_type, Context):
            self.device_typeid: int = device_type.device_typeid
            self.device_id: int = device_type.device_id
        elif device_type in Context.devstr2type:
            self.device_typeid, self.device_id = Context.devstr2type[device_type], int(device_id)
        else:
            raise DeviceError(
                f"Context: device_type must be one of {', '.join(Context.devstr2type)}, "
                f"got {device_type!r}"
            )
        if self.device_id < 0:
            raise DeviceError(f"Context: device_id must be >= 0, got {self.device_id}")
        self._hash = hash((self.device_typeid, self.device_id))

    @property
    def device_type(self) -> str:
        return Context.devtype2str[self.device_typeid]

    @property
    def home(self) -> Context:
        """The device on whose lane arrays here are computed: cpu(i) for cpu_pinned(i) and
        cpu_shared(i)."""
        return self if self.device_typeid < 3 else cpu(self.device_id)

    def same_memory(self, other: Context) -> bool:
        """Do kernels here read other's arrays as well? cpu, cpu_pinned and cpu_shared of a number
        are one memory."""
        return self is other or self.home == other.home

    def check(self) -> None:
        """Raises DeviceError if nothing can run here."""
        if self.device_typeid == 2:
            cuda.check(self.device_id)

    @property
    def lane(self) -> int:
        """The kind of the lane on which its operators run."""
        return lib.PL_LANE_GPU_COMPUTE if self.device_typeid == 2 else lib.PL_LANE_CPU

    @property
    def memory(self) -> int:
        """The number by which the core knows this device's memory."""
        if self.device_typeid == 2:
            return lib.PL_MEMORY_GPU + self.device_id
        pinned = self.device_typeid == 3 and cuda.count() > 0
        return lib.PL_MEMORY_PINNED if pinned else lib.PL_MEMORY_HOST

    def empty_cache(self) -> None:
        """Gives the memory that is pooled for this device back to the system. Waits for what still
        uses it. Raises DeviceError for a GPU that is not there."""
        self.check()
        if self.memory == lib.PL_MEMORY_HOST:
            lib.pl_storage_trim()
        else:
            lib.pl_memory_trim(self.memory)

    def __eq__(self, other) -> bool:
        return self is other or (
            isinstance(other, Context)
            and self.device_typeid == other.device_typeid
            and self.device_id == other.device_id
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self):
        return Context, (self.device_type, self.device_id)

    def __enter__(self) -> Self:
        _current.outer.append(_current.context)
        _current.context = self
        return self

    def __exit__(self, *exc) -> None:
        _current.context = _current.outer.pop()


_cpus = [Context("cpu", i) for i in range(8)]
_default = _cpus[0]


def named(text: str) -> Context:
    """The device that is written as `text`: "gpu(1)". Raises DeviceError."""
    kind, _, number = text.rstrip(")").partition("(")
    if not (number or "0").isdigit():
        raise DeviceError(f"a device is written as 'cpu(0)' or 'gpu(1)', got {text!r}")
    return Context(kind, int(number or 0))


def cpu(device_id: int = 0) -> Context:
    """A CPU worker. All share the memory; each number has its own queue of operations."""
    return _cpus[device_id] if 0 <= device_id < len(_cpus) else Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """A GPU by number. Naming one that is not there is fine; using it is not."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Memory of the CPU's side that a GPU copies from and to at full speed (page-locked); without
    a GPU the same as `cpu`."""
    return Context("cpu_pinned", device_id)


def cpu_shared(device_id: int = 0) -> Context:
    """Memory that processes share; here the same as `cpu`."""
    return Context("cpu_shared", device_id)


def current_context() -> Context:
    """The context of the innermost `with` of this thread, else cpu(0)."""
    return _current.context or _default


def num_gpus() -> int:
    """How many GPUs can be used."""
    return cuda.count()


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of a GPU. Raises DeviceError if it cannot be used."""
    return cuda.memory(device_id)
