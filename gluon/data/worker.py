"""Worker processes of the data loader: each makes batches and sends them through shared memory.

A worker runs the engine in naive mode: its transforms' operations run synchronously on its own
thread. Before each batch its random streams are seeded with a number drawn by the parent, so that
results do not depend on which worker makes which batch.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import queue
import random
import secrets
import signal
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable
from multiprocessing import connection, resource_tracker
from typing import Any

import numpy as np

from ...engine import lib
from ...engine.error import MXNetError
from ...engine.interrupt import deferred
from ...ndarray.numpy_mode import set_np, switches
from .batchify import default_batchify_fn, default_mp_batchify_fn, in_columns
from .shared import Receiver, Sender, Stacked

PARENT_CHECK_SECONDS = 5.0
STOP_SECONDS = 2.0
DEATH_SECONDS = 30.0  # from the end of the pipe to process exit: a large process on a busy machine
LOOK_SECONDS = 0.5  # a worker's child keeps its pipes open, so they do not always tell its end


class WorkerTraceback(Exception):
    """The cause of a worker's error: its traceback as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return f"\n{self.text}"


# ---- in the worker -------------------------------------------------------------------------------


def _main(dataset, batchify_fn, pipe, prefix, parent_pid, inherited):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # pipe ends copied by fork: they would outlive the parent
    for other in inherited:
        other.close()
    lib.pl_engine_set_naive(1)
    lib.pl_thread_pool_limit(1)  # the workers share the cores
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks, parent_pid), daemon=True).start()
    sender = Sender(prefix)
    default = batchify_fn in (None, default_batchify_fn, default_mp_batchify_fn)
    try:
        while (task := tasks.get()) is not None:
            number, indices, seed, released, mode = task
            sender.release(released)
            try:
                set_np(*mode)
                _seed(seed)
                items = [dataset[i] for i in indices]
                batch = in_columns(items, Stacked) if default else batchify_fn(items)
                pipe.send((number, True, sender.pack(batch)))
            except Exception as error:
                pipe.send((number, False, _describe(error)))
    except (BrokenPipeError, ConnectionResetError):  # the parent has exited
        pass
    finally:
        sender.close()


def _listen(pipe, tasks, parent_pid) -> None:
    """Reads tasks from the pipe immediately, so that the parent never blocks sending one; None at
    the end."""
    try:
        while os.getppid() == parent_pid:
            if pipe.poll(PARENT_CHECK_SECONDS):
                task = pipe.recv()
                tasks.put(task)
                if task is None:
                    return
    except (EOFError, OSError):
        pass
    tasks.put(None)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    lib.pl_seed(seed)


def _describe(error: Exception) -> tuple[bytes | None, str]:
    """The pickled error (None if it cannot be pickled) and its traceback."""
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = None
    return pickled, text


# ---- in the parent -------------------------------------------------------------------------------


