"""DummyIter: repeats one batch forever, to time consumers of batches."""

from __future__ import annotations

from typing import Any

from ...data.io import DataIter


class DummyIter(DataIter):
    """Repeats the first batch of another iterator."""

    def __init__(self, real_iter: Any):
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.the_batch = next(real_iter)

    def __iter__(self):
        return self

    def next(self) -> Any:
        """The batch."""
        return self.the_batch
