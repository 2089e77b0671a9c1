"""DataLoader: batches of a dataset, made in this thread, or prefetched by threads or processes."""

from __future__ import annotations

import collections
import itertools
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from ...data.sampler import BatchSampler, RandomSampler, SequentialSampler, host_generator
from ...engine import cpu_pinned, lib
from ...engine.error import InvalidValue, MXNetError
from ...kernels.spec import spec
from ...ndarray import random
from ...ndarray.ndarray import NDArray, make_of
from ...ndarray.numpy_mode import set_np, switches
from ...ndarray.saved_state import StateError, restore, saved
from .batchify import default_batchify_fn, default_mp_batchify_fn
from .worker import WorkerPool, default_context

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: anything with `__getitem__(number)` and `__len__`.
        batch_size: number of items; not with batch_sampler.
        shuffle: a new random order each epoch; `mx.random.seed` makes it repeatable. Not with
            sampler.
        sampler: the order of the items.
        last_batch: "keep" (default), "discard" or "rollover" an incomplete last batch.
        batch_sampler: yields lists of indices; replaces the four above.
        batchify_fn: list of items -> batch; default: stack them.
        num_workers: 0 makes the batches here.
        pin_memory: batches are on cpu_pinned(pin_device_id), so that copies to a GPU overlap with
            computation. No effect on a machine without a GPU.
        prefetch: number of batches prepared in advance; default 2 * num_workers.
        thread_pool: workers are threads, not processes.
        timeout: seconds to wait for one batch of a worker.
        auto_reload: start preparing the next epoch as soon as one ends.
        multiprocessing_context: how processes start: "fork", "spawn", "forkserver" or a context.
            plait's addition.

    `epoch` counts the completed passes.

    Raises: ValueError for mutually exclusive arguments. While iterating: the error of a worker
        with its traceback as cause, MXNetError if a worker dies or does not answer for `timeout`
        seconds.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[..., Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
        *,
        multiprocessing_context: Any = None,
    ):
        self._pool: ThreadedPool | WorkerPool | None = None
        self._next_epoch: _Pass | None = None
        self.epoch = 0
        self._pass: weakref.ref[_Pass] | None = None  # the most recent one
        self._resumed: dict | None = None  # where the next pass starts
        self._dataset, self._timeout, self._auto_reload = dataset, timeout, auto_reload
        if timeout <= 0:
            raise InvalidValue(f"timeout must be positive (seconds), got {timeout}")
        self._batch_sampler = _batch_sampler(
            dataset, batch_size, shuffle, sampler, last_batch, batch_sampler
        )
        self._num_workers = max(0, num_workers)
        self._prefetch = max(0, int(prefetch) if prefetch is not None else 2 * self._num_workers)
        self._batchify_fn = batchify_fn
        self._pinned = cpu_pinned(pin_device_id) if pin_memory else None
        self._threads = thread_pool
        if multiprocessing_context is None or isinstance(multiprocessing_context, str):
            import multiprocessing

            self._context = (
                multiprocessing.get_context(multiprocessing_context)
                if multiprocessing_context
                else default_context()
            )
        else:
            self._context = multiprocessing_context
        if self._num_workers and auto_reload:
            self._next_epoch = self._start_epoch()

    def __len__(self):
        return len(self._batch_sampler)

    def __iter__(self):
        begun, self._next_epoch = self._next_epoch or self._start_epoch(), None
        return begun

    def _placed(self, batch):
        return batch if self._pinned is None else _as_in_context(batch, self._pinned)

    def _start_epoch(self):
        if not self._num_workers:
            return _PassHere(self)
        if self._pool is None or self._pool.broken:
            self._pool = (
                ThreadedPool(self._dataset, self._batchify_fn, self._num_workers)
                if self._threads
                else WorkerPool(self._dataset, self._batchify_fn, self._num_workers, self._context)
            )
        return Epoch(self)

    def refresh(self) -> None:
        """Starts preparing the next pass now, from the current data."""
        if self._num_workers:
            self.clean()
            self._next_epoch = self._start_epoch()

    def clean(self) -> None:
        """Drops the prefetched batches; the next pass makes new ones."""
        if self._next_epoch is not None:
            self._next_epoch.close()
            self._next_epoch = None

    @property
    def given(self) -> int:
        """The number of batches already returned in the current pass, or in the pass to be
        resumed."""
        going = None if self._pass is None else self._pass()
        if self._resumed is not None:
            return self._resumed["given"]
        return 0 if going is None or going.ended else going.given

    def state_dict(self) -> dict:
        """The loader's position: within a pass or between passes. The rest of a resumed pass has
        the same batches in the same order, also with workers."""
        found: dict[str, Any] = {"epoch": self.epoch, "items": len(self._dataset), "pass": None}
        going = None if self._pass is None else self._pass()
        if self._resumed is not None:
            found["pass"] = self._resumed
        elif going is not None and not going.ended:
            found["pass"] = {**going.begin, "given": going.given}
        else:
            found["sampler"] = saved(self._batch_sampler)
        return found

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict: the next iteration is the rest of that pass. Raises StateError
        if the data set has a different length."""
        if state["items"] != len(self._dataset):
            raise StateError(
                f"DataLoader: the saved position is for {state['items']} items, this data set"
                f" has {len(self._dataset)}"
            )
        self.clean()
        self._pass, self.epoch, self._resumed = None, state["epoch"], state["pass"]
        if self._resumed is None:
            restore(self._batch_sampler, state["sampler"], "DataLoader: sampler")

    def __getstate__(self):
        return self.__dict__ | {"_pool": None, "_next_epoch": None, "_pass": None}

    def __del__(self):
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.close()


class _Pass:
    """One pass over a loader.

    begin: the state of the random streams and the sampler at its start; a resumed pass restores it
        and skips the batches already returned. given: their number.
    """

    def __init__(self, loader: DataLoader):
        self._loader: DataLoader | None = loader
        self.ended = False
        resumed, loader._resumed = loader._resumed, None
        now = random.get_state()
        if resumed is not None:
            random.set_state(resumed["streams"])
            restore(loader._batch_sampler, resumed["sampler"], "DataLoader: sampler")
        self.begin = {"streams": random.get_state(), "sampler": saved(loader._batch_sampler)}
        self.given = 0 if resumed is None else resumed["given"]
        self._begin(loader)
        if resumed is not None:
            for _ in range(self.given):
                self._skip()
            random.set_state(now)
        loader._pass = weakref.ref(self)

    def _begin(self, loader: DataLoader) -> None:
        """Draws the pass's random numbers now, because another pass may draw before this one's
        first batch is requested."""
        batches = iter(loader._batch_sampler)
        first = next(batches, None)  # samplers draw random numbers here
        self._batches = batches if first is None else itertools.chain([first], batches)

    def _skip(self) -> None:
        next(self._batches, None)

    def _end(self) -> NoReturn:
        """After the last batch."""
        loader, self._loader, self.ended = self._loader, None, True
        if loader is not None:
            loader.epoch += 1
            if loader._auto_reload and loader._num_workers and loader._next_epoch is None:
                loader._next_epoch = loader._start_epoch()
        raise StopIteration

    def __iter__(self):
        return self

    def close(self) -> None:
        """Ends the pass."""
        self._loader, self.ended = None, True


class _PassHere(_Pass):
    """A pass whose batches are made on demand."""

    def __next__(self):
        loader = self._loader
        indices = None if loader is None else next(self._batches, None)
        if loader is None or indices is None:
            self._end()
        batchify = loader._batchify_fn or default_batchify_fn
        try:
            items = [loader._dataset[i] for i in indices]
        except StopIteration as error:  # would silently end the caller's loop
            raise RuntimeError("DataLoader: the dataset raised StopIteration") from error
        batch = loader._placed(batchify(items))
        self.given += 1
        return batch

    next = __next__


class Epoch(_Pass):
    """One pass over a loader whose workers prefetch."""

    def __init__(self, loader: DataLoader):
        assert loader._pool is not None
        self._pool = loader._pool
        self._tickets: collections.deque = collections.deque()
        super().__init__(loader)
        for _ in range(max(1, loader._prefetch)):
            self._submit()

    def _begin(self, loader: DataLoader) -> None:
        self._seeds = host_generator()  # seeds of the workers' streams, one per batch
        super()._begin(loader)

    def _skip(self) -> None:
        if next(self._batches, None) is not None:
            self._seed()

    def _seed(self) -> int:
        return int(self._seeds.integers(2**31))

    def _submit(self) -> None:
        indices = next(self._batches, None)
        if indices is not None:
            self._tickets.append(self._pool.submit(indices, self._seed()))

    def __next__(self):
        loader = self._loader
        if loader is None or not self._tickets:
            self._end()
        try:
            made = self._pool.result(self._tickets.popleft(), loader._timeout)
            batch = loader._placed(made)
        except BaseException:
            self.close()
            raise
        self._submit()
        self.given += 1
        return batch

    next = __next__

    def close(self) -> None:
        """Ends the pass and drops prefetched batches."""
        super().close()
        self._pool.forget(self._tickets)
        self._tickets.clear()

    def __del__(self):
        if getattr(self, "_tickets", None):
            self.close()


def _run_here() -> None:
    """Scope: operations pushed by this thread run on it instead of the lane's threads."""
    lib.pl_engine_set_inline(1)


