"""NDArrayIter: batches from arrays in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue, MXNetError
from ...ndarray import NDArray, functions
from ...ndarray.saved_state import StateError
from .. import streams
from .desc import DataBatch, DataDesc, DataIter

LAST_BATCH = ("pad", "discard", "roll_over")


def _is_lazy(values) -> bool:
    """Is it an h5py.Dataset? Those stay in their file and are read batch by batch."""
    return type(values).__module__.startswith("h5py")


def _init_data(data, allow_empty, default_name) -> list[tuple]:
    """Pairs (name, array), sorted by name, from an array, a list or a dict of arrays."""
    if data is None:
        data = []
        if not allow_empty:
            raise InvalidValue("NDArrayIter: data must be given, got None")
    if isinstance(data, (np.ndarray, NDArray)) or _is_lazy(data):
        data = [data]
    if isinstance(data, (list, tuple)):
        if not data and not allow_empty:
            raise InvalidValue("NDArrayIter: data must have at least one array")
        names = (
            [default_name] if len(data) == 1 else [f"_{i}_{default_name}" for i in range(len(data))]
        )
        data = dict(zip(names, data))
    if not isinstance(data, dict):
        raise InvalidType(
            "Input must be NDArray, numpy.ndarray, h5py.Dataset a list of them or dict with them as"
            f" values, got {type(data).__name__}"
        )
    return sorted((name, _as_array(name, values)) for name, values in data.items())


def _as_array(name, values):
    if isinstance(values, NDArray) or _is_lazy(values):
        return values
    try:
        return functions.array(values)
    except (TypeError, ValueError, MXNetError):
        raise InvalidType(
            f"Invalid type '{type(values)}' for {name}, should be NDArray, numpy.ndarray or"
            " h5py.Dataset"
        ) from None


class NDArrayIter(DataIter):
    """Batches from NDArrays or NumPy arrays (which become float32).

    Args:
        data, label: an array, a list of arrays or a dict from names to arrays; the first axis (the
            "N" of the layout) counts samples. Matrices may be csr; their batches are then csr too.
        shuffle: a new order at every reset, from np.random.
        last_batch_handle: what happens to the samples of an incomplete last batch: "pad" fills it
            with samples from the beginning and sets DataBatch.pad, "discard" drops it, "roll_over"
            keeps them for the beginning of the next epoch.
        layout: of all arrays.

    >>> it = mx.io.NDArrayIter(np.zeros((10, 4)), np.arange(10), batch_size=4)
    >>> [batch.pad for batch in it]
    [0, 0, 2]
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
    ):
        if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise InvalidValue(
                f"NDArrayIter: batch_size must be an integer above 0, got {batch_size!r}"
            )
        super().__init__(batch_size)
        if last_batch_handle not in LAST_BATCH:
            raise InvalidValue(
                f"NDArrayIter: last_batch_handle must be one of {', '.join(LAST_BATCH)}, got"
                f" {last_batch_handle!r}"
            )
        self.layout, self._axis = layout, layout.find("N")
        if self._axis < 0:
            raise InvalidValue(f"NDArrayIter: layout must name the batch's axis N, got {layout!r}")
        self.data = _init_data(data, False, data_name)
        self.label = _init_data(label, True, label_name)
        self.shuffle, self.last_batch_handle = shuffle, last_batch_handle
        self.num_data = self.data[0][1].shape[self._axis]
        self.idx = np.arange(self.num_data)
        self._check_sizes()
        self.cursor = -batch_size
        self._kept: tuple[list, list] | None = None  # samples that roll over to the next epoch
        self._order = self.idx.copy()  # the order of the samples
        self.reset()

    def _check_sizes(self):
        for name, values in self.data + self.label:
            if values.shape[self._axis] < self.num_data:
                raise InvalidValue(
                    f"NDArrayIter: all arrays must have as many samples as {self.data[0][0]!r}"
                    f" ({self.num_data}), got {name!r} {values.shape}"
                )
        if not self.num_data:
            raise InvalidValue("NDArrayIter: there are no samples")

    @property
    def data_list(self) -> list:
        """All arrays, data and then labels."""
        return [values for _, values in self.data + self.label]

    @property
    def num_source(self) -> int:
        """The number of arrays."""
        return len(self.data) + len(self.label)

    def _describe(self, pairs):
        a = self._axis
        return [
            DataDesc(
                name,
                (*v.shape[:a], self.batch_size, *v.shape[a + 1 :]),
                v.dtype,
                layout=self.layout,
            )
            for name, v in pairs
        ]

    @property
    def provide_data(self) -> Any:
        """Descriptions of the data: list of DataDesc."""
        return self._describe(self.data)

    @property
    def provide_label(self) -> Any:
        """Descriptions of the labels: list of DataDesc."""
        return self._describe(self.label)

    # ---- position --------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        kept = {"cursor": self.cursor, "idx": self.idx.copy(), "order": self._order}
        return kept | {"rest": self._kept}

    def load_state_dict(self, state: Any) -> None:
        if len(state["idx"]) != self.num_data:
            raise StateError(
                f"NDArrayIter: the saved position is for {len(state['idx'])} samples, this"
                f" iterator has {self.num_data}"
            )
        if (state["order"] != self._order).any():
            self._take(np.argsort(self._order)[state["order"]])
        self.cursor, self.idx, self._kept = state["cursor"], state["idx"], state["rest"]

    def hard_reset(self) -> None:
        """Begins an epoch and drops the samples that rolled over."""
        if self.shuffle:
            self._shuffle()
        self.cursor, self._kept = -self.batch_size, None

    def reset(self) -> None:
        """Begins an epoch; with roll_over, remaining samples come first."""
        if self.shuffle:
            self._shuffle()
        left_over = self.num_data - self.batch_size < self.cursor < self.num_data
        if self.last_batch_handle == "roll_over" and left_over:
            self.cursor -= self.num_data + self.batch_size
        else:
            self.cursor = -self.batch_size

    def _shuffle(self):
        streams.numpy().shuffle(self.idx)
        self._take(self.idx)

    def _take(self, places):
        """Reorders the samples of all arrays."""
        self._order = self._order[places]
        for pairs in (self.data, self.label):
            pairs[:] = [
                # always float32, as in MXNet
                (name, self._permuted(v, places))
                for name, v in pairs
            ]

    def _permuted(self, array, places):
        if _is_lazy(array):
            return array
        if array.stype == "csr":
            return functions.take(array, functions.array(places, array.context, "int64"))
        return functions.array(np.take(array.asnumpy(), places, axis=self._axis), array.context)

    def iter_next(self) -> bool:
        self.cursor += self.batch_size
        return self.cursor < self.num_data

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        data, label = self.getdata(), self.getlabel()
        if data[0].shape[self._axis] != self.batch_size:
            self._kept = data, label
            raise StopIteration
        return DataBatch(data=data, label=label, pad=self.getpad(), index=None)

    # ---- the batch -------------------------------------------------------------------------------

    def getdata(self) -> Any:
        return self._batch(self.data, 0)

    def getlabel(self) -> Any:
        return self._batch(self.label, 1)

    def getpad(self) -> int:
        end = self.cursor + self.batch_size
        if self.last_batch_handle == "pad" and end > self.num_data:
            return end - self.num_data
        if self.last_batch_handle == "roll_over" and -self.batch_size < self.cursor < 0:
            return -int(self.cursor)
        return 0

    def _batch(self, pairs, which: int) -> list[NDArray]:
        begin, end, total = self.cursor, self.cursor + self.batch_size, self.num_data
        if begin >= total:
            raise InvalidValue("DataIter needs reset.\n  fix: it.reset() before the next epoch")
        if self.last_batch_handle == "roll_over" and -self.batch_size < begin < 0:
            assert self._kept is not None
            return self._joined([self._kept[which], self._part(pairs, 0, end)])
        if self.last_batch_handle == "pad" and end > total:
            rounds, rest = divmod(end - total, total)
            parts = [self._part(pairs, begin, total)]
            parts += [self._part(pairs, 0, total)] * rounds
            return self._joined(parts + ([self._part(pairs, 0, rest)] if rest else []))
        return self._part(pairs, begin, min(end, total))

    def _part(self, pairs, begin, end) -> list[NDArray]:
        return [
            self._read(v, begin, end)
            if _is_lazy(v)
            else v[begin:end]
            if v.stype == "csr"
            else functions.slice_axis(v, axis=self._axis, begin=begin, end=end)
            for _, v in pairs
        ]

    def _read(self, dataset, begin, end) -> NDArray:
        """Samples of an h5py data set, which needs increasing indices."""
        order = np.argsort(self.idx[begin:end])
        rows = dataset[self.idx[begin:end][order].tolist()]
        return functions.array(rows[np.argsort(order)])

    def _joined(self, parts) -> list[NDArray]:
        return [functions.concat(*arrays, dim=self._axis) for arrays in zip(*parts)]
