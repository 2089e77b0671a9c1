"""Requests that wait, and the one thread that runs them, joined into batches."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.error import MXNetError
from .metrics import Metrics
from .refused import Refused
from .repository import Served


class Job:
    """A request that waits. future: its results, set in the event loop's thread."""

    __slots__ = ("arrays", "future", "rows", "since", "result")

    def __init__(self, arrays: list[np.ndarray], rows: int, future: asyncio.Future):
        self.arrays, self.rows, self.future = arrays, rows, future
        self.since = time.perf_counter()
        self.result: list[np.ndarray] | BaseException = []


class Queue:
    """Jobs that may run in one call. company: whether there were others when the last batch ran,
    so that to wait for others is worth something. works: whether the model took such arrays."""

    def __init__(self, served: Served, signature: tuple):
        self.served, self.signature, self.jobs = served, signature, deque[Job]()
        self.rows, self.company, self.works = 0, False, False

    def due(self, delay: float) -> float:
        """When its next batch starts, if no other job comes."""
        most = self.served.plan.most if self.served.batched else 1
        if self.rows >= most or not self.company:
            return self.jobs[0].since
        return self.jobs[0].since + min(delay, self.served.plan.saving[self.rows])

    def take(self) -> list[Job]:
        """The jobs of the next batch."""
        most = self.served.plan.most if self.served.batched else 1
        taken, rows = [self.jobs.popleft()], 0
        rows = taken[0].rows
        while self.jobs and rows + self.jobs[0].rows <= most:
            taken.append(self.jobs.popleft())
            rows += taken[-1].rows
        self.rows -= rows
        return taken


class Batcher:
    """The queues of all models and their thread, which runs `first` before anything else."""

    def __init__(self, delay: float, patience: float, metrics: Callable[[], Metrics]):
        """delay: seconds a job waits for others at most. patience: seconds after which a job that
        still waits is refused."""
        self._delay, self._patience, self._metrics = delay, patience, metrics
        self._queues: dict[Any, Queue] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self, first: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Starts the thread. loop: that of the jobs' futures."""
        self._loop = loop
        self._thread = threading.Thread(
            target=self._run, args=(first,), name="plait serve", daemon=True
        )
        self._thread.start()

    def add(self, served: Served, signature: tuple, job: Job) -> None:
        """Queues a job."""
        key = served, signature
        with self._changed:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue(served, signature)
            queue.jobs.append(job)
            queue.rows += job.rows
            self._changed.notify()

    def length(self) -> int:
        """Jobs that wait."""
        return sum(len(q.jobs) for q in list(self._queues.values()))

    def close(self, seconds: float) -> None:
        """Ends the thread when all queues are empty, waiting so long for it at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self, first: Callable[[], None]) -> None:
        first()
        while (taken := self._next()) is not None:
            queue, jobs = taken
            now = time.perf_counter()
            late = [j for j in jobs if now - j.since > self._patience]
            for job in late:
                job.result = Refused(
                    503, f"the request waited {self._patience:g} s, and others are before it",
                    retry_after=1,
                )  # fmt: skip
            good = [j for j in jobs if j not in late and not j.future.cancelled()]
            waited = self._metrics().waited.labels(queue.served.name, queue.served.version)
            for job in good:
                waited.observe(now - job.since)
            if good:
                self._compute(queue.served, good)
            queue.company = len(jobs) > 1 or bool(queue.jobs)
            if not queue.works:
                self._judge(queue, good)
            self._loop.call_soon_threadsafe(_finish, jobs)
            del taken, jobs, good, late  # an idle thread holds no arrays

    def _next(self) -> tuple[Queue, list[Job]] | None:
        """The batch that is due, waiting for it; None: the server stops and nothing is left."""
        with self._changed:
            while True:
                waiting = [q for q in self._queues.values() if q.jobs]
                if not waiting:
                    if self._closing:
                        return None
                    self._changed.wait()
                    continue
                delay = 0.0 if self._closing else self._delay
                due, _, queue = min((q.due(delay), i, q) for i, q in enumerate(waiting))
                left = due - time.perf_counter()
                if left <= 0:
                    return queue, queue.take()
                self._changed.wait(left)

    def _judge(self, queue: Queue, jobs: list[Job]) -> None:
        """Forgets a signature that the model refused, so that it counts as none."""
        queue.works = any(not isinstance(j.result, BaseException) for j in jobs)
        with self._changed:
            if jobs and not queue.works and not queue.jobs:
                self._queues.pop((queue.served, queue.signature), None)
                queue.served.shapes.discard(queue.signature)

    def _compute(self, served: Served, jobs: list[Job]) -> None:
        """Fills the results. A batch that fails runs again one by one, so that a request whose
        values the model refuses does not take others with it."""
        metrics, start = self._metrics(), time.perf_counter()
        labels = served.name, served.version
        try:
            padded = compute(served, jobs)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._compute(served, [job])
                return
            jobs[0].result = _refusal(error)
            return
        metrics.computed.labels(*labels).observe(time.perf_counter() - start)
        metrics.rows.labels(*labels).observe(sum(j.rows for j in jobs))
        if padded:
            metrics.padded.labels(*labels).inc(padded)


def compute(served: Served, jobs: list[Job]) -> int:
    """Runs jobs in as few calls as the plan says, and gives each its rows. Returns how many rows
    were added to fill a size."""
    assert served.model is not None
    if not served.batched:
        (job,) = jobs
        job.result = served.model.run(job.arrays)
        return 0
    rows = sum(job.rows for job in jobs)
    calls = served.plan.calls(rows)
    total = sum(calls)
    arrays = [_joined([job.arrays[i] for job in jobs], total) for i in range(len(jobs[0].arrays))]
    parts, at = [], 0
    for n in calls:
        parts.append(served.model.run([a[at : at + n] for a in arrays]))
        at += n
        if any(x.ndim == 0 or len(x) != n for x in parts[-1]):
            raise Refused(500, f"the model gave {parts[-1][0].shape} for {n} rows")
    results = parts[0] if len(parts) == 1 else [np.concatenate(p) for p in zip(*parts)]
    at = 0
    for job in jobs:
        job.result = [x[at : at + job.rows] for x in results]
        at += job.rows
    return total - rows


def _joined(arrays: list[np.ndarray], total: int) -> np.ndarray:
    """Rows of several arrays one after the other; the last one is repeated up to the total: a row
    that the model takes."""
    made = np.empty((total, *arrays[0].shape[1:]), arrays[0].dtype)
    at = 0
    for a in arrays:
        made[at : at + len(a)] = a
        at += len(a)
    if at < total:
        made[at:] = made[at - 1]
    return made


def _refusal(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, MemoryError):
        return Refused(503, "there is not enough memory for the request now", retry_after=1)
    if isinstance(error, MXNetError):
        return Refused(422, f"the model cannot compute these inputs: {error}")
    traceback.print_exception(error, file=sys.stderr)
    return Refused(500, f"the server failed: {type(error).__name__}; its log says more")


def _finish(jobs: list[Job]) -> None:
    """In the event loop's thread."""
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.result, BaseException):
            job.future.set_exception(job.result)
        else:
            job.future.set_result(job.result)
