"""Ctrl-C at a moment at which its KeyboardInterrupt, or its exit status, would be lost."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading


class deferred:
    """`with deferred():` Ctrl-C is raised at its end. For forks: Python ignores what the functions
    raise that it calls around one, those of `logging` as well as ours."""

    __slots__ = ("_before", "_seen")

    def __enter__(self):
        self._before, self._seen = None, None
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._before = handler
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number, frame):
        self._seen = (number, frame)

    def __exit__(self, kind, error, trace):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._seen is not None and kind is None:
                self._before(*self._seen)


def ended_the_program() -> bool:
    """Whether one ended the program. At a prompt, which has sys.ps1, it ends a statement only."""
    return getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1")


def remember() -> None:
    """At exit. Python ends by the signal, as shells expect, unless a string was evaluated since the
    interrupt: the tiers' thread does that by importing a dataclass."""
    if ended_the_program():
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
