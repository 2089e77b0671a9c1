"""Datasets: sequences of items, accessed by index."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from typing import Any

from ...data import recordio
from ...engine.error import InvalidType, InvalidValue
from ...ndarray.ndarray import NDArray

__all__ = ["Dataset", "SimpleDataset", "ArrayDataset", "RecordFileDataset"]


class Dataset:
    """Base of all datasets: subclasses define `__getitem__(number)` and `__len__()`."""

    def __getitem__(self, idx):
        raise InvalidType(f"{type(self).__name__} must define __getitem__")

    def __len__(self):
        raise InvalidType(f"{type(self).__name__} must define __len__")

    def filter(self, fn: Callable) -> Dataset:
        """The items for which fn(item) is true; fn is called on every item immediately."""
        return _Subset(self, [i for i in range(len(self)) if fn(self[i])])

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part `index` of `num_shards` consecutive parts whose lengths differ by at most one (the
        first are longer)."""
        if not 0 <= index < num_shards:
            raise InvalidValue(
                f"shard: index must be in [0, num_shards) = [0, {num_shards}), got {index}"
            )
        length, extra = divmod(len(self), num_shards)
        start = length * index + min(index, extra)
        return _Subset(self, range(start, start + length + (index < extra)))

    def take(self, count: int | None) -> Dataset:
        """The first `count` items; all of them if there are fewer or count is None."""
        n = len(self) if count is None else min(count, len(self))
        return _Subset(self, range(n))

    def sample(self, sampler: Any) -> Dataset:
        """The items in the order of a Sampler (or any iterable of indices)."""
        from ...data.sampler import Sampler

        if not isinstance(sampler, Sampler):
            raise InvalidType(f"sample: sampler must be a Sampler, got {type(sampler).__name__}")
        return _Subset(self, list(sampler))

    def transform(self, fn: Callable, lazy: bool = True) -> Dataset:
        """Items fn(*item), or fn(item) if an item is not a tuple; computed at each access if lazy,
        else immediately."""
        lazily = _Transformed(self, fn)
        return lazily if lazy else SimpleDataset([lazily[i] for i in range(len(lazily))])

    def transform_first(self, fn: Callable, lazy: bool = True) -> Dataset:
        """Items (fn(first), *rest)."""
        return self.transform(_First(fn), lazy)


class SimpleDataset(Dataset):
    """A list, or any sequence, as a dataset."""

    def __init__(self, data: Any):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, idx):
        return self._data[idx]


class ArrayDataset(Dataset):
    """Zips arrays or lists of one length: item i is (a[i], b[i], ...), or a[i] for a single one.

    Raises: ValueError if the lengths differ.
    """

    def __init__(self, *args: Any):
        if not args:
            raise InvalidValue("ArrayDataset: needs at least one array")
        lengths = [len(a) for a in args]
        if len(set(lengths)) > 1:
            raise InvalidValue(
                "ArrayDataset: all arrays must have the same length, got"
                f" {', '.join(map(str, lengths))}"
            )
        self._length = lengths[0]
        # One-dimensional arrays give NumPy scalars, as wanted for labels.
        self._data = [a.asnumpy() if isinstance(a, NDArray) and a.ndim == 1 else a for a in args]

    def __len__(self):
        return self._length

    def __getitem__(self, idx):
        if len(self._data) == 1:
            return self._data[0][idx]
        return tuple(data[idx] for data in self._data)


class RecordFileDataset(Dataset):
    """The byte records of a .rec file; with its .idx file in the same folder."""

    def __init__(self, filename: str | PathLike[str]):
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __len__(self):
        return len(self._record.keys)

    def __getitem__(self, idx):
        return self._record.read_idx(self._record.keys[idx])


class _Subset(Dataset):
    """Some items of another dataset, by index."""

    def __init__(self, data: Any, indices: Any):
        self._data, self._indices = data, indices

    def __len__(self):
        return len(self._indices)

    def __getitem__(self, idx):
        return self._data[self._indices[idx]]


class _Transformed(Dataset):
    """Items of another dataset through a function."""

    def __init__(self, data: Any, fn: Callable[..., Any]):
        self._data, self._fn = data, fn

    def __len__(self):
        return len(self._data)

    def __getitem__(self, idx):
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class _First:
    """fn applied to the first value of an item; a class, so that it can be pickled."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    def __call__(self, x: Any, *rest: Any) -> Any:
        return (self._fn(x), *rest) if rest else self._fn(x)
