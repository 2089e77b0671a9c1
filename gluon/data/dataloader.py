"""DataLoader: batches of a dataset, made here, by threads or by processes, ahead of their use."""

from __future__ import annotations

import collections
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from multiprocessing.reduction import ForkingPickler

from ...engine import cpu_pinned, lib
from ...engine.error import InvalidValue, MXNetError
from ...kernels.spec import spec
from ...ndarray.ndarray import NDArray, make
from .batchify import default_batchify_fn, default_mp_batchify_fn
from .sampler import BatchSampler, RandomSampler, SequentialSampler, host_generator
from .worker import WorkerPool, default_context

__all__ = ["DataLoader", "default_batchify_fn", "default_mp_batchify_fn"]


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: anything with `__getitem__(number)` and `__len__`.
        batch_size: number of items; not with batch_sampler.
        shuffle: random order, another one each epoch; `mx.random.seed` makes it repeat. Not with
            sampler.
        sampler: the order of the numbers.
        last_batch: "keep" (default), "discard" or "rollover" a last batch that is short.
        batch_sampler: gives lists of numbers, in place of the four above.
        batchify_fn: list of items -> batch; default: stack them.
        num_workers: 0 makes the batches here.
        pin_memory: batches are on cpu_pinned(pin_device_id), from where they are copied to a GPU
            while it computes. Without effect on a machine that has none.
        prefetch: number of batches made ahead; default 2 * num_workers.
        thread_pool: workers are threads, not processes.
        timeout: seconds to wait for one batch of a worker.
        auto_reload: begin the next epoch's batches as soon as one ends.
        multiprocessing_context: how processes start: "fork", "spawn", "forkserver" or a context.
            plait's addition.
    Raises: ValueError for arguments that exclude each other. While iterating: the error of a worker
        with its traceback as cause, MXNetError if a worker dies or is silent for `timeout` seconds.
    """

    def __init__(
        self,
        dataset,
        batch_size=None,
        shuffle=False,
        sampler=None,
        last_batch=None,
        batch_sampler=None,
        batchify_fn=None,
        num_workers=0,
        pin_memory=False,
        pin_device_id=0,
        prefetch=None,
        thread_pool=False,
        timeout=120,
        auto_reload=False,
        *,
        multiprocessing_context=None,
    ):
        self._pool, self._next_epoch = None, None
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
        if not self._num_workers:
            return self._here()
        epoch, self._next_epoch = self._next_epoch or self._start_epoch(), None
        return epoch

    def _here(self):
        batchify = self._batchify_fn or default_batchify_fn
        for indices in self._batch_sampler:
            yield self._placed(batchify([self._dataset[i] for i in indices]))

    def _placed(self, batch):
        return batch if self._pinned is None else _as_in_context(batch, self._pinned)

    def _start_epoch(self):
        if self._pool is None or self._pool.broken:
            self._pool = (
                ThreadedPool(self._dataset, self._batchify_fn, self._num_workers)
                if self._threads
                else WorkerPool(self._dataset, self._batchify_fn, self._num_workers, self._context)
            )
        return Epoch(self)

    def refresh(self) -> None:
        """Starts to make the batches of the next pass now, from the data as it is now."""
        if self._num_workers:
            self.clean()
            self._next_epoch = self._start_epoch()

    def clean(self) -> None:
        """Drops the batches that were made ahead; the next pass makes its own."""
        if self._next_epoch is not None:
            self._next_epoch.close()
            self._next_epoch = None

    def __getstate__(self):
        return self.__dict__ | {"_pool": None, "_next_epoch": None}

    def __del__(self):
        if getattr(self, "_pool", None) is not None:
            self._pool.close()


class Epoch:
    """One pass over a loader whose workers are ahead of it."""

    def __init__(self, loader: DataLoader):
        self._loader, self._pool = loader, loader._pool
        self._batches = iter(loader._batch_sampler)
        self._seeds = host_generator()
        self._tickets: collections.deque = collections.deque()
        for _ in range(max(1, loader._prefetch)):
            self._submit()

    def _submit(self) -> None:
        indices = next(self._batches, None)
        if indices is not None:
            self._tickets.append(self._pool.submit(indices, int(self._seeds.integers(2**31))))

    def __iter__(self):
        return self

    def __next__(self):
        if not self._tickets:
            loader, self._loader = self._loader, None
            if loader is not None and loader._auto_reload and loader._next_epoch is None:
                loader._next_epoch = loader._start_epoch()
            raise StopIteration
        try:
            made = self._pool.result(self._tickets.popleft(), self._loader._timeout)
            batch = self._loader._placed(made)
        except BaseException:
            self.close()
            raise
        self._submit()
        return batch

    next = __next__

    def close(self) -> None:
        """Ends the pass; batches that were made ahead are dropped."""
        self._pool.forget(self._tickets)
        self._tickets.clear()

    def __del__(self):
        if getattr(self, "_tickets", None):
            self.close()


def _run_here() -> None:
    """The operations of this thread run on it, beside those of the lane."""
    lib.pl_engine_set_inline(1)


class ThreadedPool:
    """Threads with the interface of WorkerPool."""

    broken = False

    def __init__(self, dataset, batchify_fn, n_workers: int):
        self._dataset = dataset
        self._batchify_fn = batchify_fn or default_mp_batchify_fn
        self._threads = ThreadPoolExecutor(n_workers, "plait-data", _run_here)

    def submit(self, indices, seed: int):
        return self._threads.submit(self._make, indices)

    def _make(self, indices):
        try:
            return self._batchify_fn([self._dataset[i] for i in indices])
        except StopIteration as error:  # would end the caller's loop in silence
            raise RuntimeError("DataLoader: the dataset raised StopIteration") from error

    def result(self, ticket, timeout: float):
        try:
            return ticket.result(timeout)
        except FutureTimeout:
            if ticket.done():  # the dataset's own TimeoutError
                raise
            raise MXNetError(
                f"DataLoader: no batch within timeout = {timeout} s\n  fix: give a larger timeout,"
                " or look what blocks the dataset with num_workers=0"
            ) from None

    def forget(self, tickets) -> None:
        for ticket in tickets:
            ticket.cancel()

    def close(self) -> None:
        self.broken = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _as_in_context(data, ctx):
    """New arrays, in nested lists too, on another device; not copied where that is the same
    memory."""
    if isinstance(data, NDArray):
        if data.stype != "default" or data.context.memory != ctx.memory:
            return data.as_in_context(ctx)
        s = data._spec
        return make(lib.pl_array_view(data.handle, 0), spec(s.shape, s.dtype, ctx))
    if isinstance(data, (list, tuple)):
        return [_as_in_context(part, ctx) for part in data]
    return data


class _MultiWorkerIter:
    """Batches made by a multiprocessing.Pool: the iterator of loaders that scripts derive with a
    pool and a worker function of their own.

    worker_fn: called as (indices, batchify_fn, dataset) in a worker; without dataset it returns the
        batch pickled by ForkingPickler.
    """

    def __init__(
        self,
        worker_pool,
        batchify_fn,
        batch_sampler,
        pin_memory=False,
        pin_device_id=0,
        worker_fn=None,
        prefetch=0,
        dataset=None,
        data_loader=None,
        timeout=120,
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
        # what the pool's own processes wrote, as the pool itself reads it
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
