"""The compiler in the background: what runs again is compiled at tier 1 while tier 0 serves, and
swapped in. Nobody waits for it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..engine import settings
from . import passes

MAX_QUEUED = 1024  # beyond this, what repeats stays at tier 0 until it repeats once more
HELD_S = 1.0  # how long a finished program may wait for others that belong with it
SWITCH_S = 5e-5  # how often the compiler's thread gives way: the caller's calls last microseconds


class Job(Protocol):
    """What the compiler takes: something that knows how to compile itself anew."""

    def compile(self) -> Callable[[], None] | None:
        """Makes the better program, on the compiler's thread, and returns what swaps it in."""


class Compiler:
    """One queue and one daemon thread, started by the first job.

    What jobs return is called in the reverse of their order once the queue is empty: a backward
    program, queued after its forward program, stands ready when the new forward one is first used.
    """

    def __init__(self):
        self.reset()

    def reset(self) -> None:
        """Forgets everything, the thread too: what a forked child starts from."""
        self._changed = threading.Condition()
        # held while a job runs, but not while it waits for a C compiler: a fork takes it
        self._running = threading.RLock()
        self._jobs: deque[weakref.ref] = deque()
        self._made: list[tuple[str, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None
        self._stop_compilers: Callable[[], None] = lambda: None
        self._busy, self._closed = False, False
        self.error: Exception | None = None

    def submit(self, job: Job) -> bool:
        """Queues a job, which is held weakly. Returns False when there is no room or no tier 1."""
        with self._changed:
            if self._closed or len(self._jobs) >= MAX_QUEUED or settings.get("PLAIT_TIER") == 0:
                return False
            self._jobs.append(weakref.ref(job))
            if self._thread is None:
                from ..kernels import jit  # late: it brings much of the standard library

                jit.waiting, self._stop_compilers = self.unlocked, jit.stop
                self._thread = threading.Thread(target=self._work, name="plait-tier1", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is queued or compiled. timeout: seconds. Returns False when time is
        over. Raises a job's error where passes are checked."""
        with self._changed:
            if threading.current_thread() is not self._thread:
                done = self._changed.wait_for(lambda: not (self._jobs or self._busy), timeout)
            else:
                done = True
            error, self.error = self.error, None
        if error is not None:
            raise error
        return done

    def close(self) -> None:
        """Drops what is queued and waits for the job at hand, which ends soon."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()
            thread = self._thread
        self._stop_compilers()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def pause(self) -> None:
        """Before a fork: from here no job runs, so that the child inherits no lock that one
        holds."""
        self._running.acquire()

    def resume(self) -> None:
        self._running.release()

    @contextlib.contextmanager
    def unlocked(self):
        """While the compiler's thread waits for another process, a fork may go on."""
        mine = threading.current_thread() is self._thread
        if mine:
            self._running.release()
        try:
            yield
        finally:
            if mine:
                self._running.acquire()

    # ---- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        since = 0.0
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if self._closed:
                    return
                job, self._busy = self._jobs.popleft()(), True
            if job is not None:
                since = since if self._made else time.monotonic()
                with self._running:
                    self._run(job)
            del job
            if self._made and (not self._jobs or time.monotonic() - since > HELD_S):
                while self._made:
                    name, publish = self._made.pop()
                    try:
                        publish()
                    except Exception as error:  # this thread must live: it is waited for
                        self._failed(name, error)
                    del publish

    def _run(self, job: Job) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, SWITCH_S))
        try:
            publish = job.compile()
            if publish is not None:
                self._made.append((str(job), publish))
        except Exception as error:  # tier 0 goes on serving
            self._failed(str(job), error)
        finally:
            sys.setswitchinterval(interval)

    def _failed(self, name: str, error: Exception) -> None:
        if not self._closed:
            if passes.checking:
                self.error = error
            import logging

            log = logging.getLogger(f"{__package__.split('.')[0]}.tiers")
            log.warning("tier 1 of %s failed, tier 0 goes on serving: %s", name, error)


_compiler = Compiler()
submit = _compiler.submit


def wait_compiled(timeout: float | None = None) -> bool:
    """Waits until no program is queued for, or under, compilation in the background.

    For measurements and tests; nothing else needs it, since programs are swapped in as they become
    ready.

    Args:
        timeout: seconds; None waits as long as it takes.
    Returns: False when the time was over before.

    >>> plait.wait_compiled()
    True
    """
    return _compiler.wait(timeout)


atexit.register(_compiler.close)
os.register_at_fork(
    before=_compiler.pause, after_in_parent=_compiler.resume, after_in_child=_compiler.reset
)
