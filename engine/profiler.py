"""The profiler: `start()`, work, `waitall()`, `stop()`; then `dump()` a Chrome trace or `dumps()`.

>>> from plait import engine
>>> from plait.engine import profiler
>>> profiler.start()
>>> engine.push(lambda: None, name="nothing")
>>> engine.waitall()
>>> profiler.stop()
>>> "nothing" in profiler.dumps(reset=True)
True
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from typing import Any, ClassVar, NamedTuple, Self

from . import files
from ._core import ffi, lib
from .error import MXNetError


class ProfilerError(MXNetError, ValueError):
    """A wrong argument of a profiler function."""


class _Event(NamedTuple):
    """A finished span. Times in ns of the core's monotonic clock."""

    name: str
    category: str
    start: int
    end: int
    thread: str
    args: dict[str, Any]
    in_flight: bool = False  # it overlaps with others of its thread


class _Sample(NamedTuple):
    """A counter's value from a moment on."""

    name: str
    category: str
    at: int
    value: float


class _Mark(NamedTuple):
    name: str
    category: str
    at: int
    scope: str
    thread: str


CATEGORIES = {
    lib.PL_EVENT_OP: "operator",
    lib.PL_EVENT_INSTRUCTION: "instruction",
    lib.PL_EVENT_FLIGHT: "operator",
}
MEMORY, DEVICE_STORAGE = "Memory: cpu/0", "Device Storage"
TAKE = 4096  # events read from the core in one call
FLAGS = (
    "profile_all",
    "profile_symbolic",
    "profile_imperative",
    "profile_memory",
    "profile_api",
    "continuous_dump",
    "aggregate_stats",
)
SORTS = ("total", "avg", "min", "max", "count")

_lock = threading.RLock()
_config: dict[str, Any] = {"filename": "profile.json", "profile_memory": True}
_state = "stop"
_events: list[_Event] = []
_samples: list[_Sample] = []
_marks: list[_Mark] = []
_texts: dict[Any, str] = {}  # the core's names are never freed: one decoding each


