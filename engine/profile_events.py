"""What the core recorded, as Python objects: one Span for each operation, instruction and wait."""

from __future__ import annotations

import threading
import warnings
from typing import Any, NamedTuple

from . import layers, location
from ._core import ffi, lib

CATEGORIES = {
    lib.PL_EVENT_OP: "operator",
    lib.PL_EVENT_INSTRUCTION: "instruction",
    lib.PL_EVENT_FLIGHT: "operator",
    lib.PL_EVENT_WAIT: "wait",
}
TAKE = 4096  # events read from the core in one call
MERGE_NS = 100_000  # a wait that looks for Ctrl-C is one wait


class Span(NamedTuple):
    """A finished span. Times in ns of the core's monotonic clock.

    in_flight: it overlaps with others of its thread. seq: the number of its operation, of an
    instruction that of its program; of a wait that of the operation waited for; 0: none. cause: the
    operation whose end let it start; 0: it could start when it was pushed. pushed, pusher: when and
    by which thread; 0, "": of no push. goes_on: a later part of an operation
    that waited in the middle.
    """

    name: str
    category: str
    start: int
    end: int
    thread: str
    args: dict[str, Any]
    in_flight: bool = False
    seq: int = 0
    cause: int = 0
    pushed: int = 0
    pusher: str = ""
    used_bytes: int = 0
    goes_on: bool = False


_texts: dict[Any, str] = {}  # the core's names are never freed: one decoding each
_threads: dict[str, str] = {}  # of the core's names for Python's threads


def _text(pointer) -> str:
    text = _texts.get(pointer)
    if text is None:
        text = _texts[pointer] = ffi.string(pointer).decode(errors="replace")
    return text


def _thread(number: int) -> str:
    """A thread's name: Python's, where it is one of Python."""
    name = _text(lib.pl_profiler_thread(number))
    return _threads.get(name, name)


def _name_threads() -> None:
    for t in threading.enumerate():
        known = f"thread {t.native_id}"
        _threads[known] = t.name if t.name not in _threads.values() else f"{t.name} {t.native_id}"


def take() -> list[Span]:
    """What the core recorded since the last time, in the order of starts."""
    buffer, found = ffi.new("pl_event[]", TAKE), list[Span]()
    _name_threads()
    while n := lib.pl_profiler_take(buffer, TAKE):
        found += [_span(e) for e in buffer[0:n]]
    if lost := lib.pl_profiler_lost():
        warnings.warn(
            f"profiler: {lost} events were lost: there was no room for them\n  fix: profile fewer"
            " steps, or call profiler.dumps() now and then",
            RuntimeWarning,
            stacklevel=2,
        )
    found.sort(key=lambda s: s.start)
    return _whole_waits(_parts(found))


def _parts(spans: list[Span]) -> list[Span]:
    """Marks what goes on: only an operation's first part was queued for it."""
    begun, found = set[int](), list[Span]()
    for s in spans:
        pushed = s.category == "operator" and s.pushed != 0  # what a GPU's stream did is not
        if pushed and s.seq in begun:
            args = {k: v for k, v in s.args.items() if k != "queued_us"}
            s = s._replace(args=args, goes_on=True)
        elif pushed:
            begun.add(s.seq)
        found.append(s)
    return found


def _span(e: Any) -> Span:
    args: dict[str, Any] = {}
    is_wait = e.kind == lib.PL_EVENT_WAIT
    if e.label != ffi.NULL:
        args["for" if is_wait else "shapes"] = _text(e.label)
    if e.layer != ffi.NULL:
        args["layer"] = _text(e.layer)
    line = location.text(e.location)
    if line:
        args["line"] = line
    if e.push_ns:
        args["queued_us"] = max(0, e.start_ns - e.push_ns) / 1000
    if e.kind == lib.PL_EVENT_FLIGHT:
        args["polled_us"] = e.polled_ns / 1000
    return Span(
        _text(e.name),
        CATEGORIES[e.kind],
        e.start_ns,
        e.end_ns,
        _thread(e.thread),
        args,
        e.kind == lib.PL_EVENT_FLIGHT,
        e.seq,
        e.cause,
        e.push_ns,
        _thread(e.pushed_by) if e.push_ns else "",
        e.used_bytes,
    )


def _whole_waits(spans: list[Span]) -> list[Span]:
    """One span for each wait: it returns now and then to look for Ctrl-C."""
    found, last = list[Span](), dict[str, int]()
    for s in spans:
        if s.category == "wait":
            at = last.get(s.thread)
            before = found[at] if at is not None else None
            same = before is not None and before[:2] == s[:2] and before.args == s.args
            if before is not None and same and 0 <= s.start - before.end < MERGE_NS:
                found[at or 0] = before._replace(end=s.end, seq=s.seq)
                continue
            last[s.thread] = len(found)
        found.append(s)
    return found


def with_layers(spans: list[Span]) -> list[Span]:
    """Instructions with the layers of their programs before their own: a program does not know
    where its block stands."""
    of_ops = {s.seq: s.args.get("layer") for s in spans if s.category == "operator"}
    found = []
    for s in spans:
        outer = of_ops.get(s.seq) if s.category == "instruction" else None
        if outer:
            inner = s.args.get("layer")
            parts = inner.split(", ") if inner else [None]
            names = dict.fromkeys(layers.joined(outer, p) or "" for p in parts)
            s = s._replace(args=s.args | {"layer": ", ".join(names)})
        found.append(s)
    return found
