"""What the compilers of all devices share while programs run: waiting for one, and the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

# around the wait for a compiler: a thread may let go of what it holds
waiting: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
on_stop: list[Callable[[], None]] = []  # end the compilers of a device that are at work
_stopped = False


def load() -> None:
    """Imports what compilers need of the standard library, on the caller's thread. Some of these
    modules register functions that run at forks: no other thread may fork meanwhile."""
    import logging  # noqa: F401  (here: few processes compile)
    import random  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401


def stop() -> None:
    """Ends the compilers at work and starts no more: the process ends."""
    global _stopped
    _stopped = True
    for end in on_stop:
        end()


def stopped() -> bool:
    """Does the process end?"""
    return _stopped
