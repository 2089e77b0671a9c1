"""The types that all iterators use: DataDesc (name, shape, dtype, layout), DataBatch, DataIter."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar

import numpy as np

from ...engine.error import InvalidType, MissingMethod
from ...ndarray.saved_state import Saved, attributes_of, has_state, saved, set_attributes


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):  # noqa: PYI024 - two fields, two attributes
    """Name, shape, dtype and layout of one input of a batch; as a tuple it is (name, shape).

    layout: one letter for each axis; "N" is the batch's, e.g. "NCHW", "TNC".
    """

    dtype: Any
    layout: str | None

    def __new__(cls, name, shape, dtype=np.float32, layout="NCHW"):
        made = super().__new__(cls, name, shape)
        made.dtype, made.layout = dtype, layout
        return made

    def __getnewargs__(self):
        return self.name, self.shape, self.dtype, self.layout

    def __repr__(self):
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: Any) -> int:
        """The axis of the batch: 0 for None, -1 where the layout has no N (data that every device
        gets whole)."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Any, types: Any) -> list[DataDesc]:
        """Descriptions from pairs (name, shape) and, unless None, pairs (name, dtype)."""
        if types is None:
            return [DataDesc(*x[:2]) for x in shapes]
        dtypes = dict(types)
        return [DataDesc(x[0], x[1], dtypes[x[0]]) for x in shapes]


class DataBatch:
    """A batch.

    Args:
        data, label: lists of NDArrays, the batch along one axis.
        pad: the number of padding samples at the end.
        index: indices of the samples, a NumPy array.
        bucket_key: which graph of a BucketingModule takes it.
        provide_data, provide_label: DataDescs where they differ from the iterator's.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ):
        for kind, arrays in (("Data", data), ("Label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise _NoList(f"{kind} must be list of NDArrays, got {type(arrays).__name__}")
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key = bucket_key
        self.provide_data, self.provide_label = provide_data, provide_label

    def __str__(self):
        labels = [x.shape for x in self.label] if self.label else None
        return (
            f"{type(self).__name__}: data shapes: {[x.shape for x in self.data]} label shapes:"
            f" {labels}"
        )


class _NoList(InvalidType, AssertionError):
    """Not a list; MXNet raises AssertionError."""


def need_iterator(caller: str, value: Any) -> None:
    """Raises TypeError unless the value has a DataIter's methods. caller: for the error."""
    if not (hasattr(value, "provide_data") and hasattr(value, "reset")):
        raise InvalidType(
            f"{caller} must be a DataIter, got {type(value).__name__}\n"
            "  fix: mx.io.NDArrayIter(data, label, batch_size=32)"
        )


def position_of(iterator: Any) -> Saved | None:
    """Its position; None where it, or an iterator in it, cannot report one."""
    try:
        return saved(iterator) if has_state(iterator) else None
    except MissingMethod:
        return None


class DataIter:
    """Base of all iterators: a subclass defines iter_next and getdata, getlabel, getpad, getindex;
    or next.

    batch_size: samples in a batch. A subclass also has provide_data and provide_label, lists of
    DataDesc; and for checkpoints inside an epoch `position`, the names of the attributes that hold
    its position, or state_dict and load_state_dict of its own.
    """

    position: ClassVar[tuple[str, ...]] = ()

    def __init__(self, batch_size: int = 0):
        self.batch_size = batch_size

    def __iter__(self):
        return self

    def state_dict(self) -> dict:
        """The iterator's position, as plain data."""
        if not self.position:
            raise MissingMethod(
                f"{type(self).__name__} cannot report its position\n  fix: define state_dict() and"
                " load_state_dict(state)"
            )
        found = attributes_of(self)
        return {name: found[name] for name in self.position}

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict: the next batch is the one that would have followed."""
        set_attributes(self, state)

    def reset(self) -> None:
        """Begins an epoch."""

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last one."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(
            data=self.getdata(), label=self.getlabel(), pad=self.getpad(), index=self.getindex()
        )

    def __next__(self):
        return self.next()

    def iter_next(self) -> bool:
        """Advances to the next batch. Returns whether there is one; a subclass defines it."""
        return False

    def getdata(self) -> Any:
        """The data of this batch: list of NDArrays."""

    def getlabel(self) -> Any:
        """The labels of this batch: list of NDArrays."""

    def getindex(self) -> Any:
        """The indices of the samples in this batch: NumPy array, or None."""
        return None

    def getpad(self) -> int | None:
        """The number of padding samples at the end of this batch."""
        return None
