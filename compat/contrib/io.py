"""mx.contrib.io: a gluon DataLoader as a data iterator of Modules."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...data.io import DataDesc, DataIter
from ...ndarray import NDArray
from ...ndarray.saved_state import restore, saved

__all__ = ["DataDesc", "DataIter", "DataLoaderIter"]


class DataLoaderIter(DataIter):
    """Iterates over a loader of (data, label) batches; an incomplete last batch is padded.

    data_name, label_name, dtype: those in provide_data and provide_label.
    """

    def __init__(
        self,
        loader: Any,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
    ):
        data, label = next(iter(loader))
        super().__init__(data.shape[0])
        self._loader, self.dtype = loader, dtype
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        return {"loader": saved(self._loader)}

    def load_state_dict(self, state: Any) -> None:
        restore(self._loader, state["loader"], "DataLoaderIter: loader")
        self.reset()

    def reset(self) -> None:
        """Starts an epoch."""
        self._batches = iter(self._loader)
        self._current: list[NDArray] = []

    def iter_next(self) -> bool:
        """Advances to the next batch. Returns whether there is one."""
        self._current = next(self._batches, [])
        return len(self._current) > 0

    def _part(self, i):
        part = self._current[i].astype(self.dtype)
        if not self.getpad():
            return [part]
        padding = nd.zeros((self.getpad(), *part.shape[1:]), dtype=self.dtype)
        return [nd.concat(part, padding, dim=0)]

    def getdata(self) -> Any:
        """The data of the batch, in a list."""
        return self._part(0)

    def getlabel(self) -> Any:
        """The label of the batch, in a list."""
        return self._part(1)

    def getpad(self) -> Any:
        """The number of padding rows at the end of the batch."""
        return self.batch_size - self._current[0].shape[0]

    def getindex(self) -> None:
        """None: loaders do not report the indices of items."""
        return None
