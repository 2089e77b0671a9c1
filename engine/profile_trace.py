"""Recorded spans as a Chrome trace, which Perfetto opens: a process for each rank, a track for each
thread, arrows from a push to its operation, from an operation to the one that waited for it, and
from an operation to the wait that it ends."""

from __future__ import annotations

import itertools
import json
import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import files, hooks
from ._core import lib
from .error import InvalidValue
from .profile_events import Span

IDS = 1 << 40  # arrows of a process have numbers below; the process's number stands above
PUSH_NS = 1000  # how long a push is drawn, at most
BOOT = "/proc/sys/kernel/random/boot_id"
MAIN = "MainThread"
ORDER = (MAIN, "Thread", "cpu(", "gpu", "io(", "comm(", "thread pool")  # of the tracks

Event = dict[str, Any]


def clock() -> dict[str, Any]:
    """This machine, and its clock: what traces of several processes are aligned by."""
    try:
        boot = Path(BOOT).read_text().strip()
    except OSError:
        boot = ""
    return {"boot": boot, "monotonic_ns": lib.pl_profiler_now(), "unix_ns": time.time_ns()}


def place() -> tuple[int, int]:
    """(rank, number of ranks) of this process, as its launcher says."""
    found = hooks.get("place in a job")()
    return (0, 1) if found is None else (found.rank, found.size)


def in_flight(thread: str, number: int) -> str:
    """The name of a thread's track of operations in flight."""
    return f"{thread} in flight" + (f" {number}" if number > 1 else "")


def row(span: Span, ends: dict[str, int]) -> str:
    """The track of a span, given those before it: spans of one track must not overlap, so each
    operation in flight gets the first track that is free. ends: when each track's last one
    ended."""
    if not span.in_flight:
        return span.thread
    for number in itertools.count(1):
        name = in_flight(span.thread, number)
        if ends.get(name, 0) <= span.start:
            break
    ends[name] = span.end
    return name


def kinds(span: Span) -> str:
    """The categories of a span; copies and communication are told by their lanes."""
    if span.category in ("operator", "instruction"):
        if "h2d" in span.thread or "d2h" in span.thread:
            return f"{span.category},copy"
        if "comm" in span.thread:
            return f"{span.category},communication"
    return span.category


class Trace:
    """The events of one process."""

    def __init__(self, rank: int = 0, n_ranks: int = 1):
        self.pid, self.events = rank, list[Event]()
        self._tracks: dict[str, int] = {}
        self._n_arrows = 0
        name = "plait" if n_ranks == 1 else f"plait, rank {rank} of {n_ranks}"
        self._describe("process_name", {"name": name})
        self._describe("process_sort_index", {"sort_index": rank})

    def _describe(self, what: str, args: Event, **more: Any) -> None:
        self.events.append({"ph": "M", "pid": self.pid, "name": what, "args": args, **more})

    def track(self, name: str) -> int:
        """The number of a track: of the main thread the process's, as on Linux. Viewers take 0 for
        the process's number too, so no other track has these two."""
        found = self._tracks.get(name)
        if found is None:
            number = self.pid if name == MAIN else self.pid + 1 + len(self._tracks)
            found = self._tracks[name] = number
            self._describe("thread_name", {"name": name}, tid=found)
            at = next((i for i, start in enumerate(ORDER) if name.startswith(start)), 1)
            self._describe("thread_sort_index", {"sort_index": at}, tid=found)
        return found

    def add(
        self, phase: str, track: str, name: str, category: str, at_ns: float, **more: Any
    ) -> None:
        """An event of a track. at_ns: its time."""
        common = {"ph": phase, "name": name, "cat": category, "ts": at_ns / 1000}
        self.events.append({**common, "pid": self.pid, "tid": self.track(track), **more})

    def counter(self, name: str, category: str, at_ns: int, value: float, unit: str) -> None:
        """A number from a moment on. Perfetto calls its track by name and unit."""
        common = {"ph": "C", "name": name, "cat": category, "ts": at_ns / 1000, "pid": self.pid}
        self.events.append({**common, "args": {unit: value}})

    def arrow(self, kind: str, start: tuple[str, float], end: tuple[str, float]) -> None:
        """From (track, ns) to (track, ns); both lie in a span."""
        number = self.pid * IDS + self._n_arrows
        self._n_arrows += 1
        self.add("s", start[0], kind, kind, start[1], id=number)
        self.add("f", end[0], kind, kind, end[1], id=number, bp="e")

    def spans(self, spans: Sequence[Span]) -> None:
        """The spans, in the order of starts, with their arrows."""
        ends: dict[str, int] = {}
        rows = [row(s, ends) for s in spans]
        for s, track in zip(spans, rows):
            dur = (s.end - s.start) / 1000
            self.add("X", track, s.name, kinds(s), s.start, dur=dur, args=s.args)
        ops = {s.seq: (s, r) for s, r in zip(spans, rows) if s.category == "operator"}
        edges = _Edges(spans)
        for s, track in zip(spans, rows):
            if s.category == "wait":
                self._from_op("ends", ops.get(s.seq), track, s.start, s.end)
            if s.category != "operator":
                continue
            if s.pushed and s.pusher != s.thread and not s.goes_on:
                length = edges.room(s.pusher, s.pushed)
                args = {k: v for k, v in s.args.items() if k in ("layer", "line")}
                self.add(
                    "X", s.pusher, f"push {s.name}", "push", s.pushed, dur=length / 1000, args=args
                )
                self.arrow("push", (s.pusher, s.pushed), (track, s.start))
            self._from_op("then", ops.get(s.cause), track, s.start, s.start)

    def _from_op(self, kind, op, track: str, at: int, until: int) -> None:
        """An arrow from the end of an operation to a span on a track, within [at, until]."""
        if op is None:
            return
        span, its_track = op
        leaves = min(max(span.end - 1, span.start), max(until - 1, span.start))
        arrives = min(max(leaves, at), max(until - 1, at))
        if leaves <= arrives:
            self.arrow(kind, (its_track, leaves), (track, arrives))


