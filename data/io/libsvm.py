"""LibSVMIter: csr batches from files of lines `label column:value ...`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...engine import cpu
from ...engine.error import InvalidValue, MXNetError, compose
from ...kernels.record import dtype_name
from ...kernels.spec import DType
from ...ndarray.ndarray import from_memory
from ...ndarray.sparse.sparse_array import csr
from ...ndarray.sparse.structure import pointers
from .csv import Rows
from .source import MXDataIter, parsed, positive, shape_of, warn_unknown


class LibSVMError(MXNetError, ValueError):
    """A LibSVM file that is missing, or whose lines are invalid."""


class Table(NamedTuple):
    """The lines of a file: labels (rows,), and a csr matrix."""

    labels: np.ndarray
    values: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    n_columns: int


def _lines(path: str, part: int, n_parts: int, argument: str) -> list[bytes]:
    """The lines of a file, or of all files of a folder; or the whole lines of one part of the
    bytes."""
    where = Path(path).expanduser()
    try:
        files = sorted(p for p in where.iterdir() if p.is_file()) if where.is_dir() else [where]
        text = b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise LibSVMError(compose(f"{argument}: cannot read {path!r}: {error.strerror}")) from None
    step = -(-len(text) // n_parts)
    begin, end = (_next_line(text, min(k * step, len(text))) for k in (part, part + 1))
    lines = (line.split(b"#", 1)[0].strip() for line in text[begin:end].splitlines())
    return [line for line in lines if line]


def _next_line(text: bytes, at: int) -> int:
    """Where the first line after a position begins."""
    if at in (0, len(text)):
        return at
    found = text.find(b"\n", at)
    return len(text) if found < 0 else found + 1


def read_table(path: str, n_columns: int, part: int, n_parts: int, argument: str) -> Table:
    """The lines of a LibSVM file as arrays. Raises LibSVMError."""
    lines = _lines(path, part, n_parts, argument)
    if not lines:
        raise LibSVMError(compose(f"{argument}: there are no lines", str(path)))
    counts = np.array([line.count(b":") for line in lines])
    try:
        numbers = np.array(b" ".join(lines).replace(b":", b" ").split(), np.float64)
    except ValueError as error:
        raise LibSVMError(compose(f"{argument}: {error}", str(path))) from None
    heads = np.concatenate(([0], np.cumsum(2 * counts + 1)))
    if len(numbers) != heads[-1]:
        raise LibSVMError(
            compose(f"{argument}: every line must be `label column:value ...`", str(path))
        )
    pairs = np.delete(numbers, heads[:-1]).reshape(-1, 2)
    columns = pairs[:, 0].astype(np.int64)
    if columns.size and not 0 <= columns.min() <= columns.max() < n_columns:
        raise LibSVMError(
            compose(
                f"{argument}: columns must be in [0, {n_columns}), got {columns.min()} to"
                f" {columns.max()}",
                str(path),
                "columns count from 0; see data_shape",
            )
        )
    starts = np.concatenate(([0], np.cumsum(counts)))
    return Table(numbers[heads[:-1]], pairs[:, 1], columns, starts, n_columns)


class _Lines(Rows):
    """The source: rows of tables, csr if the table is csr."""

    def __init__(self, data: Table, label: Any, batch_size: int, dtype: str):
        super().__init__(data, label, batch_size, True)
        self._rows, self._dtype = np.arange(len(data.labels)), dtype

    def _batch(self, table, rows: np.ndarray):
        if not isinstance(table, Table):
            return from_memory(np.ascontiguousarray(table[rows]), cpu(), self._dtype)
        counts = np.diff(table.starts)[rows]
        to = np.repeat(np.arange(len(rows)), counts)
        offsets = np.arange(len(to)) - np.repeat(np.cumsum(counts) - counts, counts)
        keep = np.repeat(table.starts[rows], counts) + offsets
        places = pointers(to, len(rows)), table.columns[keep]
        values = from_memory(table.values[keep], cpu(), self._dtype)
        return csr(
            (len(rows), table.n_columns),
            values,
            *(from_memory(p.astype(np.int64), cpu()) for p in places),
        )


def LibSVMIter(  # noqa: N802 - MXNet's name
    *,
    data_libsvm: Any,
    data_shape: Sequence[int],
    batch_size: int,
    label_libsvm: Any = None,
    label_shape: Any = (1,),
    num_parts: int = 1,
    part_index: int = 0,
    round_batch: bool = True,
    prefetch_buffer: int = 4,
    ctx: str = "gpu",
    dtype: DType | None = None,
    data_name: str = "data",
    label_name: str = "softmax_label",
    **unknown: Any,
) -> MXDataIter:
    """An iterator over the lines of LibSVM files, `label column:value ...` with columns that count
    from 0 and ascend; batches are csr.

    Args:
        data_libsvm: a file, or a folder whose files are read in the order of their names.
        data_shape: (columns,).
        label_libsvm: a second file whose matrix, label_shape (columns,), is the label, csr too.
            Without it the label is the number at the beginning of each line: (batch_size,).
        num_parts, part_index: only that part of the file, cut between lines.
        round_batch: only True: the last batch is filled with the first lines (pad is their number),
            and the next epoch starts after them.
        dtype: of data and labels; default float32.
        prefetch_buffer, ctx: accepted and ignored: the values are in memory.
    Raises: LibSVMError (MXNetError) for files that cannot be read, or columns outside data_shape.
    """
    warn_unknown("LibSVMIter", unknown)
    if not parsed(round_batch):
        raise InvalidValue("LibSVMIter: sparse batch loader doesn't support round_batch == false")
    name = dtype_name("float32" if dtype in (None, "None") else dtype)
    size = positive(batch_size, "LibSVMIter: batch_size")
    n_parts, part = positive(num_parts, "LibSVMIter: num_parts"), int(parsed(part_index))
    if not 0 <= part < n_parts:
        raise InvalidValue(f"LibSVMIter: part_index must be in [0, {n_parts}), got {part}")
    shapes = {}
    for argument, shape in (("data_shape", data_shape), ("label_shape", label_shape)):
        shapes[argument] = shape_of(shape, f"LibSVMIter: {argument}")
        if len(shapes[argument]) != 1:
            raise InvalidValue(f"LibSVMIter: {argument} must have one axis, got {shapes[argument]}")
    data = read_table(
        data_libsvm, shapes["data_shape"][0], part, n_parts, "LibSVMIter: data_libsvm"
    )
    label: np.ndarray | Table = data.labels
    if label_libsvm not in (None, "NULL"):
        label = read_table(
            label_libsvm, shapes["label_shape"][0], part, n_parts, "LibSVMIter: label_libsvm"
        )
        if len(label.labels) != len(data.labels):
            raise LibSVMError(
                f"LibSVMIter: label_libsvm must have as many lines as data_libsvm, got"
                f" {len(label.labels)} and {len(data.labels)}"
            )
    elif shapes["label_shape"] != (1,):
        raise InvalidValue(
            f"LibSVMIter: label_shape must be (1,) without label_libsvm, got"
            f" {shapes['label_shape']}"
        )
    return MXDataIter(_Lines(data, label, size, name), data_name, label_name)
