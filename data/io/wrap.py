"""Iterators around iterators: ResizeIter (changes the number of batches), PrefetchingIter (prepares
batches in threads)."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ...engine.error import InvalidValue
from ...ndarray import random
from ...ndarray.saved_state import restore, saved
from .. import streams
from .desc import DataBatch, DataDesc, DataIter, need_iterator, position_of


class _Current(DataIter):
    """An iterator that keeps its batch as `current_batch`."""

    current_batch: DataBatch

    def getdata(self) -> Any:
        return self.current_batch.data

    def getlabel(self) -> Any:
        return self.current_batch.label

    def getindex(self) -> Any:
        return self.current_batch.index

    def getpad(self) -> Any:
        return self.current_batch.pad


class ResizeIter(_Current):
    """Makes an iterator give `size` batches an epoch; a shorter inner iterator is restarted.

    reset_internal: reset() resets the inner one too.
    """

    def __init__(self, data_iter: Any, size: Any, reset_internal: bool = True):
        need_iterator("ResizeIter: data_iter", data_iter)
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self.cur = 0
        self.provide_data, self.provide_label = data_iter.provide_data, data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def state_dict(self) -> dict[str, Any]:
        return {"cur": self.cur, "inner": saved(self.data_iter)}

    def load_state_dict(self, state: Any) -> None:
        self.cur = state["cur"]
        restore(self.data_iter, state["inner"], "ResizeIter: data_iter")

    def reset(self) -> None:
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        if self.cur == self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current_batch = self.data_iter.next()
        self.cur += 1
        return True


class PrefetchingIter(_Current):
    """Joins the batches of one or several iterators; each prepares its next batch in its own
    thread. Random draws of `mx.image` and `mx.io` there are that batch's own: its seed is drawn
    from Python's and NumPy's streams when the batch is asked for.

    rename_data, rename_label: for each iterator a dict from its names to new ones.
    An error in a thread is raised at the next batch.
    """

    def __init__(self, iters: Any, rename_data: Any = None, rename_label: Any = None):
        self.iters = list(iters) if isinstance(iters, (list, tuple)) else [iters]
        if not self.iters:
            raise InvalidValue("PrefetchingIter: needs at least one iterator")
        for i, inner in enumerate(self.iters):
            need_iterator(f"PrefetchingIter: iterator {i}", inner)
        self.n_iter = len(self.iters)
        self.rename_data, self.rename_label = rename_data, rename_label
        super().__init__(self.provide_data[0][1][0])
        self._pool = ThreadPoolExecutor(self.n_iter, "plait-prefetch")
        self._pending: list[Future] = []
        self._fetch()

    @property
    def provide_data(self) -> Any:
        """Descriptions of all data, renamed."""
        return _renamed(self.rename_data, [i.provide_data for i in self.iters])

    @property
    def provide_label(self) -> Any:
        """Descriptions of all labels, renamed."""
        return _renamed(self.rename_label, [i.provide_label for i in self.iters])

    def state_dict(self) -> Any:
        self._wait()  # for the threads' draws from the random streams
        return self._before if self._before is not None else super().state_dict()

    def load_state_dict(self, state: Any) -> None:
        self._wait()
        for i, (inner, found) in enumerate(zip(self.iters, state["iters"], strict=True)):
            restore(inner, found, f"PrefetchingIter: iterator {i}")
        now = random.get_state()
        random.set_state(state["streams"])
        self._fetch()
        self._wait()
        random.set_state(now)

    def _fetch(self):
        # positions of the iterators and the random streams before the threads started
        inner = [position_of(i) for i in self.iters]
        known = None not in inner
        self._before = {"iters": inner, "streams": random.get_state()} if known else None
        seeds = [streams.draw_seed() for _ in self.iters]
        self._pending = [self._pool.submit(_next_or_none, *x) for x in zip(self.iters, seeds)]

    def _wait(self):
        for future in self._pending:
            future.exception()

    def reset(self) -> None:
        self._wait()  # a failed batch is started again
        for i in self.iters:
            i.reset()
        self._fetch()

    def iter_next(self) -> bool:
        batches = [future.result() for future in self._pending]
        if all(b is None for b in batches):
            return False
        if any(b is None or b.pad != batches[0].pad for b in batches):
            raise InvalidValue(
                "PrefetchingIter: Number of entry mismatches between iterators: all must end with"
                " the same batch and the same pad"
            )
        self.current_batch = DataBatch(
            [x for b in batches for x in b.data],
            [x for b in batches for x in b.label or []],
            batches[0].pad,
            batches[0].index,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        self._fetch()
        return True

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self.current_batch


def _next_or_none(iterator, seed):
    try:
        with streams.own(seed):
            return iterator.next()
    except StopIteration:
        return None


def _renamed(renames, descriptions):
    if renames is None:
        return [x for found in descriptions for x in found]
    return [
        DataDesc(names.get(x.name, x.name), x.shape, x.dtype, x.layout)
        if isinstance(x, DataDesc)
        else DataDesc(*x)
        for names, found in zip(renames, descriptions)
        for x in found
    ]
