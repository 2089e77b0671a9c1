"""Devices: `cpu(0)`, `gpu(1)`, the current one of each thread, and what the machine has."""

from __future__ import annotations

import threading
from typing import ClassVar, NamedTuple, Self

from . import cuda
from ._core import lib
from .error import DeviceError


class _Current(threading.local):
    context: Context | None = None

    def __init__(self) -> None:
        self.outer: list[Context | None] = []  # what each `with` covers


_current = _Current()


class DeviceType(NamedTuple):
    """A type of device. A new one, in the host's memory and on the CPU's lanes, needs only a call
    of `add_type` and a Backend (kernels/backend.py); one with memory of its own, engine/core too.

    Args:
        name, number: MXNet's, or those of a new type; files and pickles have them.
        backend: the name of the Backend that runs its operators.
        on_host: its memory is the host's, which reads and writes it.
        computes: its operators run here; else it is memory only, and those of cpu(i) do.
        streams: its operations run in the order in which they are pushed.
        dlpack: DLPack's number of it.
    """

    name: str
    number: int
    backend: str
    on_host: bool = True
    computes: bool = True
    streams: bool = False
    dlpack: int = 1


GPU = DeviceType("gpu", 2, "cuda", on_host=False, streams=True, dlpack=2)
PINNED = DeviceType("cpu_pinned", 3, "cpu", computes=False)
_types: dict[str, DeviceType] = {}


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
    Attributes:
        kind: its DeviceType. on_host: does the host read and write memory here?
    Raises: DeviceError for an unknown type or a negative number. A GPU that is not there is an
    error at its first use.
    """

    __slots__ = ("_hash", "device_id", "device_typeid", "kind", "on_host")
    devtype2str: ClassVar[dict[int, str]] = {}
    devstr2type: ClassVar[dict[str, int]] = {}

    def __init__(self, device_type: str | Context, device_id: int = 0):
        if isinstance(device_type, Context):
            self.kind: DeviceType = device_type.kind
            self.device_id: int = device_type.device_id
        elif device_type in _types:
            self.kind, self.device_id = _types[device_type], int(device_id)
        else:
            raise DeviceError(
                f"Context: device_type must be one of {', '.join(_types)}, got {device_type!r}"
            )
        self.device_typeid: int = self.kind.number
        self.on_host: bool = self.kind.on_host
        if self.device_id < 0:
            raise DeviceError(f"Context: device_id must be >= 0, got {self.device_id}")
        self._hash = hash((self.device_typeid, self.device_id))

    @property
    def device_type(self) -> str:
        return self.kind.name

    @property
    def dlpack(self) -> tuple[int, int]:
        """How DLPack names it: (1, 0) the CPU, (2, i) gpu(i)."""
        return self.kind.dlpack, 0 if self.kind.on_host else self.device_id

    @property
    def home(self) -> Context:
        """The device on whose lane arrays here are computed: cpu(i) for cpu_pinned(i) and
        cpu_shared(i)."""
        return self if self.kind.computes else cpu(self.device_id)

    def same_memory(self, other: Context) -> bool:
        """Do kernels here read other's arrays as well? cpu, cpu_pinned and cpu_shared of a number
        are one memory."""
        return self is other or self.home == other.home

    def check(self) -> None:
        """Raises DeviceError if nothing can run here."""
        if self.kind is GPU:
            cuda.check(self.device_id)

    @property
    def lane(self) -> int:
        """The kind of the lane on which its operators run."""
        return lib.PL_LANE_GPU_COMPUTE if self.kind is GPU else lib.PL_LANE_CPU

    @property
    def comm_lane(self) -> tuple[int, int]:
        """(kind, number) of the lane for communication."""
        if self.kind is GPU:
            return lib.PL_LANE_GPU_COMM, self.device_id
        return lib.PL_LANE_COMM, 0

    @property
    def memory(self) -> int:
        """The number by which the core knows this device's memory."""
        if self.kind is GPU:
            return lib.PL_MEMORY_GPU + self.device_id
        pinned = self.kind is PINNED and cuda.count() > 0
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


def add_type(kind: DeviceType) -> DeviceType:
    """Makes a type known: Context(name, i) is a device of it."""
    _types[kind.name] = kind
    Context.devtype2str[kind.number] = kind.name
    Context.devstr2type[kind.name] = kind.number
    return kind


for _kind in (DeviceType("cpu", 1, "cpu"), GPU, PINNED):
    add_type(_kind)
add_type(DeviceType("cpu_shared", 5, "cpu", computes=False))


def of_dlpack(number: int, device_id: int) -> Context | None:
    """The device that DLPack names so; None for those of other libraries."""
    found = [kind for kind in _types.values() if kind.dlpack == number]
    return Context(found[0].name, device_id) if found else None


def copy_lane(source: Context, target: Context) -> tuple[int, int] | None:
    """(kind, number) of the lane that copies from one memory to another; None where the host reads
    both, so that a kernel on the target's lane copies."""
    if source.on_host and target.on_host or source.memory == target.memory:
        return None
    if target.on_host:
        return lib.PL_LANE_GPU_D2H, source.device_id
    return lib.PL_LANE_GPU_H2D if source.on_host else lib.PL_LANE_GPU_COMM, target.device_id


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
