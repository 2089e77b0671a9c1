"""CSVIter: batches from files of comma-separated numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.error import InvalidValue, MXNetError, compose
from ...kernels.spec import DType
from ...ndarray.ndarray import from_memory
from ...ndarray.saved_state import Stateful
from .source import MXDataIter, Sample, parsed, positive, refuse_positional, shape_of, warn_unknown

DTYPES = ("float32", "int32", "int64")


class CSVError(MXNetError, ValueError):
    """A CSV file that is missing, or whose rows do not match the shapes."""


def _table(path: str, shape: tuple[int, ...], dtype: str, argument: str) -> np.ndarray:
    """(rows, *shape) of a file, or of all files of a folder in sequence."""
    where = Path(path).expanduser()
    try:
        files = sorted(p for p in where.iterdir() if p.is_file()) if where.is_dir() else [where]
        texts = [file.read_bytes() for file in files]
    except OSError as error:
        raise CSVError(compose(f"{argument}: cannot read {path!r}: {error.strerror}")) from None
    tables = [_rows(text, file, shape, dtype, argument) for text, file in zip(texts, files)]
    if not sum(map(len, tables)):
        raise CSVError(compose(f"{argument}: there are no rows", str(where)))
    return np.concatenate(tables)


def _rows(text: bytes, file: Path, shape, dtype: str, argument: str) -> np.ndarray:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    width = int(np.prod(shape))
    if not lines:
        return np.empty((0, *shape), dtype)
    try:
        values = np.loadtxt(lines, dtype, delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise CSVError(compose(f"{argument}: {error}", str(file))) from None
    if values.shape[1] != width:
        raise CSVError(
            compose(
                "The data size in CSV do not match size of shape: specified"
                f" {argument.rpartition(' ')[2].replace('_csv', '_shape')}={shape}, the csv"
                f" row-length={values.shape[1]}",
                str(file),
            )
        )
    return values.reshape(-1, *shape)


class Rows(Stateful):
    """The source: batches of rows of two tables."""

    not_state = ("_tables", "_rows", "_batch_size", "_round", "_dtype")

    def __init__(self, data: Any, label: Any, batch_size: int, round_batch: bool):
        self._tables, self._batch_size, self._round = (data, label), batch_size, round_batch
        self._rows = np.arange(len(data))
        self._at, self._ended = 0, False
        self._last = np.zeros(batch_size, np.int64)  # the previous batch

    def rewind(self) -> None:
        # a batch filled from the beginning has consumed the first rows of the next epoch
        if not self._round or not self._ended:
            self._at = 0
        self._ended = False

    def read(self) -> Sample | None:
        total, size = len(self._rows), self._batch_size
        if self._ended or self._at >= total:
            return None
        rows = self._rows[self._at : self._at + size]
        pad = size - len(rows)
        if pad and self._round:
            if pad > total:
                raise InvalidValue(
                    f"CSVIter: number of input must be bigger than batch size, got {total} rows and"
                    f" batch_size={size}"
                )
            rows = np.concatenate([rows, self._rows[:pad]])
            self._at, self._ended = pad, True
        else:
            # the previous values, as in MXNet
            rows = np.concatenate([rows, self._last[len(rows) :]])
            self._at += size
        self._last = rows
        data, label = (self._batch(t, rows) for t in self._tables)
        return Sample(data, label, pad, rows.astype(np.uint64))

    def _batch(self, table, rows: np.ndarray):
        return from_memory(np.ascontiguousarray(table[rows]))


def CSVIter(  # noqa: N802 - MXNet's name
    *args: Any,
    data_csv: Any,
    data_shape: Sequence[int],
    batch_size: int,
    label_csv: Any = None,
    label_shape: Any = (1,),
    round_batch: bool = True,
    prefetch_buffer: int = 4,
    ctx: str = "gpu",
    dtype: DType | None = None,
    data_name: str = "data",
    label_name: str = "softmax_label",
    **unknown: Any,
) -> MXDataIter:
    """An iterator over the rows of CSV files; the values are held in memory.

    Args:
        data_csv, label_csv: a file, or a folder whose files are read in the order of their names.
            Without label_csv all labels are 0.
        data_shape, label_shape: the shape of a row's values; labels of shape (1,)
            come as (batch_size,).
        round_batch: True: the last batch is filled with the first rows (pad is their number), and
            the next epoch starts after them. False: it is filled with rows of the previous batch.
        dtype: "float32", "int32" or "int64".
        prefetch_buffer, ctx: accepted and ignored: the values are in memory.
    Raises: CSVError (MXNetError) for files that cannot be read or have rows of another length.
    """
    refuse_positional("CSVIter", args)
    warn_unknown("CSVIter", unknown)
    name = "float32" if dtype in (None, "None") else np.dtype(dtype).name
    if name not in DTYPES:
        raise InvalidValue(f"CSVIter: {name} is not supported for CSVIter, one of {DTYPES} is")
    size = positive(batch_size, "CSVIter: batch_size")
    shape = shape_of(label_shape, "CSVIter: label_shape")
    data = _table(data_csv, shape_of(data_shape, "CSVIter: data_shape"), name, "CSVIter: data_csv")
    if label_csv in (None, "NULL"):
        label = np.zeros((len(data), *shape), name)
    else:
        label = _table(label_csv, shape, name, "CSVIter: label_csv")
    if len(label) < len(data):
        raise CSVError(
            f"CSVIter: label_csv must have as many rows as data_csv, got {len(label)} and"
            f" {len(data)}"
        )
    label = label[:, 0] if shape == (1,) else label
    source = Rows(data, label, size, bool(parsed(round_batch)))
    return MXDataIter(source, data_name, label_name)
