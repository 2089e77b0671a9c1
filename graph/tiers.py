"""The background compiler: graphs that run again are compiled at tier 1 while calls run at tier 0.
Which call is the first at tier 1 is fixed before anything is compiled, so results do not depend on
the clock."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ..engine import settings
from ..kernels import compilers
from . import passes

QUEUE_AT = 2  # the call that queues a signature: what runs once is never compiled
FEWEST_CALLS = 5  # before the tier changes
# The compiler begins after this part of the calls until then: of 2,000 lengths of a sequence most
# are called too seldom to be compiled. The estimates below are high enough to leave it the rest.
BEGINS_AFTER = 8
NEVER = 1 << 62
# Estimates, deliberately high, of the time until a graph is compiled, with an empty cache of
# kernels. Measured on two busy cores: 0.2 s for an MLP, 0.3 s for 150 nodes, 0.5 s for LeNet.
COMPILE_US, COMPILE_US_PER_NODE = 500_000, 4_000
CALL_US = 20  # of a call, beside its kernels
MAX_WAIT_S = 1.0  # with PLAIT_TIER=ready: how long a program may wait for those it belongs with
SWITCH_S = 5e-5  # how often the compiler's thread gives way: the caller's calls last microseconds


class Tiered(ABC):
    """Something that starts at tier 0 and is compiled at tier 1: a signature of a graph, or the
    gradients of a tape's structure.

    serving: what calls use now. hits: its calls. due: the call that must call `reached`. queued: it
    has been called again, so it will change; submitted: the compiler has it. change_at: the first
    call at tier 1; 0 while that is not known. lead: how many calls before that one the change is
    made. waited_s: how long the change waited for the compiler. The lock
    `_compiler.changing` guards all but `hits`, which passes through every number although threads
    may count one call twice.
    """

    serving: Any = None
    hits, due = 0, QUEUE_AT
    change_at, lead, waited_s = 0, 0, 0.0
    queued = submitted = compiled = changed = False
    _number, _structure = 0, ""
    made: Any = None

    @abstractmethod
    def build(self, tier: int) -> Any:
        """What serves at a tier. Tier 1 is built on the compiler's thread."""

    @abstractmethod
    def work(self) -> tuple[int, float]:
        """(nodes to compile, estimated microseconds of a call with what belongs to it)."""

    @abstractmethod
    def described(self) -> str:
        """A name that is the same in every process that builds the same."""

    def compile(self) -> Any:
        """Makes what `publish` takes, on the compiler's thread."""
        return self.build(1)

    def publish(self, made: Any) -> None:
        """Puts what was compiled in the place of tier 0, and changes what belongs with it."""
        self.serving = made

    def restart(self) -> None:
        """Goes back to tier 0."""
        self.serving = self.build(0)

    def waits_for_others(self) -> bool:
        """Does something that belongs with this one decide when both change?"""
        return False

    def below(self) -> Sequence[Tiered]:
        """What must be compiled before it."""
        return ()

    def use(self) -> Any:
        """What serves one more call."""
        hits = self.hits = self.hits + 1
        if hits >= self.due:
            self.reached(hits)
        return self.serving

    # ---- over processes --------------------------------------------------------------------------

    # what decides at which call the tier changes
    counted: ClassVar[tuple[str, ...]] = ("hits", "due", "change_at", "queued", "changed")

    def structure(self) -> str:
        """`described`, worked out once."""
        self._structure = self._structure or self.described()
        return self._structure

    def in_use(self) -> bool:
        """Can it still be called?"""
        return True

    def begin(self) -> None:
        """Before its first call: counts on where the run did that is resumed, if one is."""
        self._number = next(_numbers)
        _alive.add(self)
        if _resumed and self.in_use():
            found = _resumed.get(self.structure())
            if found:
                self.adopt(found.pop(0))

    def adopt(self, counts: dict) -> None:
        """Takes the counts of another process, and with them its tier: waits for the compiler;
        where that had failed there, tier 0 serves here too."""
        with _compiler.changing:
            failed = counts["changed"] and not counts["change_at"]
            if self.changed and (failed or not counts["changed"]):
                self.restart()
                self.changed = self.queued = self.submitted = self.compiled = False
            queued, changed = self.queued, failed or self.changed
            # what the compiler reads is set before it is queued
            vars(self).update(counts, queued=queued, changed=changed)
            if counts["queued"] and not queued and not failed:
                self.queued = _compiler.is_open()
                _queued.add(self)
                if self.due >= self.change_at - self.lead:  # it was at work on it
                    self.submit()
            if counts["changed"]:
                self.change(counts["change_at"])

    def reached(self, hits: int) -> None:
        """Call number `hits` is due: says when the tier will change, submits the compilation, or
        changes the tier."""
        with _compiler.changing:
            if hits < self.due:  # another thread was here
                return
            if not self.queued:
                if not _compiler.is_open():
                    self.due = 2 * hits
                    return
                self.queued = True
                _queued.add(self)
                if settings.get("PLAIT_TIER") == "ready":
                    self.due = NEVER
                    self.submit()
                    return
                n = calls_meanwhile(*self.work())
                self.change_at, self.due = hits + n + self.lead, hits + n // BEGINS_AFTER
                if hits < self.due:
                    return
            if hits < self.change_at - self.lead:
                self.due = self.change_at - self.lead
                self.submit()
            elif self.waits_for_others():
                self.change_at, self.due = 0, 2 * hits
            else:
                self.change(hits + self.lead)

    def waits_for_submission(self) -> bool:
        """Has it a call at which it changes, and is it not compiled yet?"""
        return self.queued and not (self.submitted or self.changed)

    def submit(self) -> None:
        """Gives it to the compiler, after what must be compiled before it."""
        with _compiler.changing:
            if self.waits_for_submission():
                for job in self.below():
                    job.submit()
                self.submitted = _compiler.submit(self)

    def change(self, at: int = 0) -> None:
        """Changes to tier 1 now, after the compiler is done with it. at: the first call that is
        at tier 1; default: the next one."""
        with _compiler.changing:
            if self.changed or not self.queued:
                return
            start = time.perf_counter()
            self.submit()
            if not _compiler.finish(self):
                return
            self.waited_s = time.perf_counter() - start
            self.changed, self.due = True, NEVER
            made, self.made = self.made, None
            self.change_at = 0 if made is None else at or self.hits + 1
            if made is not None:
                self.publish(made)


