"""Failure of a rank: its reason is sent to the others, and all end with status 1, within seconds.

The core's thread (engine/core/heartbeat.h) finds out which ranks are alive. This module does what
needs Python: it exchanges the address of rank 0, reports how this rank's program ended, and ends a
process whose program does not notice that the job was given up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from .. import engine
from ..engine import ffi, lib, settings
from ..engine.error import MXNetError, compose

PATIENCE_S = (2.0, 10.0)  # least and most silence of a rank before it is given up
PATIENCE_SHARE = 6  # of PLAIT_COMM_TIMEOUT
FOR_EVER_S = 86400.0
GRACE_S = 5.0  # between the job's failure and the end of a process that has not ended by itself
FORCED_S = 2.0  # so much later the core ends it, if Python's lock cannot be had
JOIN_S = 60.0  # from the first rank to the last that calls start
DELIVERY_MS = 2000  # for a message to reach the other machine
POLL_MS = 200  # how often a wait looks for Ctrl-C
TEXT_BYTES = 3000


class RankError(MXNetError):
    """A rank failed, ended, is stopped, or cannot be reached: the job is given up."""


class Hub(NamedTuple):
    """How to reach rank 0. limit_s: its patience; error: it does not listen, and why."""

    limit_s: float
    addresses: bytes = b""
    port: int = 0
    token: bytes = b""
    error: str = ""


class _Job:
    """The state of this process in its job."""

    rank: int = 0
    size: int = 1  # more: the heartbeat runs
    abandon: Callable[[], None] | None = None
    ending: bool = False  # the program has ended, and its process will soon
    thread_error: str = ""  # of a thread of the user's, which does not end the program


_job = _Job()


def start(
    rank: int,
    size: int,
    exchange: Callable[[Any], Any],
    abandon: Callable[[], None] | None = None,
) -> None:
    """Watches the other ranks from now on, and reports to them how this one ends. All ranks call
    it.

    Args:
        exchange: returns rank 0's argument on all ranks.
        abandon: called at the end of a job that was given up, before what waits for other ranks:
            MPI_Finalize must not run then.
    Raises: RankError if the ranks cannot reach each other.
    """
    if size == 1 or _job.size > 1:
        return
    hub = exchange(_serve(size) if rank == 0 else None)
    if hub.error:
        raise RankError(hub.error)
    if rank == 0:
        absent = lib.pl_heartbeat_absent(int(JOIN_S * 1000))
        if absent >= 0:
            raise RankError(
                compose(
                    f"rank {absent} of {size} did not connect to rank 0 within {JOIN_S:g} s",
                    fix="call mx.dist.init() on all ranks, before what takes long",
                )
            )
    elif lib.pl_heartbeat_start(
        rank, size, hub.addresses, hub.port, hub.token, *_milliseconds(hub.limit_s)
    ):
        raise RankError(_message())
    _job.rank, _job.size, _job.abandon = rank, size, abandon
    _install()


def patience_s(timeout_s: float) -> float:
    """The silence after which a rank is given up, from how long an operation may wait (0: for
    ever).

    >>> patience_s(60.0), patience_s(24.0), patience_s(0.5)
    (10.0, 4.0, 2.0)
    """
    least, most = PATIENCE_S
    return min(max(timeout_s / PATIENCE_SHARE, least), most) if timeout_s else FOR_EVER_S


def _milliseconds(limit_s: float) -> tuple[int, int]:
    return int(limit_s * 1000), int((GRACE_S + FORCED_S) * 1000)


def _serve(size: int) -> Hub:
    """Rank 0 listens. It fails on all ranks: the others wait for what this returns."""
    limit_s = patience_s(settings.get("PLAIT_COMM_TIMEOUT"))
    token = secrets.token_bytes(lib.PL_HEARTBEAT_TOKEN_BYTES)
    addresses = ffi.new("char[]", 4096)
    if lib.pl_heartbeat_addresses(addresses, 4096) or lib.pl_heartbeat_start(
        0, size, ffi.NULL, 0, token, *_milliseconds(limit_s)
    ):
        return Hub(limit_s, error=_message())
    return Hub(limit_s, ffi.string(addresses), lib.pl_heartbeat_port(), token)


def _message() -> str:
    return ffi.string(lib.pl_error_message()).decode(errors="replace")


def culprit() -> tuple[int, str] | None:
    """The rank for which the job was given up, and why; None: it was not."""
    rank = lib.pl_heartbeat_culprit()
    if rank < 0:
        return None
    text = ffi.new("char[]", lib.PL_HEARTBEAT_TEXT_BYTES)
    lib.pl_heartbeat_text(rank, text, lib.PL_HEARTBEAT_TEXT_BYTES)
    return rank, ffi.string(text).decode(errors="replace")


def fail(error: BaseException | str) -> None:
    """Reports to all ranks that this one failed, and why; the job is given up."""
    text = error if isinstance(error, str) else _described(error, error.__traceback__)
    lib.pl_heartbeat_fail(text.encode(errors="replace")[:TEXT_BYTES], DELIVERY_MS)


# ---- how this rank's program ends ----


def _install() -> None:
    """Installs hooks that report how the program ends. A forked child inherits them, but has no
    heartbeat: there they do nothing."""
    outer, outer_threads = sys.excepthook, threading.excepthook

    def on_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        try:
            outer(kind, error, trace)  # first: MPI may end this process soon after the others know
        finally:
            fail(error)

    def on_thread_exception(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            name = args.thread.name if args.thread else "unknown"
            _job.thread_error = f"its thread {name!r} ended with {_described(args.exc_value)}"
        outer_threads(args)

    sys.excepthook, threading.excepthook = on_exception, on_thread_exception
    engine.at_end.append(_finish)
    threading.Thread(target=_end_if_given_up, name="plait-heartbeat", daemon=True).start()


def _described(error: BaseException, trace: TracebackType | None = None) -> str:
    """The last line of an error's traceback, and the line of the user's program."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = [frame for frame, _ in traceback.walk_tb(trace or error.__traceback__)]
    at = _user_line(frames)
    return text if at is None or "\n  at: " in text else compose(text, at=at)