def set_config(**kwargs) -> None:
    """Sets what a later run does.

    Args:
        filename: where `dump` writes (default profile.json).
        profile_memory: with a track of the memory in use (default True).
        profile_all, profile_symbolic, profile_imperative, profile_api, aggregate_stats,
            continuous_dump: bool, as in MXNet; every operation is recorded whatever they say, and
            `dumps` needs no flag.
        profile_process: 'worker' or 'server', as in MXNet. dump_period: seconds, as in MXNet.
    Raises: ProfilerError for another name.
    """
    for key, value in kwargs.items():
        if key not in (*FLAGS, "filename", "profile_process", "dump_period"):
            raise ProfilerError(f"profiler.set_config: no setting is named {key!r}")
        if key in FLAGS and not isinstance(value, (bool, int)):
            raise ProfilerError(f"profiler.set_config: {key} must be True or False, got {value!r}")
        if key == "filename":
            value = os.fspath(value)
    with _lock:
        _config.update(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """'run' starts recording, 'stop' ends it; call waitall before, this does not wait."""
    global _state
    if state not in ("run", "stop"):
        raise ProfilerError(f"profiler.set_state: state must be 'run' or 'stop', got {state!r}")
    with _lock:
        if state == "stop":
            _collect()
        lib.pl_profiler_set(state == "run")
        _state = state


def start(profile_process: str = "worker") -> None:
    """set_state('run')."""
    set_state("run")


def stop(profile_process: str = "worker") -> None:
    """set_state('stop')."""
    set_state("stop")


def pause(profile_process: str = "worker") -> None:
    """Records nothing until `resume`."""
    lib.pl_profiler_set(0)


def resume(profile_process: str = "worker") -> None:
    """Goes on recording, if the state is 'run'."""
    lib.pl_profiler_set(_state == "run")


def _text(pointer) -> str:
    text = _texts.get(pointer)
    if text is None:
        text = _texts[pointer] = ffi.string(pointer).decode(errors="replace")
    return text


def _collect() -> None:
    """Takes over what the core recorded since the last time. With the lock."""
    buffer = ffi.new("pl_event[]", TAKE)
    found = []
    while n := lib.pl_profiler_take(buffer, TAKE):
        for e in buffer[0:n]:
            args: dict[str, Any] = {}
            if e.label != ffi.NULL:
                args["shapes"] = _text(e.label)
            if e.push_ns:
                args["queued_us"] = max(0, e.start_ns - e.push_ns) / 1000
            thread = _text(lib.pl_profiler_thread(e.thread))
            flew = e.kind == lib.PL_EVENT_FLIGHT
            if flew:
                args["polled_us"] = e.polled_ns / 1000
            found.append(
                _Event(_text(e.name), CATEGORIES[e.kind], e.start_ns, e.end_ns, thread, args, flew)
            )
            if _config["profile_memory"]:
                _samples.append(_Sample(MEMORY, DEVICE_STORAGE, e.end_ns, e.used_bytes))
    _events.extend(sorted(found, key=lambda e: e.start))


def _row(event: _Event, ends: dict[str, int]) -> str:
    """The row of an event, given those before it: spans of one row must not overlap, so each
    operation in flight gets the first row that is free. ends: when each row's last one ended."""
    if not event.in_flight:
        return event.thread
    for number in itertools.count(1):
        row = f"{event.thread} in flight" + (f" {number}" if number > 1 else "")
        if ends.get(row, 0) <= event.start:
            break
    ends[row] = event.end
    return row


def _trace() -> list[dict[str, Any]]:
    """The trace events of the Chrome format; times in microseconds."""
    threads: dict[str, int] = {}
    out: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "plait"}}
    ]

    def tid(name: str) -> int:
        if name not in threads:
            threads[name] = len(threads)
            out.append(
                {
                    "ph": "M",
                    "pid": 0,
                    "tid": threads[name],
                    "name": "thread_name",
                    "args": {"name": name},
                }
            )
        return threads[name]

    ends: dict[str, int] = {}
    for e in sorted(_events, key=lambda e: e.start):
        out.append(
            {
                "ph": "X",
                "name": e.name,
                "cat": e.category,
                "ts": e.start / 1000,
                "dur": (e.end - e.start) / 1000,
                "pid": 0,
                "tid": tid(_row(e, ends)),
                "args": e.args,
            }
        )
    last: dict[str, float] = {}
    for s in sorted(_samples, key=lambda s: s.at):
        if last.get(s.name) != s.value:
            last[s.name] = s.value
            out.append(
                {
                    "ph": "C",
                    "name": s.name,
                    "cat": s.category,
                    "ts": s.at / 1000,
                    "pid": 0,
                    "args": {s.name: s.value},
                }
            )
    for m in _marks:
        out.append(
            {
                "ph": "i",
                "name": m.name,
                "cat": m.category,
                "ts": m.at / 1000,
                "pid": 0,
                "tid": tid(m.thread),
                "s": m.scope,
            }
        )
    return out


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Writes everything recorded so far to the configured file, a complete JSON each time.

    finished: also stops recording. Raises FileError if the file cannot be written.
    """
    with _lock:
        _collect()
        if finished:
            set_state("stop")
        text = json.dumps({"traceEvents": _trace(), "displayTimeUnit": "ms"}, indent=0)
        path = _config["filename"]
        files.write(path, text.encode())


def _aggregate() -> dict[str, dict[str, dict[str, float]]]:
    """category -> name -> Count, Total, Min, Max, Avg; in ms, kB, or a counter's own unit."""
    values: dict[str, dict[str, list[float]]] = {}
    for e in _events:
        values.setdefault(e.category, {}).setdefault(e.name, []).append((e.end - e.start) / 1e6)
    for s in _samples:
        scale = 1000 if s.category == DEVICE_STORAGE else 1
        values.setdefault(s.category, {}).setdefault(s.name, []).append(s.value / scale)
    return {
        category: {
            name: {
                "Count": len(v),
                "Total": sum(v),
                "Min": min(v),
                "Max": max(v),
                "Avg": sum(v) / len(v),
            }
            for name, v in names.items()
        }
        for category, names in values.items()
    }


