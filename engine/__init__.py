"""The dependency engine, seen from Python: push functions, wait, bulk scopes, statistics.

>>> from plait import engine
>>> x, log = engine.Var(), []
>>> engine.push(lambda: log.append("write"), writes=[x])
>>> engine.push(lambda: log.append("read"), reads=[x])
>>> engine.wait_for_var(x, for_write=True)
>>> log
['write', 'read']
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from . import _array, callback, imports, interrupt, layers, location, settings
from ._core import ffi, lib
from .callback import PENDING
from .device import (
    Context,
    cpu,
    cpu_pinned,
    cpu_shared,
    current_context,
    gpu,
    gpu_memory_info,
    num_gpus,
)
from .error import (
    DeadlineExceeded,
    DeferredError,
    IndexOutOfRange,
    InvalidType,
    InvalidValue,
    MXNetError,
    OutOfMemory,
    raisable,
)

__all__ = [
    "PENDING",
    "Context",
    "DeadlineExceeded",
    "MXNetError",
    "Var",
    "abort",
    "bulk",
    "cpu",
    "cpu_pinned",
    "cpu_shared",
    "current_context",
    "ffi",
    "gpu",
    "gpu_memory_info",
    "is_naive",
    "lib",
    "location",
    "num_gpus",
    "push",
    "raise_last",
    "set_bulk_size",
    "set_naive",
    "stats",
    "trim",
    "wait",
    "wait_for_var",
    "waitall",
]

_array.bind(
    *(
        int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))
        for name in (
            "pl_array_new",
            "pl_array_free",
            "pl_invoke",
            "pl_program_run",
            "pl_error_message",
            "pl_array_shares",
            "pl_array_data",
            "pl_arrays_versions",
        )
    ),
    callback._objects,
    OutOfMemory,
    InvalidValue,
    InvalidType,
    MXNetError,
)

POLL_MS = 200  # how often a wait, or a push that waits for the queue, looks for Ctrl-C
LOOK = -1  # for what may be done already: only a wait that blocks needs a name
GRACE_S = 2.0  # for what is queued, when Ctrl-C has ended the program
LANES = {
    "cpu": lib.PL_LANE_CPU,
    "io": lib.PL_LANE_IO,
    "comm": lib.PL_LANE_COMM,
    "gpu_compute": lib.PL_LANE_GPU_COMPUTE,
    "gpu_h2d": lib.PL_LANE_GPU_H2D,
    "gpu_d2h": lib.PL_LANE_GPU_D2H,
}
_AGAIN = lib.PL_AGAIN
# what a status of the core is raised as
_RAISED = {
    lib.PL_ENOMEM: OutOfMemory,
    lib.PL_EINVAL: InvalidValue,
    lib.PL_EINDEX: IndexOutOfRange,
    lib.PL_ETIMEOUT: DeadlineExceeded,
}


class Var:
    """Something that operations read and write, without memory of its own: an order among them."""

    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle = lib.pl_array_new(0)
        if not self._handle:
            raise_last()

    @property
    def version(self) -> int:
        """How many writes are finished."""
        return lib.pl_array_version(self._handle)

    def __del__(self, free=lib.pl_array_free):
        free(self._handle)


def _handles(role: str, arrays: Sequence) -> list[int]:
    try:
        return [a._handle for a in arrays]
    except AttributeError:
        odd = next(a for a in arrays if not hasattr(a, "_handle"))
        raise InvalidType(
            f"push: {role} must be arrays or engine.Var objects, got {type(odd).__name__}"
        ) from None


def push(
    fn: Callable[[], Any],
    reads: Sequence = (),
    writes: Sequence = (),
    lane: str = "cpu",
    priority: int = 0,
    name: str | None = None,
    device: int = 0,
    *,
    deadline: float = 0.0,
    cancel: Callable[[], Any] | None = None,
    order: Var | None = None,
) -> None:
    """Queues fn() after all earlier writers of `reads` and all earlier users of `writes`.

    A function that returns `engine.PENDING` is not done: the operation stays in flight, and is
    called again from time to time, while its lane runs others. It must then not block.

    Args:
        fn: called without arguments on a lane's thread. An exception poisons `writes`, and every
            wait on them raises it. It may push and wait itself; the arrays it declared are ready
            inside it.
        reads, writes: arrays or Vars; one in both is read and written. One in `writes` alone is
            overwritten as a whole.
        lane: 'cpu', 'io', 'comm' (each a thread of its own), or a GPU's.
        device: the number of the lane's device.
        priority: higher first among the ready operations of a lane.
        name: for errors and the profiler; default: the function's name.
        deadline: seconds, 0 for none: one that is pending so long after its first call ends with
            DeadlineExceeded.
        cancel: called instead of fn when the deadline or `abort` ends the operation; afterwards
            nothing may use its arrays on its behalf. If it raises, a deadline's error is that.
        order: operations with the same Var are called for the first time in the order of pushing,
            whatever their priorities and whichever is ready first.
    Raises: TypeError, ValueError for arguments that are not so; MXNetError if no thread or memory
    is left.
    """
    if not callable(fn):
        raise InvalidType(f"push: fn must be callable, got {type(fn).__name__}")
    if cancel is not None and not callable(cancel):
        raise InvalidType(f"push: cancel must be callable, got {type(cancel).__name__}")
    kind = _lane(lane, "push")
    if not 0 <= deadline < math.inf:
        raise InvalidValue(f"push: deadline must be seconds, or 0 for none, got {deadline}")
    on_gpu = lane.startswith("gpu")
    if on_gpu:
        gpu(device).check()
        if deadline or cancel or order:
            raise InvalidValue(
                "push: only operations of the lanes cpu, io and comm can have a deadline, cancel or"
                f" order, got {lane!r}"
            )
    if name is None:
        name = getattr(fn, "__qualname__", None) or type(fn).__name__
    c_name = layers.c_name(name)
    inputs, outputs = _handles("reads", reads), _handles("writes", writes)
    ordered = 0 if order is None else _handles("order", [order])[0]
    number = callback.keep(callback.Cancellable(fn, cancel) if cancel else fn)
    arg, where = callback.pointer_to(number), location.capture()
    status = _AGAIN
    while status == _AGAIN:  # Ctrl-C ends it; fn stays kept then, as it may have been pushed
        if on_gpu:
            status = lib.pl_push(
                lib.plpy_call,
                arg,
                callback.RELEASE,
                inputs,
                len(inputs),
                outputs,
                len(outputs),
                kind,
                device,
                priority,
                c_name,
                where,
            )
        else:
            status = lib.pl_push_polled(
                lib.plpy_call,
                lib.plpy_cancel if cancel else ffi.NULL,
                arg,
                callback.RELEASE,
                inputs,
                len(inputs),
                outputs,
                len(outputs),
                ordered,
                kind,
                device,
                priority,
                deadline,
                c_name,
                where,
            )
    if status:
        callback.drop(number)
        raise_last()


def _lane(lane: str, function: str) -> int:
    kind = LANES.get(lane)
    if kind is None:
        raise InvalidValue(f"{function}: lane must be one of {', '.join(LANES)}, got {lane!r}")
    return kind


def abort(error: BaseException, lane: str = "comm", device: int = 0) -> None:
    """Ends the operations of a lane that are in flight, or queued and would stay in flight, with
    one error: every wait on what they should have written raises it. Returns at once."""
    kind = _lane(lane, "abort")
    callback.fail(error)
    if lib.pl_flight_abort(kind, device):
        raise_last()


def raise_last() -> None:
    """Raises the failure the core reported to this thread, with operation and line of its push."""
    text = ffi.string(lib.pl_error_message()).decode(errors="replace")
    name = ffi.string(lib.pl_error_name()).decode(errors="replace")
    at = ", ".join(
        filter(None, [location.text(lib.pl_error_location()), name and f'operator "{name}"'])
    )
    original = callback.kept(lib.pl_error_owner())
    if at:
        rule, fix, rest = text.partition("\n  fix:")
        text = f"{rule}\n  at: {at}{fix}{rest}"
    known = _RAISED.get(lib.pl_error_status(), DeferredError)
    kind = raisable(type(original) if original is not None else known)
    lib.pl_error_forget()
    error = kind(text)
    error.__dict__.update(getattr(original, "__dict__", {}))
    try:
        raise error from original
    finally:
        del error  # its traceback has this frame: a cycle that would keep the caller's arrays


def wait(handle: int, for_write: bool = False) -> None:
    """Waits until earlier writes of an array are done; for_write: earlier reads, too.

    Raises: the error of the operation that should have computed it, each time until it is
    overwritten.
    """
    block = lib.pl_wait_write if for_write else lib.pl_wait_read
    status = block(handle, LOOK if layers.watched else POLL_MS)
    if status == _AGAIN and layers.watched:
        name_waits()
    while status == _AGAIN:
        status = block(handle, POLL_MS)
    if status:
        raise_last()


def is_ready(handle: int, patience_ms: int = 0) -> bool:
    """Are the earlier writes of an array done? Waits for them at most so long. Raises as `wait`."""
    status = lib.pl_wait_read(handle, patience_ms)
    if status and status != _AGAIN:
        raise_last()
    return status != _AGAIN


def wait_for_var(array: Any, for_write: bool = False) -> None:
    """`wait` for an object with a handle: an array or a Var."""
    wait(array._handle, for_write)


def waitall() -> None:
    """Waits for all operations. Raises the oldest error not yet reported; call again for
    the next one."""
    status = lib.pl_wait_all(LOOK if layers.watched else POLL_MS)
    if status == _AGAIN and layers.watched:
        name_waits()
    while status == _AGAIN:
        status = lib.pl_wait_all(POLL_MS)
    if status:
        raise_last()


def name_waits() -> None:
    """For the profiler: this thread's waits are of the user's line, and have the name of the
    function that was called there, such as asnumpy."""
    at, function = location.capture_call()
    lib.pl_profiler_name_waits(layers.c_name(function), at)


def set_bulk_size(size: int) -> int:
    """Wakes a sleeping lane once per `size` operations of this thread, or when anybody waits.

    Returns the old size. Raises ValueError if size < 0.
    """
    if size < 0:
        raise InvalidValue(f"set_bulk_size: size must be >= 0, got {size}")
    return lib.pl_engine_set_bulk(size)


class bulk:
    """`with engine.bulk(10):` hands cheap operations over together, the last at the scope's end."""

    __slots__ = ("outer", "size")

    def __init__(self, size: int):
        self.size = size

    def __enter__(self) -> Self:
        self.outer = set_bulk_size(self.size)
        return self

    def __exit__(self, *exc) -> None:
        set_bulk_size(self.outer)