def _user_line(frames: list[FrameType]) -> str | None:
    """'train.py:41': the innermost frame that is neither plait's nor a library's."""
    package = __name__.partition(".")[0]
    libraries = tuple(sysconfig.get_path(p) for p in ("stdlib", "platstdlib", "purelib", "platlib"))
    for frame in reversed(frames):
        module = frame.f_globals.get("__name__", "")
        file = frame.f_code.co_filename
        if module.partition(".")[0] != package and not file.startswith((*libraries, "<frozen")):
            return f"{file}:{frame.f_lineno}"
    return None


def _finish(error: BaseException | None) -> None:
    """At exit, when nothing is queued: reports how this rank ended, and waits until all have ended
    or the job is given up, so that all end with the same status."""
    if _job.size == 1:
        return
    _job.ending = True
    if error is None and not hasattr(sys, "ps1"):  # a program that replaced our hook; no session
        error = getattr(sys, "last_value", None)
    if error is not None:
        fail(error)
    text = _job.thread_error.encode(errors="replace")[:TEXT_BYTES]
    if lib.pl_heartbeat_culprit() < 0:
        lib.pl_heartbeat_finish(text, DELIVERY_MS)
        try:
            while lib.pl_heartbeat_wait(POLL_MS) == lib.PL_AGAIN:
                pass
        except KeyboardInterrupt as interrupt:  # others may go on for long
            fail(interrupt)
    why = culprit()
    if why is None:
        lib.pl_heartbeat_stop(DELIVERY_MS)
        return
    fail(f"it ends, since the job was given up: {why[1]}")
    until = time.monotonic() + GRACE_S
    while lib.pl_heartbeat_alive(POLL_MS) > 0 and time.monotonic() < until:
        pass
    lib.pl_engine_fail_at_exit()
    if _job.abandon is not None:
        _job.abandon()


def _end_if_given_up() -> None:
    """Ends a process that still runs GRACE_S after the job was given up: it computes, or sleeps,
    and calls nothing of ours that would raise. Files that checkpoints replace are whole; what the
    program printed is flushed."""
    status = lib.PL_AGAIN
    while status == lib.PL_AGAIN:
        status = lib.pl_heartbeat_wait(2**31 - 1)
    if status != lib.PL_FAILED:
        return
    time.sleep(GRACE_S)
    if _job.ending:
        return
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames = [] if frame is None else [f for f, _ in traceback.walk_stack(frame)][::-1]
    why = culprit()
    rule = (
        f"plait: rank {_job.rank} of {_job.size} is ended: the job was given up {GRACE_S:g} s ago, "
        "and its program still runs"
    )
    said = compose(rule, at=_user_line(frames)) + f"\n  cause: {why[1] if why else ''}\n"
    sys.stderr.write(said)  # in one piece: other ranks write to the same place
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)
