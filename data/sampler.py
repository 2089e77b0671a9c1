"""Samplers: the order in which a loader reads the items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from .. import dist
from ..engine.error import InvalidType, InvalidValue
from ..ndarray import functions
from ..ndarray.saved_state import Stateful

__all__ = [
    "Sampler",
    "SequentialSampler",
    "RandomSampler",
    "BatchSampler",
    "FilterSampler",
    "IntervalSampler",
    "SplitSampler",
]


def host_generator() -> np.random.Generator:
    """A NumPy generator keyed by the next draw of the package's random stream: `random.seed`
    governs it."""
    key = functions._random_randint(low=0, high=2**31 - 1, shape=(2,), dtype="int32").asnumpy()
    return np.random.Generator(np.random.Philox(key=[int(k) for k in key]))


class Sampler(Stateful):
    """Base of all samplers: subclasses define `__iter__` (numbers, or lists of numbers) and
    `__len__`.

    A checkpoint holds a sampler's state at the start of its pass and the number of items taken; a
    resumed pass skips that many items. So `__iter__` must draw its random numbers before its first
    item, or from a generator that is an attribute.
    """

    not_state: ClassVar[tuple[str, ...]] = (
        "_length",
        "_indices",
        "_start",
        "_interval",
        "_batch_size",
    )

    def __len__(self) -> int:
        raise InvalidType(f"{type(self).__name__} must define __len__")

    def __iter__(self) -> Iterator:
        raise InvalidType(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler):
    """start, start + 1, ..., start + length - 1."""

    def __init__(self, length: int, start: int = 0):
        self._length, self._start = length, start

    def __iter__(self):
        return iter(range(self._start, self._start + self._length))

    def __len__(self):
        return self._length


class RandomSampler(Sampler):
    """0 ... length - 1 in a new random order at each iteration, which `mx.random.seed` makes
    repeatable."""

    def __init__(self, length: int):
        self._length = length

    def __iter__(self):
        return iter(host_generator().permutation(self._length).tolist())

    def __len__(self):
        return self._length


class FilterSampler(Sampler):
    """The indices of the items for which fn(item) is true; fn is called on all items at
    construction."""

    def __init__(self, fn: Callable, dataset: Any):
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self):
        return iter(self._indices)

    def __len__(self):
        return len(self._indices)


class IntervalSampler(Sampler):
    """0, interval, 2 interval, ...; with rollover then 1, 1 + interval, ... until all of [0,
    length) are covered."""

    def __init__(self, length: int, interval: int, rollover: bool = True):
        if not 0 < interval <= length:
            raise InvalidValue(
                f"IntervalSampler: interval must be in [1, length] = [1, {length}], got {interval}"
            )
        self._length, self._interval, self._rollover = length, interval, rollover

    def __iter__(self):
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self):
        return self._length if self._rollover else -(-self._length // self._interval)


class SplitSampler(Sampler):
    """This rank's share of 0 ... length - 1: part part_index of num_parts, all of the same size, so
    that all ranks have as many batches.

    Where length is not divisible by num_parts, the last numbers of a pass are left out; with
    shuffle each pass leaves out others.

    Args:
        num_parts, part_index: default: the number of ranks, and this rank (`mx.dist`); with a
            mesh those along its axis "data".
        shuffle: a new order in each pass, made from (seed, number of the pass): it is the same on
            all ranks without messages, so shares never overlap.

    >>> sampler = gluon.data.SplitSampler(7, num_parts=2, part_index=1, shuffle=False)
    >>> list(sampler), len(sampler)
    ([3, 4, 5], 3)
    """

    not_state = (*Sampler.not_state, "_num_parts", "_part_index", "_shuffle", "_seed")

    def __init__(
        self,
        length: int,
        num_parts: int | None = None,
        part_index: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ):
        if num_parts is None or part_index is None:
            ranks = dist.data_group("SplitSampler")
            num_parts = ranks.size if num_parts is None else num_parts
            part_index = ranks.rank if part_index is None else part_index
        self._num_parts, self._part_index = num_parts, part_index
        if not 0 <= self._part_index < self._num_parts:
            raise InvalidValue(
                f"SplitSampler: part_index must be in [0, num_parts) = [0, {self._num_parts}), got"
                f" {self._part_index}"
            )
        if length < self._num_parts:
            raise InvalidValue(
                f"SplitSampler: {length} items cannot be split in {self._num_parts} parts"
            )
        self._length, self._shuffle, self._seed = length, shuffle, seed
        self._pass = 0

    def __iter__(self):
        order: Any = range(self._length)
        if self._shuffle:
            generator = np.random.Generator(np.random.Philox(key=[self._seed, self._pass]))
            order = generator.permutation(self._length).tolist()
        self._pass += 1
        n = len(self)
        return iter(order[self._part_index * n : (self._part_index + 1) * n])

    def __len__(self):
        return self._length // self._num_parts


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler.

    last_batch: what happens to an incomplete last batch: "keep" returns it, "discard" drops it,
        "rollover" starts the next iteration with it.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep"):
        if last_batch not in ("keep", "discard", "rollover"):
            raise InvalidValue(
                "BatchSampler: last_batch must be one of 'keep', 'discard', or 'rollover', "
                f"but got {last_batch}"
            )
        if batch_size < 1:
            raise InvalidValue(f"BatchSampler: batch_size must be positive, got {batch_size}")
        self._sampler, self._batch_size, self._last_batch = sampler, batch_size, last_batch
        self._rest: list = []

    def __iter__(self):
        batch, self._rest = self._rest, []
        for i in self._sampler:
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._rest = batch

    def __len__(self):
        n = len(self._sampler)
        if self._last_batch == "keep":
            return -(-n // self._batch_size)
        return (n + len(self._rest)) // self._batch_size