class _Edges:
    """Where spans of each thread begin and end."""

    def __init__(self, spans: Iterable[Span]):
        self._of: dict[str, list[int]] = {}
        for s in spans:
            self._of.setdefault(s.thread, []).extend((s.start, s.end))
            if s.pushed and s.pusher != s.thread:
                self._of.setdefault(s.pusher, []).append(s.pushed)
        for times in self._of.values():
            times.sort()

    def room(self, thread: str, at: int) -> int:
        """The time until something else begins or ends on this thread, at most PUSH_NS."""
        times = self._of[thread]
        i = bisect_right(times, at)
        return min(PUSH_NS, times[i] - at) if i < len(times) else PUSH_NS


def text(events: Sequence[Event], rank: int, n_ranks: int) -> str:
    """A trace as the text of a file."""
    about = {"rank": rank, "ranks": n_ranks, **clock()}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def file_of_rank(name: str, rank: int, n_ranks: int) -> str:
    """`trace.json` of a single process, `trace-2.json` of rank 2."""
    if n_ranks == 1:
        return name
    stem, end = os.path.splitext(name)
    return f"{stem}-{rank}{end}"


def merge(names: Sequence[str | os.PathLike], filename: str | os.PathLike) -> None:
    """Writes the traces of several ranks as one, with their clocks aligned.

    Processes of one machine have the same clock. Those of other machines are moved by the
    difference of the machines' clocks, as exact as these are set (NTP: about a millisecond).

    Args:
        names: files that `dump` wrote, one for each rank.
        filename: the file to write.
    Raises: FileError, ValueError for files that are no traces of plait.
    """
    events: list[Event] = []
    first: dict[str, Any] | None = None
    used: set[int] = set()
    for name in [os.fspath(n) for n in names]:
        found = _read(name)
        about = found["otherData"]
        first = first or about
        pid = about["rank"] if about["rank"] not in used else max(used) + 1
        used.add(pid)
        events += _moved(found["traceEvents"], pid, _shift(about, first))
    if first is None:
        raise InvalidValue("profiler.merge: no traces are given")
    whole = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": first}
    files.write(os.fspath(filename), json.dumps(whole).encode())


def _read(name: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(name).read_bytes())
    except OSError as error:
        raise files.FileError(f"profiler.merge: cannot read {name!r}: {error}") from error
    except ValueError as error:
        raise InvalidValue(f"profiler.merge: {name!r} is not JSON: {error}") from error
    about = found.get("otherData") if isinstance(found, dict) else None
    wanted = {"rank", "boot", "monotonic_ns", "unix_ns"}
    if not isinstance(about, dict) or not wanted <= about.keys() or "traceEvents" not in found:
        raise InvalidValue(
            f"profiler.merge: {name!r} is not a trace of profiler.dump\n  fix: give files that"
            " mx.profiler.dump() wrote, one for each rank"
        )
    return found


def _shift(about: dict[str, Any], first: dict[str, Any]) -> float:
    """What to add to times, in microseconds."""
    if about["boot"] and about["boot"] == first["boot"]:
        return 0.0
    ahead = lambda clock: clock["unix_ns"] - clock["monotonic_ns"]
    return (ahead(about) - ahead(first)) / 1000


def _moved(events: list[Event], pid: int, shift_us: float) -> Iterable[Event]:
    for e in events:
        if "tid" in e:
            e["tid"] += pid - e["pid"]
        e["pid"] = pid
        if "ts" in e:
            e["ts"] += shift_us
        if "id" in e:
            e["id"] = e["id"] % IDS + pid * IDS
        yield e
