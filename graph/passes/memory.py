"""The memory plan: where each intermediate result of a program lives in one arena.

Buffers live from the step that writes them to the last step that reads them; those alive together
never overlap.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from typing import NamedTuple

ALIGN_BYTES = 64
GOOD_ENOUGH = 1.02  # times the peak: no search for a better plan
MAX_PAIRS_EACH = 64  # of buffers alive together


class Buffer(NamedTuple):
    """One intermediate: its size and the first and last step (inclusive) at which it must keep its
    contents."""

    nbytes: int
    first: int
    last: int


class Placement(NamedTuple):
    """The byte offset of each buffer, and how large the arena is."""

    offsets: list[int]
    arena_bytes: int


def plan_memory(buffers: Sequence[Buffer]) -> Placement:
    """Places buffers in one arena.

    Best fit in the order of the steps is near-linear, and leaves no gaps in most graphs. Where it
    does, placing the largest first, each in the smallest gap between those alive with it, is within
    a few per cent of what is alive at once (Pisarchyk & Lee 2020, arXiv:2001.03288); it looks at
    every pair alive together, and is left out where there are too many of them.
    """
    sizes = [rounded(b.nbytes) for b in buffers]
    peak = peak_bytes(buffers, sizes)
    best = _by_step(buffers, sizes)
    if best.arena_bytes <= GOOD_ENOUGH * peak:
        return best
    together = _alive_together(buffers, MAX_PAIRS_EACH * len(buffers))
    if together is None:
        return best
    for key in (
        lambda i: (-sizes[i], buffers[i].first),
        lambda i: (-sizes[i] * (buffers[i].last - buffers[i].first + 1), buffers[i].first),
    ):
        found = _in_gaps(sorted(range(len(buffers)), key=key), sizes, together)
        best = min(best, found, key=lambda p: p.arena_bytes)
        if best.arena_bytes <= GOOD_ENOUGH * peak:
            break
    return best


def peak_bytes(buffers: Sequence[Buffer], sizes: Sequence[int]) -> int:
    """The largest sum of bytes alive at one step: no arena can be smaller."""
    change: dict[int, int] = {}
    for b, nbytes in zip(buffers, sizes):
        change[b.first] = change.get(b.first, 0) + nbytes
        change[b.last + 1] = change.get(b.last + 1, 0) - nbytes
    alive = peak = 0
    for step in sorted(change):
        alive += change[step]
        peak = max(peak, alive)
    return peak


def _by_step(buffers: Sequence[Buffer], sizes: Sequence[int]) -> Placement:
    """Best fit over free ranges, in the order of the steps."""
    offsets = [0] * len(buffers)
    ending: list[tuple[int, int]] = []  # (last step, buffer) of those placed and alive
    free = _Free()
    for i in sorted(range(len(buffers)), key=lambda i: (buffers[i].first, -sizes[i])):
        while ending and ending[0][0] < buffers[i].first:
            _, gone = heapq.heappop(ending)
            free.give(offsets[gone], sizes[gone])
        offsets[i] = free.take(sizes[i])
        heapq.heappush(ending, (buffers[i].last, i))
    return Placement(offsets, free.top)


def _alive_together(buffers: Sequence[Buffer], max_pairs: int) -> list[list[int]] | None:
    """For each buffer those that are alive at one of its steps; None where the pairs are too
    many."""
    together: list[list[int]] = [[] for _ in buffers]
    alive: set[int] = set()
    ending: list[tuple[int, int]] = []
    n_pairs = 0
    for i in sorted(range(len(buffers)), key=lambda i: buffers[i].first):
        while ending and ending[0][0] < buffers[i].first:
            alive.discard(heapq.heappop(ending)[1])
        n_pairs += len(alive)
        if n_pairs > max_pairs:
            return None
        together[i] += alive
        for other in alive:
            together[other].append(i)
        alive.add(i)
        heapq.heappush(ending, (buffers[i].last, i))
    return together


def _in_gaps(order: Sequence[int], sizes: Sequence[int], together: list[list[int]]) -> Placement:
    """Places buffers in an order, each in the smallest gap that holds it, else behind all that are
    alive with it."""
    offsets = [-1] * len(sizes)
    top = 0
    for i in order:
        nbytes, at, best, gap = sizes[i], 0, -1, 1 << 62
        for start, other in sorted([(offsets[j], j) for j in together[i] if offsets[j] >= 0]):
            if nbytes <= start - at < gap:
                best, gap = at, start - at
            at = max(at, start + sizes[other])
        offsets[i] = at if best < 0 else best
        top = max(top, offsets[i] + nbytes)
    return Placement(offsets, top)


def rounded(nbytes: int) -> int:
    """The bytes that a buffer takes in an arena."""
    return max(ALIGN_BYTES, -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES)


class _Free:
    """The free ranges of an arena that grows at its top; ranges never touch each other."""

    def __init__(self) -> None:
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
