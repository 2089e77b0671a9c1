"""The critical path of recorded operations: what a step's time consists of, one piece after the
other.

An operation starts when it was pushed, when the last operation that it depends on has ended, and
when its lane is free: three edges, of which the latest one ends at its start. So the longest path
is followed backward from what ended last, by the latest edge each time. On the pushing thread it
goes on with what that thread did before: it waited for an operation, ran one itself, or ran Python.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from .profile_events import Span


class Piece(NamedTuple):
    """A part of the path, on one thread. span: the operation; None: the thread ran Python code, or
    was waking up."""

    thread: str
    start: int
    end: int
    span: Span | None


class _Ended:
    """The operations and waits of each thread, by their ends."""

    def __init__(self, spans: Sequence[Span]):
        self._of: dict[str, tuple[list[int], list[Span]]] = {}
        for s in sorted(spans, key=lambda s: s.end):
            ends, found = self._of.setdefault(s.thread, ([], []))
            ends.append(s.end)
            found.append(s)

    def last(self, thread: str, at: int, but: Span | None = None) -> Span | None:
        """What ended last on a thread, not later than `at`."""
        ends, found = self._of.get(thread, ([], []))
        i = bisect_right(ends, at) - 1
        while i >= 0 and found[i] is but:
            i -= 1
        return found[i] if i >= 0 else None


def critical_path(spans: Sequence[Span]) -> list[Piece]:
    """The pieces of the path in the order of time; [] of nothing recorded."""
    ops = [s for s in spans if s.category == "operator"]
    by_seq = {s.seq: s for s in ops}
    ended = _Ended([s for s in spans if s.category in ("operator", "wait")])
    pieces: list[Piece] = []
    span = max(ops, key=lambda s: s.end, default=None)
    at = span.end if span is not None else 0
    while span is not None:
        if span.category == "wait":
            span, at = _before_wait(span, at, by_seq, ops, pieces)
            continue
        pieces.append(Piece(span.thread, min(span.start, at), at, span))
        at = min(span.start, at)
        span, at = _before(span, at, by_seq, ended, pieces)
    return _with_instructions([p for p in reversed(pieces) if p.end > p.start], spans)


def _with_instructions(pieces: Sequence[Piece], spans: Sequence[Span]) -> list[Piece]:
    """Programs on the path as the instructions that their thread ran."""
    of_program: dict[tuple[int, str], list[Span]] = {}
    for s in spans:
        if s.category == "instruction":
            of_program.setdefault((s.seq, s.thread), []).append(s)
    found: list[Piece] = []
    for p in pieces:
        at = p.start
        for s in of_program.get((p.span.seq, p.thread), ()) if p.span is not None else ():
            start, end = max(s.start, at), min(s.end, p.end)
            if start >= end:
                continue
            if start > at:
                found.append(p._replace(start=at, end=start))
            found.append(Piece(p.thread, start, end, s))
            at = end
        if at < p.end:
            found.append(p._replace(start=at))
    return found


def _before(span: Span, at: int, by_seq, ended: _Ended, pieces: list[Piece]):
    """(what let an operation start, the time up to which that is on the path)."""
    cause = by_seq.get(span.cause)
    lane = ended.last(span.thread, at, span)
    if lane is not None and lane.category == "wait":
        lane = None
    ends = [(min(s.end, at), s) for s in (cause, lane) if s is not None and s.start < at]
    latest = max(ends, key=lambda e: e[0], default=None)
    if latest is not None and latest[0] >= span.pushed:
        if latest[0] < at:
            pieces.append(Piece(span.thread, latest[0], at, None))
        return latest[1], latest[0]
    if not span.pushed:
        return None, at
    if span.pushed < at:  # from the push to its start: its lane was waking up
        pieces.append(Piece(span.thread, span.pushed, at, None))
    before = ended.last(span.pusher, span.pushed, span)
    if before is None:
        return None, span.pushed
    pieces.append(Piece(span.pusher, before.end, span.pushed, None))
    return before, before.end


def _before_wait(wait: Span, at: int, by_seq, ops: Sequence[Span], pieces: list[Piece]):
    """A wait ends with the operation waited for."""
    found = by_seq.get(wait.seq)
    if found is None or found.end > at:
        done = [s for s in ops if wait.start < s.end <= at]
        found = max(done, key=lambda s: s.end, default=None)
    if found is None:
        return None, at
    end = min(found.end, at)
    pieces.append(Piece(wait.thread, end, at, None))
    return found, end
