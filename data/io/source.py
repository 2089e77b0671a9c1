"""MXDataIter: the iterator over a source of batches; all iterators over files are of this class."""

from __future__ import annotations

import ast
import logging
import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...ndarray import NDArray
from .desc import DataBatch, DataDesc, DataIter


class Sample(NamedTuple):
    """One batch of a source. index: (batch_size,) uint64 indices of the samples, or None."""

    data: NDArray
    label: NDArray
    pad: int
    index: np.ndarray | None  # type: ignore[assignment]  # hides tuple.index: MXNet's name


class Source(Protocol):
    """A source of batches for MXDataIter."""

    def read(self) -> Sample | None:
        """The next batch, or None after the last."""

    def rewind(self) -> None:
        """Starts an epoch: the next batch is its first."""

    def state_dict(self) -> dict:
        """The position, as plain data."""

    def load_state_dict(self, state: dict) -> None:
        """Continues: the next batch is the one that would have followed."""


class MXDataIter(DataIter):
    """An iterator over a source: what CSVIter, MNISTIter, ImageRecordIter ... return.

    Args:
        handle: the Source.
        data_name, label_name: names in provide_data and provide_label.
    Raises: StopIteration if the source has no batch.
    """

    def __init__(
        self, handle: Source, data_name: str = "data", label_name: str = "softmax_label", **_: Any
    ):
        self.handle = handle
        self._skip_load = False
        self._begin = handle.state_dict()  # before the batch that is prefetched
        first = handle.read()
        if first is None:
            raise StopIteration
        self._sample, self._ready = first, True  # prefetched, not yet returned
        data, label = first.data, first.label
        self.provide_data = [DataDesc(data_name, data.shape, data.dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, label.dtype)]
        super().__init__(data.shape[0])

    def debug_skip_load(self) -> None:
        """Repeats the current batch from now on, to measure everything but reading."""
        self._skip_load = True
        logging.info("Set debug_skip_load to be true, will simply return first batch")

    def state_dict(self) -> Any:
        return self._begin if self._ready else self.handle.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self._ready = False
        self.handle.load_state_dict(state)

    def reset(self) -> None:
        self._ready = False
        self.handle.rewind()

    def iter_next(self) -> bool:
        if self._ready or self._skip_load:
            self._ready = False
            return True
        found = self.handle.read()
        if found is None:
            return False
        self._sample = found
        return True

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        data, label, pad, index = self._sample
        return DataBatch(data=[data], label=[label], pad=pad, index=index)

    def getdata(self) -> NDArray:
        """The data of this batch."""
        return self._sample.data

    def getlabel(self) -> NDArray:
        """The labels of this batch."""
        return self._sample.label

    def getindex(self) -> Any:
        return self._sample.index

    def getpad(self) -> int:
        return self._sample.pad


def parsed(value: Any) -> Any:
    """A parameter's value: text such as "(3,)" or "True" is accepted too, as in MXNet."""
    if isinstance(value, str):
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return value


def shape_of(value: Any, argument: str) -> tuple[int, ...]:
    """A parameter that is a shape."""
    value = parsed(value)
    value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not value or not all(isinstance(n, (int, np.integer)) and n > 0 for n in value):
        raise InvalidValue(f"{argument} must be a shape of numbers above 0, got {value}")
    return tuple(int(n) for n in value)


def positive(value: Any, argument: str) -> int:
    """A parameter that is a number above 0."""
    value = parsed(value)
    if not isinstance(value, (int, np.integer)) or value <= 0:
        raise InvalidValue(f"{argument} must be an integer above 0, got {value!r}")
    return int(value)


def refuse_positional(iterator: str, args: Any) -> None:
    """Raises InvalidType (TypeError): iterators over files take keywords alone."""
    if args:
        raise InvalidType(f"{iterator} can only accept keyword arguments, got {args!r}")


def warn_unknown(iterator: str, names: Any) -> None:
    """Warns about parameters that an iterator does not know; MXNet ignores them silently."""
    if names:
        warnings.warn(f"{iterator}: ignores {', '.join(sorted(names))}", stacklevel=3)
