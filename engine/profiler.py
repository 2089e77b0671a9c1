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

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

from . import files, layers
from ._core import lib
from .error import MXNetError
from .profile_events import Span, take, with_layers
from .profile_trace import Trace, file_of_rank, place, text
from .profile_trace import merge as merge


class ProfilerError(MXNetError, ValueError):
    """A wrong argument of a profiler function."""


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


MEMORY, DEVICE_STORAGE = "Memory: cpu/0", "Device Storage"
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
_events: list[Span] = []
_samples: list[_Sample] = []
_marks: list[_Mark] = []
_watches: list[list[Span]] = []  # that `recording` fills


def set_config(**kwargs: Any) -> None:
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
        if state == _state:
            return
        _collect()
        _state = state
    _switch(state == "run")


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
    lib.pl_profiler_set(_n_wanting > 0)


def _collect() -> None:
    """Takes over what the core recorded since the last time. With the lock."""
    found = take()
    for watch in _watches:
        watch += found
    if _state != "run" and _watches:  # not asked for by set_state
        return
    _events.extend(found)
    if _config["profile_memory"]:
        ends = sorted((s for s in found if s.category != "wait"), key=lambda s: s.end)
        _samples.extend(_Sample(MEMORY, DEVICE_STORAGE, s.end, s.used_bytes) for s in ends)


@contextmanager
def recording() -> Iterator[list[Span]]:
    """Inside, operations are recorded into the list that it gives, which is complete afterwards;
    also while the profiler runs, which keeps its own. Call waitall before, and at its end."""
    found: list[Span] = []
    with _lock:
        _collect()
        _watches.append(found)
    _switch(True)
    try:
        yield found
    finally:
        with _lock:
            _collect()
            _watches.remove(found)
        _switch(False)


_n_wanting = 0


def _switch(on: bool) -> None:
    """One more wants events from the core, or one fewer."""
    global _n_wanting
    with _lock:
        _n_wanting += 1 if on else -1
        lib.pl_profiler_set(_n_wanting > 0)
    layers.watch(on)


def _trace() -> list[dict[str, Any]]:
    """The trace events of the Chrome format; times in microseconds."""
    trace = Trace(*place())
    trace.spans(with_layers(sorted(_events, key=lambda s: s.start)))
    last: dict[str, float] = {}
    for s in sorted(_samples, key=lambda s: s.at):
        if last.get(s.name) != s.value:
            last[s.name] = s.value
            unit = "bytes" if s.category == DEVICE_STORAGE else "value"
            trace.counter(s.name, s.category, s.at, s.value, unit)
    for m in _marks:
        trace.add("i", m.thread, m.name, m.category, m.at, s=m.scope)
    return trace.events


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Writes everything recorded so far to the configured file, a complete JSON each time. In a job
    of several ranks each writes one, `profile-0.json`, `profile-1.json`: see `merge`.

    finished: also stops recording. Raises FileError if the file cannot be written.
    """
    with _lock:
        _collect()
        if finished:
            set_state("stop")
        rank, n_ranks = place()
        path = file_of_rank(_config["filename"], rank, n_ranks)
        files.write(path, text(_trace(), rank, n_ranks).encode())


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
                Span(self.name, str(self.domain), begin, lib.pl_profiler_now(), thread, {})
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


def set_kvstore_handle(handle: Any) -> None:
    """Accepted as in MXNet; workers and servers here profile themselves."""
