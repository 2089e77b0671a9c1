"""Collectives between GPUs by NVIDIA's library, NCCL: what a Group runs for arrays in their memory,
and what sums over the GPUs of one process. engine/core/nccl.h runs the calls."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine import cpu, cuda, is_naive, location, raise_last, settings, wait
from ..engine._core import ffi, lib
from ..engine.error import DeviceError, compose
from ..kernels.spec import ITEM_BYTES
from ..ndarray import NDArray
from ..ndarray.creation import empty

READ, WRITE, UPDATE = lib.PL_READ, lib.PL_WRITE, lib.PL_READWRITE
# ncclDataType_t and ncclRedOp_t
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
MOVES = {"all_gather", "all_to_all", "broadcast", "gather_parts"}  # combine nothing: any dtype
INSTALL = "pip install nvidia-nccl-cu13 (nvidia-nccl-cu12 for older drivers)"


class Step(NamedTuple):
    """A call of NCCL: a pl_nccl_step. n elements; source, target: (number of the array, element),
    or None; peer: the root, or whom a message goes to or comes from; device: of the clique's."""

    kind: int
    n: int
    source: tuple[int, int] | None
    target: tuple[int, int] | None
    peer: int = 0
    device: int = 0


def _both(kind: int, n: int, at: tuple[int, int], peer: int = 0, device: int = 0) -> Step:
    return Step(kind, n, at, at, peer, device)


def steps(kind: str, ranks: int, *arguments: Any) -> list[Step]:
    """The calls of a collective: kind and arguments are those of dist/schedules.py."""
    n = arguments[0]
    if kind == "all_reduce":
        return [Step(lib.PL_NCCL_ALL_REDUCE, n, (0, 0), (0 if arguments[1] else 1, 0))]
    if kind == "bucket":
        first = 0 if arguments[1] else len(n)  # of the results
        call = lib.PL_NCCL_ALL_REDUCE
        return [Step(call, size, (i, 0), (first + i, 0)) for i, size in enumerate(n)]
    if kind == "reduce_scatter":
        return [Step(lib.PL_NCCL_REDUCE_SCATTER, n, (0, 0), (1, 0))]
    if kind == "all_gather":
        return [Step(lib.PL_NCCL_ALL_GATHER, n, (0, 0), (1, 0))]
    if kind == "broadcast":
        return [_both(lib.PL_NCCL_BROADCAST, n, (0, 0), arguments[1])]
    if kind == "all_to_all":
        sends = [Step(lib.PL_NCCL_SEND, n, (0, r * n), None, r) for r in range(ranks)]
        return sends + [Step(lib.PL_NCCL_RECEIVE, n, None, (1, r * n), r) for r in range(ranks)]
    call = lib.PL_NCCL_REDUCE if kind == "reduce_parts" else lib.PL_NCCL_BROADCAST
    starts = [sum(arguments[1][:r]) for r in range(ranks)]
    return [_both(call, m, (0, at), r) for r, (at, m) in enumerate(zip(starts, arguments[1]))]


def takes(kind: str, dtype: str) -> bool:
    """Does NCCL run this collective for arrays of this dtype? Messages between two ranks go
    through the host: neither knows where the other's array is."""
    return kind in MOVES or dtype in DTYPES and kind not in ("send", "receive")


@functools.cache
def load() -> None:
    """Loads the library. Raises DeviceError, which says what to install."""
    library = cuda.find("nccl")
    if library is None:
        rule = "arrays of several GPUs are combined by NCCL (libnccl.so.2), which was not found"
        raise DeviceError(compose(rule, fix=INSTALL))
    if lib.pl_nccl_open(library.encode()):
        raise DeviceError(ffi.string(lib.pl_error_message()).decode(errors="replace"))