def dumps(
    reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False
) -> str:
    """The statistics of what was recorded so far, by category and name.

    Args:
        reset: forgets everything recorded afterwards.
        format: 'table', or 'json': {"Time": {category: {name: {"Count", "Total", "Min", "Max",
            "Avg"}}}, "Memory": the same of the memory in use, "Unit": ms and kB}.
        sort_by: 'total', 'avg', 'min', 'max' or 'count'. ascending: smallest first.
    Raises: ProfilerError for other values.
    """
    if format not in ("table", "json"):
        raise ProfilerError(f"profiler.dumps: format must be 'table' or 'json', got {format!r}")
    if sort_by not in SORTS:
        raise ProfilerError(
            f"profiler.dumps: sort_by must be one of {', '.join(SORTS)}, got {sort_by!r}"
        )
    with _lock:
        _collect()
        table = _aggregate()
        if reset:
            for recorded in (_events, _samples, _marks):
                recorded.clear()
    key = sort_by.capitalize()
    ordered = {
        category: dict(sorted(names.items(), key=lambda item: item[1][key], reverse=not ascending))
        for category, names in sorted(table.items())
    }
    if format == "json":
        memory = {DEVICE_STORAGE: ordered.pop(DEVICE_STORAGE)} if DEVICE_STORAGE in ordered else {}
        units = {"Time": "ms", "Memory": "kB"}
        return json.dumps({"Time": ordered, "Memory": memory, "Unit": units}, indent=4)
    lines = ["", "Profile Statistics:", "  Times in ms, memory in kB, counters in their own unit."]
    for category, names in ordered.items():
        lines += [
            category,
            "=" * 17,
            f"{'Name':<40}{'Count':>10}"
            + "".join(f"{column:>14}" for column in ("Total", "Min", "Max", "Avg")),
        ]
        for name, row in names.items():
            lines.append(
                f"{name:<40}{row['Count']:>10}"
                + "".join(f"{row[column]:>14.4f}" for column in ("Total", "Min", "Max", "Avg"))
            )
        lines.append("")
    return "\n".join(lines)


# ---- the user's own marks ------------------------------------------------------------------------


class Domain:
    """A name that groups tasks, frames, counters and markers."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        return Marker(self, name)


class _Span:
    """From `start` to `stop`, on the thread that stops it. Also a context manager."""

    def __init__(self, domain: Domain | str, name: str):
        self.domain, self.name = domain, name
        self._start: int | None = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        self._start = lib.pl_profiler_now()

    def stop(self) -> None:
        """Raises ProfilerError if it was not started."""
        if self._start is None:
            raise ProfilerError(
                f"profiler: {type(self).__name__} {self.name!r} stops without a start"
            )
        begin, self._start = self._start, None
        if _state == "run":
            thread = threading.current_thread().name
            _events.append(
                _Event(self.name, str(self.domain), begin, lib.pl_profiler_now(), thread, {})
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop()


class Task(_Span):
    """A piece of work that may start and stop on different threads."""


class Frame(_Span):
    """One of many passes, such as a step of training."""


class Event(_Span):
    """A span without a domain."""

    def __init__(self, name: str):
        super().__init__("event", name)


class Counter:
    """A number over time. `c += 1`, `c -= 1`, `c.set_value(5)`."""

    def __init__(self, domain: Domain, name: str, value: float | None = None):
        self.domain, self.name = domain, name
        self._lock = threading.Lock()
        self.value: float = 0
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: float) -> None:
        with self._lock:
            self._keep(value)

    def increment(self, delta: float = 1) -> None:
        with self._lock:
            self._keep(self.value + delta)

    def decrement(self, delta: float = 1) -> None:
        self.increment(-delta)

    def _keep(self, value: float) -> None:
        self.value = value
        if _state == "run":
            _samples.append(_Sample(self.name, str(self.domain), lib.pl_profiler_now(), value))

    def __iadd__(self, delta: float) -> Self:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Self:
        self.decrement(delta)
        return self


class Marker:
    """A moment."""

    SCOPES: ClassVar = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}

    def __init__(self, domain: Domain, name: str):
        self.domain, self.name = domain, name

    def mark(self, scope: str = "process") -> None:
        """scope: how wide it is drawn: 'global', 'process', 'thread', 'task' or 'marker'."""
        if scope not in self.SCOPES:
            raise ProfilerError(
                f"Marker.mark: scope must be one of {', '.join(self.SCOPES)}, got {scope!r}"
            )
        if _state == "run":
            _marks.append(
                _Mark(
                    self.name,
                    str(self.domain),
                    lib.pl_profiler_now(),
                    self.SCOPES[scope],
                    threading.current_thread().name,
                )
            )


# ---- MXNet's older names -------------------------------------------------------------------------


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Older form of `set_config`."""
    set_config(filename=filename, **{f"profile_{mode}": True})


def profiler_set_state(state: str = "stop") -> None:
    """Older form of `set_state`."""
    set_state(state)


def dump_profile() -> None:
    """Older form of `dump`."""
    dump()


def set_kvstore_handle(handle) -> None:
    """Accepted as in MXNet; workers and servers here profile themselves."""
