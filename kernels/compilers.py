"""What the compilers of all devices share while programs run: waiting for one, and the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

# around the wait for a compiler: a thread may let go of what it holds
waiting: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
on_stop: list[Callable[[], None]] = []  # end the compilers of a device that are at work
_stopped = False


def stop() -> None:
    """Ends the compilers at work and starts no more: the process ends."""
    global _stopped
    _stopped = True
    for end in on_stop:
        end()


def stopped() -> bool:
    """Does the process end?"""
    return _stopped