class ThreadedPool:
    """Threads with the interface of WorkerPool."""

    broken = False

    def __init__(self, dataset: Any, batchify_fn: Callable[..., Any] | None, n_workers: int):
        self._dataset = dataset
        self._batchify_fn = batchify_fn or default_mp_batchify_fn
        self._threads = ThreadPoolExecutor(n_workers, "plait-data", _run_here)

    def submit(self, indices: Any, seed: int) -> Any:
        return self._threads.submit(self._make, indices, switches())

    def _make(self, indices, mode):
        set_np(*mode)
        try:
            return self._batchify_fn([self._dataset[i] for i in indices])
        except StopIteration as error:  # would silently end the caller's loop
            raise RuntimeError("DataLoader: the dataset raised StopIteration") from error

    def result(self, ticket: Any, timeout: float) -> Any:
        try:
            return ticket.result(timeout)
        except FutureTimeout:
            if ticket.done():  # the dataset's own TimeoutError
                raise
            raise MXNetError(
                f"DataLoader: no batch within timeout = {timeout} s\n  fix: give a larger timeout,"
                " or debug the dataset with num_workers=0"
            ) from None

    def forget(self, tickets: Any) -> None:
        for ticket in tickets:
            ticket.cancel()

    def close(self) -> None:
        self.broken = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _as_in_context(data, ctx):
    """New arrays, in nested lists too, on another device; not copied if the memory is the same."""
    if isinstance(data, NDArray):
        if data.stype != "default" or data.context.memory != ctx.memory:
            return data.as_in_context(ctx)
        s = data._spec
        view = lib.pl_array_view(data.handle, 0)
        return make_of(data.__class__, view, spec(s.shape, s.dtype, ctx))
    if isinstance(data, (list, tuple)):
        return [_as_in_context(part, ctx) for part in data]
    return data