_naive = False


def is_naive() -> bool:
    """Does every operation run on its caller? Then one that fails raises at its own call."""
    return _naive


def set_naive(naive: bool) -> None:
    """Every operation runs on its caller, in order; what is queued is waited for first."""
    global _naive
    while lib.pl_wait_all(POLL_MS) == _AGAIN:
        pass
    lib.pl_engine_set_naive(naive)
    _naive = bool(naive)


def stats() -> dict[str, int]:
    """pending: operations not finished. Storage in bytes: used, pooled for re-use, peak used.

    allocations, pool_hits: how many blocks were asked for, and how many of them came from the pool.
    workspace_bytes: what the threads' kernels hold for themselves.
    """
    s = ffi.new("pl_storage_stats *")
    lib.pl_storage_get_stats(s)
    return {
        "pending": lib.pl_engine_pending(),
        "used_bytes": s.used_bytes,
        "pooled_bytes": s.pooled_bytes,
        "peak_bytes": s.peak_bytes,
        "allocations": s.n_alloc,
        "pool_hits": s.n_hit,
        "workspace_bytes": s.workspace_bytes,
    }


def trim() -> None:
    """Gives pooled memory back to the system."""
    lib.pl_storage_trim()


def _drained() -> bool:
    """Waits for what is queued. False where Ctrl-C ended the program, or is pressed again: then
    long kernels are abandoned, and end with the process."""
    until = time.monotonic() + GRACE_S if interrupt.ended_the_program() else math.inf
    try:
        while lib.pl_engine_close(POLL_MS) == _AGAIN:
            if time.monotonic() > until:
                return False
    except KeyboardInterrupt:
        return False
    return True


