"""The engine's Python face: waiting, pushing, devices. The work is done by the C core, `_core`."""
from __future__ import annotations

import atexit

from . import location
from ._core import ffi, lib
from .device import Context, cpu, current_context, gpu
from .error import MXNetError

POLL_MS = 200               # a wait looks for Ctrl-C this often


def wait(handle: int, for_write: bool = False) -> None:
    """Blocks until earlier writes (and reads) of an array are done. Raises the MXNetError of a failed operation."""
    waiting = lib.pl_wait_write if for_write else lib.pl_wait_read
    status = waiting(handle, POLL_MS)
    while status == lib.PL_AGAIN:
        status = waiting(handle, POLL_MS)
    if status:
        raise _last_error()


def waitall() -> None:
    """Blocks until every operation is done. Raises errors that nobody was told yet."""
    status = lib.pl_wait_all(POLL_MS)
    while status == lib.PL_AGAIN:
        status = lib.pl_wait_all(POLL_MS)
    if status:
        raise _last_error()


def _last_error() -> MXNetError:
    text = ffi.string(lib.pl_error_last()).decode(errors="replace")
    at = location.text(lib.pl_error_location())
    name = ffi.string(lib.pl_error_name()).decode()
    where = ", ".join(filter(None, [at, name and f'operator "{name}"']))
    return MXNetError(text + (f"\n  at: {where}" if where else ""))


@ffi.def_extern(name="plpy_call", error=3)
def _call(arg):
    return 0


@ffi.def_extern(name="plpy_release")
def _release(arg):
    return None


atexit.register(lib.pl_engine_stop)