class _MultiWorkerIter:
    """Batches made by a multiprocessing.Pool: the iterator of custom loaders with their own pool
    and worker function.

    worker_fn: called as (indices, batchify_fn, dataset) in a worker; without dataset it returns the
        batch pickled by ForkingPickler.
    """

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[..., Any],
        batch_sampler: Any,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Any = None,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ):
        self._pool, self._worker_fn, self._timeout = worker_pool, worker_fn, timeout
        self._batchify_fn, self._dataset, self._loader = batchify_fn, dataset, data_loader
        self._batch_sampler, self._indices = batch_sampler, iter(batch_sampler)
        self._waiting: collections.deque = collections.deque()
        for _ in range(prefetch):
            self._push_next()

    def __len__(self):
        return len(self._batch_sampler)

    def _push_next(self) -> None:
        indices = next(self._indices, None)
        if indices is not None:
            arguments = (indices, self._batchify_fn, self._dataset)
            self._waiting.append(self._pool.apply_async(self._worker_fn, arguments))

    def __iter__(self):
        return self

    def __next__(self):
        self._push_next()
        if not self._waiting:
            raise StopIteration
        batch = self._waiting.popleft().get(self._timeout)
        # written by the pool's own processes; unpickled as the pool itself does
        return ForkingPickler.loads(batch) if self._dataset is None else batch

    next = __next__


def _batch_sampler(dataset, batch_size, shuffle, sampler, last_batch, batch_sampler):
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise InvalidValue(
                "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler"
                " is specified."
            )
        return batch_sampler
    if batch_size is None:
        raise InvalidValue("batch_size must be specified unless batch_sampler is specified")
    if sampler is None:
        sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
    elif shuffle:
        raise InvalidValue("shuffle must not be specified if sampler is specified")
    return BatchSampler(sampler, batch_size, last_batch or "keep")
