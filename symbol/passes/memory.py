"""The memory plan: where each intermediate result of a program lives in one arena.

Buffers live from the step that writes them to the last step that reads them; those alive together never overlap.
"""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

ALIGN_BYTES = 64


class Buffer(NamedTuple):
    """One intermediate: its size and the first and last step (inclusive) at which it must keep its contents."""
    nbytes: int
    first: int
    last: int


def plan_memory(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Byte offsets of the buffers and the arena's size. Best fit over free ranges, in the order of the steps."""
    offsets = [0] * len(buffers)
    expiring: dict[int, list[int]] = {}
    free: list[tuple[int, int]] = []         # (offset, nbytes), sorted, never adjacent
    top = 0
    by_first: dict[int, list[int]] = {}
    for i, b in enumerate(buffers):
        by_first.setdefault(b.first, []).append(i)
    for step in sorted({b.first for b in buffers} | {b.last + 1 for b in buffers}):
        for i in expiring.pop(step, ()):
            _release(free, offsets[i], _rounded(buffers[i].nbytes))
        for i in sorted(by_first.get(step, ()), key=lambda i: -buffers[i].nbytes):
            need = _rounded(buffers[i].nbytes)
            fits = [(size, k) for k, (_, size) in enumerate(free) if size >= need]
            if fits:
                _, k = min(fits)
                offset, size = free.pop(k)
                if size > need:
                    free.insert(k, (offset + need, size - need))
            elif free and sum(free[-1]) == top:      # grow the last free range
                offset, _ = free.pop()
                top = offset + need
            else:
                offset, top = top, top + need
            offsets[i] = offset
            expiring.setdefault(buffers[i].last + 1, []).append(i)
    return offsets, top


def _rounded(nbytes: int) -> int:
    return max(ALIGN_BYTES, -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES)


def _release(free: list[tuple[int, int]], offset: int, nbytes: int) -> None:
    k = bisect.bisect(free, (offset, 0))
    if k < len(free) and free[k][0] == offset + nbytes:
        nbytes += free.pop(k)[1]
    if k > 0 and sum(free[k - 1]) == offset:
        offset, before = free.pop(k - 1)
        nbytes += before
        k -= 1
    free.insert(k, (offset, nbytes))