# what else happens at exit, when nothing is queued any more; called with the first error that
# nothing waited for, or None
at_end: list[Callable[[BaseException | None], None]] = []


def _end(error: BaseException | None) -> None:
    for call in at_end:
        call(error)


def _close() -> None:
    """At exit, while lanes may still run Python. Errors not yet reported are printed, and turn the
    process's status from 0 to 1."""
    if not _drained():
        _end(KeyboardInterrupt())
        return
    status = lib.pl_wait_all(0)
    first: BaseException | None = None
    said: str | None = None
    if status not in (lib.PL_OK, _AGAIN):
        lib.pl_engine_fail_at_exit()
    while status not in (lib.PL_OK, _AGAIN):
        try:
            raise_last()
        except MXNetError as error:
            first = first or error
            if str(error) == said:  # every wait for a GPU that failed has its error
                break
            said = str(error)
            print(f"plait: an error that nothing waited for: {error}", file=sys.stderr)
        status = lib.pl_wait_all(0)
    _end(first)
    if settings.get("PLAIT_PROFILE"):
        from .profiler import dump

        dump()


set_naive(settings.get("PLAIT_ENGINE") == "naive")
lib.pl_engine_set_limits(
    settings.get("PLAIT_PENDING_OPS"), (settings.get("PLAIT_PENDING_MB") or 0) << 20
)
lib.pl_engine_set_patience(POLL_MS)
atexit.register(interrupt.remember)
atexit.register(_close)
if "ops" in settings.get("PLAIT_LOG"):
    lib.pl_profiler_print(1)
    layers.watch(True)
if settings.get("PLAIT_PROFILE"):
    from . import profiler  # only then: it needs json

    profiler.set_config(filename=settings.get("PLAIT_PROFILE"))
    profiler.start()
os.register_at_fork(
    before=lib.pl_engine_fork_begin,
    after_in_parent=lib.pl_engine_fork_end,
    after_in_child=lib.pl_engine_fork_end,
)
os.register_at_fork(before=imports.wait_for_other_threads)  # first: it was registered last