class _Worker:
    def __init__(
        self,
        context: Any,
        number: Any,
        dataset: Any,
        batchify_fn: Callable[..., Any] | None,
        others: Any,
    ):
        self.prefix = f"plait-{os.getpid()}-{secrets.token_hex(4)}-{number}-"
        self.receiver = Receiver(self.prefix)
        self.waiting: set[int] = set()
        self.pipe, theirs = context.Pipe()
        forked = context.get_start_method() == "fork"
        self.process = context.Process(
            target=_main,
            name=f"plait-data-{number}",
            daemon=True,
            args=(
                dataset,
                batchify_fn,
                theirs,
                self.prefix,
                os.getpid(),
                [w.pipe for w in others] + [self.pipe] if forked else [],
            ),
        )
        # Python warns of fork with threads; the engine stops its own around it
        with deferred(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()


class WorkerPool:
    """n processes that make batches of a dataset.

    Args:
        context: of multiprocessing; "fork" does not pickle the dataset, "spawn" and "forkserver"
            do.
    """

    def __init__(
        self, dataset: Any, batchify_fn: Callable[..., Any] | None, n_workers: int, context: Any
    ):
        # one for all: a worker's own tracker would remove segments that the parent still reads
        resource_tracker.ensure_running()
        self._numbers = itertools.count()
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._results: dict = {}
        self._unwanted: set = set()
        self.workers: list[_Worker] = []
        self._stop = weakref.finalize(self, _stop, self.workers, self._pid)
        self.broken = False
        try:
            for i in range(n_workers):
                self.workers.append(_Worker(context, i, dataset, batchify_fn, self.workers))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self._stop()
            if context.get_start_method() == "fork":
                raise
            raise MXNetError(
                "DataLoader: the dataset and batchify_fn must be picklable for worker processes"
                f" started by {context.get_start_method()!r}: {error}\n  fix: use functions of a"
                " module instead of lambdas, or thread_pool=True"
            ) from error

    def submit(self, indices: Any, seed: int) -> int:
        """Requests a batch; returns its ticket."""
        with self._lock:
            worker = min(self.workers, key=lambda w: len(w.waiting))
            ticket = next(self._numbers)
            worker.waiting.add(ticket)
            try:
                worker.pipe.send((ticket, indices, seed, worker.receiver.free(), switches()))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the wait for the batch detects that the worker died
            return ticket

    def result(self, ticket: int, timeout: float) -> Any:
        """The batch of a ticket. Raises the worker's error, or MXNetError if it died or took over
        `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while ticket not in self._results:
                self._receive(ticket, deadline, timeout)
            worker, good, payload = self._results.pop(ticket)
            if good:
                return worker.receiver.unpack(payload)
        _raise(*payload)

    def forget(self, tickets: Any) -> None:
        """Drops batches that will not be used."""
        if self._pid != os.getpid():  # a forked copy, whose lock may never be released
            return
        with self._lock:
            for ticket in tickets:
                if ticket in self._results:
                    self._drop(*self._results.pop(ticket))
                else:
                    self._unwanted.add(ticket)

    @staticmethod
    def _drop(worker, good, payload) -> None:
        if good:
            worker.receiver.drop(payload)

    def _receive(self, ticket, deadline, timeout) -> None:
        owner = next((w for w in self.workers if ticket in w.waiting), None)
        if owner is None or self.broken:
            raise MXNetError(
                "DataLoader: its workers were stopped\n  fix: iterate over the loader again"
            )
        left = deadline - time.monotonic()
        pipes = [w.pipe for w in self.workers]
        patience = max(min(left, LOOK_SECONDS), 0)
        ready = connection.wait([*pipes, owner.process.sentinel], patience)
        if not ready and left > 0:
            if owner.process.exitcode is not None:
                self._died(owner)
            return
        if not ready:
            for worker in self.workers:  # do not wait for a worker that is stuck
                worker.process.kill()
            self.close()
            raise MXNetError(
                f"DataLoader: no batch within timeout = {timeout} s\n  fix: give a larger timeout,"
                " or debug the dataset with num_workers=0"
            )
        heard = False
        for worker in self.workers:
            if worker.pipe in ready:
                try:
                    number, good, payload = worker.pipe.recv()
                except (EOFError, OSError):
                    continue
                heard = True
                worker.waiting.discard(number)
                if number in self._unwanted:
                    self._unwanted.discard(number)
                    self._drop(worker, good, payload)
                else:
                    self._results[number] = (worker, good, payload)
        if not heard:
            self._died(
                owner
                if owner.process.sentinel in ready
                else next(w for w in self.workers if w.pipe in ready)
            )

    def _died(self, worker) -> None:
        _join(worker.process, DEATH_SECONDS)
        code, pid = worker.process.exitcode, worker.process.pid
        self.close()
        death = (
            f"by signal {signal.Signals(-code).name}"
            if code and code < 0
            else f"with exit status {code}"
        )
        raise MXNetError(
            f"DataLoader: worker process {pid} died {death} while making a batch\n  fix: "
            + (
                "was it killed for lack of memory? Use fewer workers or smaller batches"
                if code == -signal.SIGKILL
                else "run with num_workers=0 to see the error"
            )
        )

    def close(self) -> None:
        """Stops the workers; closing twice is fine."""
        self.broken = True
        self._stop()


def _stop(workers, pid) -> None:
    if os.getpid() != pid:  # a forked copy of the pool
        return
    for worker in workers:
        try:
            worker.pipe.send(None)
        except OSError:
            pass
    deadline = time.monotonic() + STOP_SECONDS
    for worker in workers:
        _join(worker.process, deadline - time.monotonic())
        killed = worker.process.exitcode != 0
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.receiver.close(sender_died=killed)
        worker.pipe.close()


def _join(process, seconds: float) -> None:
    """Waits for the end of a process, but no longer than that. `Process.join` with a timeout waits
    for the end of its children, too."""
    deadline = time.monotonic() + seconds
    while process.exitcode is None and (left := deadline - time.monotonic()) > 0:
        connection.wait([process.sentinel], min(left, LOOK_SECONDS / 10))


def _raise(pickled: bytes | None, text: str):
    cause = WorkerTraceback(text)
    if pickled is None:
        raise MXNetError(f"DataLoader: a worker failed: {text.strip().splitlines()[-1]}") from cause
    error = pickle.loads(pickled)
    if isinstance(error, StopIteration):  # would end the caller's loop in silence
        error = RuntimeError("DataLoader: the dataset raised StopIteration")
    raise error from cause


def default_context() -> Any:
    """fork by default where available, so that a dataset may hold lambdas and open files."""
    chosen: str | None = multiprocessing.get_start_method(allow_none=True)
    if chosen is None and "fork" in multiprocessing.get_all_start_methods():
        chosen = "fork"
    return multiprocessing.get_context(chosen)