class Clique:
    """GPUs that communicate: this process' `devices` (numbers) are the ranks first, first + 1, ...
    of n_ranks. group: the handle of the processes' group; 0: all ranks are here."""

    def __init__(self, n_ranks: int, first: int, devices: Sequence[int], group: int = 0):
        load()
        self.devices = tuple(devices)
        self.n_ranks = n_ranks
        self._handle = lib.pl_clique_new(n_ranks, first, list(devices), len(devices), group)
        if not self._handle:
            raise_last()

    def join(self, number: NDArray) -> None:
        """Meets the other ranks, when `number`, of `new_number` on one of them, is here."""
        status = lib.PL_AGAIN
        timeout, name = settings.get("PLAIT_COMM_TIMEOUT"), lib.pl_name(b"NCCL's start")
        while status == lib.PL_AGAIN:
            status = lib.pl_clique_join(
                self._handle, number._handle, timeout, name, location.capture()
            )
        if status:
            raise_last()

    def push(
        self,
        calls: Sequence[Step],
        arrays: Sequence[NDArray],
        uses: Sequence[int],
        operation: str,
        name: str,
        known: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Pushes calls as one operation. All processes push the same, in the same order.

        known: the handle of what is waited for besides the arrays, or 0.
        timeout: seconds until it fails; default: PLAIT_COMM_TIMEOUT; 0: never.
        """
        kinds = [_type_of(a) for a in arrays]

        def fields(step: Step) -> tuple:
            (i, start), (j, begin) = step.source or (-1, 0), step.target or (-1, 0)
            number, itemsize, width = kinds[max(i, j)]
            return (
                step.n * width,
                start * itemsize,
                begin * itemsize,
                step.kind,
                number,
                OPERATIONS[operation],
                step.device,
                i,
                j,
                step.peer,
                0,
            )

        table = [fields(s) for s in calls if s.n]
        if not table:
            return
        status = lib.PL_AGAIN
        while status == lib.PL_AGAIN:
            status = lib.pl_nccl_push(
                self._handle,
                ffi.new("pl_nccl_step[]", table),
                len(table),
                [a._handle for a in arrays],
                bytes(uses),
                len(arrays),
                known,
                settings.get("PLAIT_COMM_TIMEOUT") if timeout is None else timeout,
                lib.pl_name(name.encode()),
                location.capture(),
            )
        if status:
            raise_last()
        if is_naive():
            for a in arrays:
                wait(a._handle)


def _type_of(a: NDArray) -> tuple[int, int, int]:
    """(NCCL's number of a dtype, bytes of an element, elements of that number in it): what NCCL
    does not know is bytes."""
    dtype = a._spec.dtype
    itemsize = ITEM_BYTES[dtype]
    if dtype in DTYPES:
        return DTYPES[dtype], itemsize, 1
    return DTYPES["uint8"], itemsize, itemsize


def new_number() -> NDArray:
    """What a communicator is told by: an array of the host. Made on one rank, the same on all."""
    load()
    made = empty((lib.PL_NCCL_ID_BYTES,), ctx=cpu(), dtype="uint8")
    if lib.pl_nccl_new_id(lib.pl_array_data(made._handle)):
        raise_last()
    return made


@functools.cache
def clique_of(devices: tuple[int, ...]) -> Clique:
    """GPUs of this process, made once."""
    made = Clique(len(devices), 0, devices)
    made.join(new_number())
    return made


def sum_over(keys: Sequence[Sequence[NDArray]]) -> None:
    """Replaces the arrays of each key, one on each of the same GPUs, by their sum: one operation
    for all keys."""
    clique = clique_of(tuple(a.context.device_id for a in keys[0]))
    n = len(clique.devices)
    calls = [
        _both(lib.PL_NCCL_ALL_REDUCE, a.size, (k * n + i, 0), device=i)
        for k, arrays in enumerate(keys)
        for i, a in enumerate(arrays)
    ]
    arrays = [a for key in keys for a in key]
    clique.push(calls, arrays, [UPDATE] * len(arrays), "sum", "all_reduce")
