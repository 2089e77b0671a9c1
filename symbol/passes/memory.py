"""The memory plan: where each intermediate result of a program lives in one arena.

Buffers live from the step that writes them to the last step that reads them; those alive together
never overlap.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

ALIGN_BYTES = 64


class Buffer(NamedTuple):
    """One intermediate: its size and the first and last step (inclusive) at which it must keep its
    contents."""

    nbytes: int
    first: int
    last: int


def plan_memory(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Byte offsets of the buffers and the arena's size. Best fit over free ranges, in the order of
    the steps."""
    offsets = [0] * len(buffers)
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for i, b in enumerate(buffers):
        starting.setdefault(b.first, []).append(i)
        ending.setdefault(b.last + 1, []).append(i)
    free = _Free()
    for step in sorted(starting.keys() | ending.keys()):
        for i in ending.get(step, ()):
            free.give(offsets[i], rounded(buffers[i].nbytes))
        for i in sorted(starting.get(step, ()), key=lambda i: -buffers[i].nbytes):
            offsets[i] = free.take(rounded(buffers[i].nbytes))
    return offsets, free.top


def rounded(nbytes: int) -> int:
    """The bytes that a buffer takes in an arena."""
    return max(ALIGN_BYTES, -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES)


class _Free:
    """The free ranges of an arena that grows at its top; ranges never touch each other."""

    def __init__(self):
        self.top = 0
        self._by_size: list[tuple[int, int]] = []  # (bytes, offset), sorted
        self._size_at: dict[int, int] = {}  # offset -> bytes
        self._start_of: dict[int, int] = {}  # end -> offset

    def take(self, nbytes: int) -> int:
        """The offset of a range: of the smallest free one that is large enough, else at the top."""
        k = bisect.bisect_left(self._by_size, (nbytes, 0))
        if k < len(self._by_size):
            size, offset = self._by_size[k]
            self._remove(offset, size)
            if size > nbytes:
                self._add(offset + nbytes, size - nbytes)
            return offset
        offset = self._start_of.get(self.top, self.top)
        if offset < self.top:
            self._remove(offset, self.top - offset)
        self.top = offset + nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Frees a range and joins it with its neighbours."""
        after = self._size_at.get(offset + nbytes)
        if after is not None:
            self._remove(offset + nbytes, after)
            nbytes += after
        before = self._start_of.get(offset)
        if before is not None:
            self._remove(before, offset - before)
            nbytes, offset = nbytes + offset - before, before
        self._add(offset, nbytes)

    def _add(self, offset: int, nbytes: int) -> None:
        bisect.insort(self._by_size, (nbytes, offset))
        self._size_at[offset], self._start_of[offset + nbytes] = nbytes, offset

    def _remove(self, offset: int, nbytes: int) -> None:
        del self._by_size[bisect.bisect_left(self._by_size, (nbytes, offset))]
        del self._size_at[offset], self._start_of[offset + nbytes]