def calls_meanwhile(n_nodes: int, call_us: float) -> int:
    """How many calls of a graph surely take longer than its compilation. The same in every run:
    estimated from the graph, never measured."""
    needed = (COMPILE_US + COMPILE_US_PER_NODE * n_nodes) / (call_us + CALL_US)
    return max(FEWEST_CALLS, int(needed))


class Compiler:
    """One queue and one daemon thread, started by the first job.

    Jobs are compiled in the order in which they were queued: backward programs come after the
    forward programs that they belong to.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything, the thread too: what a forked child starts from."""
        self._changed = threading.Condition()
        self.changing = threading.RLock()  # held while a tier is changed; taken before _changed
        # held while a job runs, but not while it waits for a C compiler: a fork takes it
        self._running = threading.RLock()
        self._jobs: deque[weakref.ref[Tiered]] = deque()
        self._made: list[weakref.ref[Tiered]] = []  # compiled since the last wait
        self._thread: threading.Thread | None = None
        self._busy: weakref.ref[Tiered] | None = None
        self._closed = self._ready = False
        self.error: Exception | None = None

    def is_open(self) -> bool:
        """Is there a tier 1?"""
        return not self._closed and settings.get("PLAIT_TIER") != 0

    def submit(self, job: Tiered) -> bool:
        """Queues a job, which is held weakly. Returns False when there is no tier 1."""
        with self._changed:
            if not self.is_open():
                return False
            self._ready = settings.get("PLAIT_TIER") == "ready"
            self._jobs.append(weakref.ref(job))
            if self._thread is None:
                _prepare()
                compilers.waiting = self.unlocked
                self._thread = threading.Thread(target=self._work, name="plait-tier1", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def finish(self, job: Tiered) -> bool:
        """Waits until a job is compiled. Returns False where that cannot be: on the compiler's own
        thread, and when the process ends."""
        if threading.current_thread() is self._thread:
            return job.compiled
        with self._changed:
            at_work = self._busy is not None and self._busy() is job
            if not (job.compiled or at_work or any(ref() is job for ref in self._jobs)):
                self.submit(job)  # a fork has emptied the queue
            self._changed.wait_for(lambda: job.compiled or not self._jobs and self._busy is None)
        return job.compiled

    def _to_submit(self) -> list[Tiered]:
        """What has a call at which it changes and can still be called, in the order in which it was
        made. Most of what is alive was called too seldom for that."""
        with self.changing:
            found = [job for job in list(_queued) if job.waits_for_submission()]
            _queued.clear()
            _queued.update(found)
        return sorted([job for job in found if job.in_use()], key=lambda job: job._number)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is queued or compiled, and changes the tier of what is ready.
        timeout: seconds. Returns False when time is over. Raises a job's error where passes are
        checked."""
        if threading.current_thread() is self._thread:
            return True
        for job in self._to_submit():
            job.submit()
        with self._changed:
            done = self._changed.wait_for(lambda: not self._jobs and self._busy is None, timeout)
        if done:
            self._publish()
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
        if thread is not None:
            compilers.stop()
            if thread is not threading.current_thread():
                thread.join()

    def pause(self) -> None:
        """Before a fork: from here no job runs, so that the child inherits no lock that one
        holds."""
        self._running.acquire()

    def resume(self) -> None:
        self._running.release()

    @contextlib.contextmanager
    def unlocked(self) -> Iterator[None]:
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
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if self._closed:
                    return
                self._busy = self._jobs.popleft()
                job = self._busy()
            if job is not None:
                since = since if self._made else time.monotonic()
                with self._running:
                    self._run(job)
            del job
            with self._changed:
                self._busy = None
                self._changed.notify_all()
            if self._ready and (not self._jobs or time.monotonic() - since > MAX_WAIT_S):
                self._publish()

    def _run(self, job: Tiered) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, SWITCH_S))
        try:
            job.made = job.compile()
        except Exception as error:  # the graph stays at tier 0
            self._failed(str(job), error)
        finally:
            job.compiled = True
            self._made.append(weakref.ref(job))
            sys.setswitchinterval(interval)

    def _publish(self) -> None:
        """Changes what was compiled, the last first: a backward program stands ready when the new
        forward one is first used."""
        with self.changing:
            while self._made:
                job = self._made.pop()()
                try:
                    if job is not None:
                        job.change()
                except Exception as error:  # the thread must live: it is waited for
                    self._failed(str(job), error)

    def _failed(self, name: str, error: Exception) -> None:
        if not self._closed:
            if passes.checking:
                self.error = error
            import logging

            log = logging.getLogger(f"{__package__.split('.')[0]}.tiers")
            log.warning("tier 1 of %s failed to compile, it stays at tier 0: %s", name, error)


_compiler = Compiler()
_alive: weakref.WeakSet[Tiered] = weakref.WeakSet()
_queued: weakref.WeakSet[Tiered] = weakref.WeakSet()  # among them, what waits or waited
_numbers = itertools.count()
_resumed: dict[str, list[dict]] = {}  # by structure: counts that nothing has taken yet


def counts() -> dict[str, list[dict]]:
    """How often each signature was called and whether its tier has changed, by its structure: what
    a checkpoint keeps, so that a resumed run computes with the same programs as this one."""
    found: dict[str, list[dict]] = {}
    with _compiler.changing:
        for job in _in_use():
            kept = {name: getattr(job, name) for name in job.counted}
            found.setdefault(job.structure(), []).append(kept)
        for structure, rest in _resumed.items():  # of a resumed run, and not called since
            found.setdefault(structure, []).extend(rest)
    return found


def resume(found: dict[str, list[dict]]) -> None:
    """Continues from counts: each signature takes them when it is made. One whose tier had changed
    is compiled at its first call, which waits; the kernels are in the cache on the disk. Nothing
    happens with PLAIT_TIER=0, which never changes, and "ready", which follows the clock."""
    _resumed.clear()
    if settings.get("PLAIT_TIER") in (0, "ready"):
        return
    _resumed.update({structure: list(kept) for structure, kept in found.items()})
    for job in _in_use():
        if kept := _resumed.get(job.structure()):
            job.adopt(kept.pop(0))


def waiting(plan: Any) -> int:
    """The calls, in the run that is resumed, of what belongs with a graph's plan and is queued with
    it, but was not called since."""
    part = plan.structure() if _resumed else ""
    return sum(
        kept["hits"]
        for found in _resumed.values()
        for kept in found
        if part in kept.get("parts", ()) and kept["queued"] and not kept["changed"]
    )


def _in_use() -> list[Tiered]:
    """All that can still be called, in the order in which they were made."""
    return sorted([job for job in list(_alive) if job.in_use()], key=lambda job: job._number)


def wait_compiled(timeout: float | None = None) -> bool:
    """Waits until all programs that are queued are compiled, and uses them from the next call on.

    For measurements and tests; nothing else needs it, since each signature changes to tier 1 at a
    fixed call. With a timeout, results may depend on the clock.

    Args:
        timeout: seconds; None waits as long as it takes.
    Returns: False when the time was over before; then nothing changes.

    >>> plait.wait_compiled()
    True
    """
    return _compiler.wait(timeout)


atexit.register(_compiler.close)
os.register_at_fork(after_in_child=_compiler.reset)


@functools.cache
def _prepare() -> None:
    """Before the first thread: registers what a fork does. Python calls such functions in the
    reverse order, so `pause` comes before those of the modules that a job needs: logging's holds
    its lock, which a job may be about to take."""
    compilers.load()
    os.register_at_fork(before=_compiler.pause, after_in_parent=_compiler.resume)
