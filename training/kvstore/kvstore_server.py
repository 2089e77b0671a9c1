"""KVStoreServer: a rank that has weights of a "dist_async" store, and updates them at each push."""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial
from typing import Any

from ...dist import receive, send
from ...dist.world import messages, servers
from ...engine import push
from ...engine.error import MXNetError
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.creation import empty
from ..optimizer.updater import Updater, from_description, get_updater, set_hyperparameters
from .base import StoreError
from .compression import GradientCompression
from .requests import (
    HEADER,
    INIT,
    LOAD,
    PULL,
    PUSH,
    PUSHPULL,
    SAVE,
    STOP,
    SYNC,
    TEXT,
    Entry,
    entries,
    header,
    read_json,
    send_bytes,
)


class KVStoreServer:
    """The server of a distributed store. A rank that `python -m plait launch -s` starts as a server
    serves when its script calls mx.dist.init(), or makes a distributed store or a Trainer with one.
    That call does not return, so no script needs this class.
    """

    def __init__(self, kvstore: Any):
        self.kvstore, self.handle = kvstore, kvstore.handle

    def run(self) -> None:
        """Raises MXNetError: this process is a worker."""
        raise MXNetError(
            "KVStoreServer.run: this process is not a server\n  fix: python -m plait launch -n 4 -s"
            " 2 script.py"
        )


def serve() -> None:
    """Serves the workers' requests, until the last worker ends."""
    _Server(range(servers().start)).run()


class _Server:
    """Weights by key, and the state of each worker. One thread handles all requests; messages and
    updates are engine operations, which put its next step into a queue when they are done."""

    def __init__(self, workers: range):
        self._group = messages()
        self._ready: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lists: dict[tuple[int, int], list[Entry]] = {}  # by worker and number
        self._weights: dict[int | str, NDArray] = {}
        self._updater: Updater | None = None
        self._compression: GradientCompression | None = None
        self._pushes = dict.fromkeys(workers, 0)  # of workers that have not left
        self._staleness: int | None = None
        self._deferred: list[tuple[int, int]] = []  # answers to workers that are too far ahead

    def run(self) -> None:
        with pause():
            for worker in self._pushes:
                self._listen(worker)
            while self._pushes:
                self._ready.get()()

    def _when(self, arrived: NDArray, call: Callable[[], None]) -> None:
        push(lambda: self._ready.put(call), [arrived], [], lane="comm", name="request")

    def _receive(self, worker: int, into: NDArray, call: Callable[[], None]) -> None:
        receive(into, worker, name="request", timeout=0)
        self._when(into, call)

    def _listen(self, worker: int) -> None:
        """Waits for a worker's next request: one at a time, so they are served in order."""
        head = empty((HEADER,), dtype="int64")
        self._receive(worker, head, partial(self._begin, worker, head))

    def _begin(self, worker: int, head: NDArray) -> None:
        operation, number, *_ = head.asnumpy().tolist()
        if operation in (TEXT, LOAD):
            use = self._note if operation == TEXT else self._load
            text = empty((number,), dtype="uint8")
            self._receive(worker, text, partial(use, worker, text))
        elif operation in (INIT, PUSH, PUSHPULL):
            self._take(worker, operation, number)
        elif operation == PULL:
            self._answer(worker, number)
        elif operation == SYNC:
            send(header(SYNC), worker, name="answer")
            self._listen(worker)
        elif operation == SAVE:
            states = b"" if self._updater is None else self._updater.get_states(bool(number))
            send(header(SAVE, len(states)), worker, name="answer")
            if states:
                send_bytes(states, worker)
            self._listen(worker)
        elif operation == STOP:
            del self._pushes[worker]
            self._answer_deferred()

    def _note(self, worker: int, text: NDArray) -> None:
        found = read_json(text)
        if "keys" in found:
            self._lists[worker, found["list"]] = entries(found["keys"])
        if "optimizer" in found:
            self._updater = get_updater(from_description(found["optimizer"]), 0)
        if "changed" in found and self._updater is not None:
            set_hyperparameters(self._updater.optimizer, found["changed"])
        if "compression" in found:
            self._compression = GradientCompression(found["compression"], ("2bit", "fp16"))
        if "staleness" in found:
            self._staleness = found["staleness"]
        self._listen(worker)

    def _load(self, worker: int, states: NDArray) -> None:
        if self._updater is None:
            raise StoreError("dist_async: states before set_optimizer")
        self._updater.set_states(states.asnumpy().tobytes())
        self._listen(worker)

    def _take(self, worker: int, operation: int, number: int) -> None:
        """Receives the arrays of a request, and uses each as soon as it is here."""
        listed = self._lists[worker, number]
        left = [len(listed)]

        def used(entry: Entry, x: NDArray) -> None:
            if operation == INIT:
                self._weights[entry.key] = x
            else:
                self._update(entry, x)
            left[0] -= 1
            if not left[0]:
                self._taken(worker, operation, number)

        for entry in listed:
            x = self._buffer(entry, operation)
            self._receive(worker, x, partial(used, entry, x))

    def _buffer(self, entry: Entry, operation: int) -> NDArray:
        if operation != INIT and self._compression is not None:
            return self._compression.buffer(entry.shape)
        return empty(entry.shape, dtype=entry.dtype)

    def _update(self, entry: Entry, gradient: NDArray) -> None:
        if self._updater is None:
            raise StoreError("dist_async: a push before set_optimizer")
        if self._compression is not None:
            gradient = self._compression.decoded(gradient, entry.shape)
        self._updater(entry.key, gradient, self._weights[entry.key])

    def _taken(self, worker: int, operation: int, number: int) -> None:
        if operation != INIT:
            self._pushes[worker] += 1
            self._answer_deferred()
        if operation == PUSHPULL:
            self._answer(worker, number)
        else:
            self._listen(worker)

    def _answer(self, worker: int, number: int) -> None:
        """Sends the weights of a list; later, if the worker is too far ahead of the slowest."""
        ahead = self._pushes[worker] - min(self._pushes.values())
        if self._staleness is not None and ahead > self._staleness:
            self._deferred.append((worker, number))
            return
        for entry in self._lists[worker, number]:
            send(self._weights[entry.key].copy(), worker, name=str(entry.key))
        self._listen(worker)

    def _answer_deferred(self) -> None:
        if self._deferred and self._pushes:
            waiting, self._deferred = self._deferred, []
            for worker, number in waiting:
                self._answer(worker, number)
