"""Random access to records of .rec files: the part, the order and the start of each."""

from __future__ import annotations

import os
import struct
import weakref
from os import PathLike
from pathlib import Path

import numpy as np

from ...engine import files
from ...engine.error import MXNetError
from ...ndarray.saved_state import StateError
from ..recordio import LAST, MAGIC, MAGIC_BYTES, MAX_PART_BYTES, WHOLE

_FRAME = struct.Struct("<II")


class RecordFile:
    """A .rec file whose records are read by position, from any number of threads. It is not mapped
    into memory: if another process truncated a mapped file, reading it would kill this process."""

    def __init__(self, path: str | PathLike[str]):
        self.path = os.fspath(path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._fd)
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise MissingRecords(
                f"record file: cannot open {self.path!r}: {error.strerror}"
            ) from None

    def _frame(self, at: int) -> tuple[int, int, int, int]:
        """(kind, first byte, bytes, next frame) of the frame at byte `at`. Raises MXNetError."""
        if at < 0:
            self._broken(at, "cannot be: places are counted from 0")
        if at >= self.size:
            self._broken(at, f"lies beyond the end of the file, which has {self.size} bytes")
        head = os.pread(self._fd, _FRAME.size, at)
        if len(head) < _FRAME.size:
            self._broken(at, "is cut off")
        magic, word = _FRAME.unpack(head)
        if magic != MAGIC:
            self._broken(at, f"has magic 0x{magic:08x}, expected 0x{MAGIC:08x}")
        kind, n_bytes, begin = word >> 29, word & MAX_PART_BYTES, at + _FRAME.size
        if begin + n_bytes > self.size:
            self._broken(at, f"is cut off: {n_bytes} bytes announced, {self.size - begin} left")
        return kind, begin, n_bytes, begin + n_bytes + (-n_bytes % 4)

    def read(self, at: int) -> bytes:
        """The record that starts at byte `at`. Raises MXNetError at a broken frame."""
        parts = []
        while True:
            kind, begin, n_bytes, after = self._frame(at)
            part = os.pread(self._fd, n_bytes, begin)
            if len(part) < n_bytes:  # truncated since it was opened
                self._broken(at, f"is cut off: {n_bytes} bytes announced, {len(part)} left")
            parts.append(part)
            if kind in (WHOLE, LAST):
                return MAGIC_BYTES.join(parts)
            at = after

    def starts(self, begin: int = 0, end: int | None = None) -> list[int]:
        """Where the records start, of those that start in [begin, end)."""
        found, at = [], 0
        end = self.size if end is None else end
        while at < min(self.size, end):
            if at >= begin:
                found.append(at)
            kind = None
            while kind not in (WHOLE, LAST):
                kind, _, _, at = self._frame(at)
        return found

    def _broken(self, at: int, problem: str):
        raise MXNetError(
            f"record file: the frame at byte {at} {problem}\n  at: {self.path}\n"
            "  fix: is it a .rec file, and copied as a whole?"
        )


class MissingRecords(MXNetError, FileNotFoundError):
    """A record file that cannot be opened."""


def read_index(path: str | PathLike[str]) -> list[int]:
    """The positions in an index file (.idx), in its order."""
    found = []
    with files.reading(path, "record index"), open(path) as lines:
        for n, line in enumerate(lines, 1):
            try:
                found.append(int(line.split("\t")[1]))
            except (IndexError, ValueError):
                raise MXNetError(
                    f"record index: line {n} must be key<TAB>position, got {line!r}\n  at: {path}"
                ) from None
    return found


class Records:
    """The records of a file (or of all .rec files of a folder) that belong to one part.

    Args:
        path_idx: index file, "" to scan the file once instead.
        num_parts, part_index: with an index parts have equal numbers of records, else equal bytes.
    """

    def __init__(
        self, path: str | PathLike[str], path_idx: str = "", num_parts: int = 1, part_index: int = 0
    ):
        where = Path(path)
        paths = sorted(where.glob("*.rec")) if where.is_dir() else [where]
        self._files = [RecordFile(p) for p in paths]
        if path_idx:
            places = [(0, start) for start in sorted(read_index(path_idx))]
            per_part = -(-len(places) // num_parts)
            self._places = places[part_index * per_part : (part_index + 1) * per_part]
        else:
            self._places = self._by_bytes(num_parts, part_index)
        if not self._places:
            raise MXNetError(f"record file: no records in {path} (part {part_index})")

    def _by_bytes(self, num_parts, part_index):
        total = sum(file.size for file in self._files)
        per_part = -(-total // num_parts)
        begin, end = per_part * part_index, per_part * (part_index + 1)
        found, before = [], 0
        for number, file in enumerate(self._files):
            found += [(number, at) for at in file.starts(begin - before, end - before)]
            before += file.size
        return found

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> bytes:
        file, at = self._places[number]
        return self._files[file].read(at)

    def name(self, number: int) -> str:
        """A record's position, for messages."""
        file, at = self._places[number]
        return f"{self._files[file].path}, byte {at}"


class Order:
    """The order of the records: the record numbers of the next batch, across epochs.

    With round_batch an incomplete last batch is filled from the next epoch, which then starts after
    those; else it stays short.
    """

    def __init__(self, n: int, batch_size: int, round_batch: bool, shuffle: bool, seed: int):
        self._n, self._size, self._round = n, batch_size, round_batch
        self._rng = np.random.default_rng(seed) if shuffle else None
        self._wrapped = False
        self._begin()

    def _begin(self):
        self._order = np.arange(self._n) if self._rng is None else self._rng.permutation(self._n)
        self._at = 0

    def state_dict(self) -> dict:
        """The position, as plain data."""
        draws = None if self._rng is None else self._rng.bit_generator.state
        return {"order": self._order, "at": self._at, "wrapped": self._wrapped, "draws": draws}

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict. Raises StateError for different records."""
        if len(state["order"]) != self._n or (self._rng is None) != (state["draws"] is None):
            raise StateError(
                f"the saved position is for {len(state['order'])} records,"
                f" {'in order' if state['draws'] is None else 'shuffled'}; this file has {self._n},"
                f" {'in order' if self._rng is None else 'shuffled'}"
            )
        self._order, self._at, self._wrapped = state["order"], state["at"], state["wrapped"]
        if self._rng is not None:
            self._rng.bit_generator.state = state["draws"]

    def rewind(self, whole: bool = False) -> None:
        """Begins an epoch, unless the last batch already did. whole: always."""
        if whole or not self._wrapped:
            self._begin()
        self._wrapped = False

    def next(self) -> tuple[np.ndarray, int] | None:
        """(record numbers, how many of them are padding), or None at the end."""
        if self._wrapped or self._at >= self._n:
            return None
        found = self._order[self._at : self._at + self._size]
        self._at += len(found)
        pad = self._size - len(found)
        if pad and self._round:
            while len(found) < self._size:
                self._begin()
                more = self._order[: self._size - len(found)]
                self._at = len(more)
                found = np.concatenate([found, more])
            self._wrapped = True
        return found, pad
