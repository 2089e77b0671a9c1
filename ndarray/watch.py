"""Somebody who sees each eager call of a thread while it is recorded: `find_nan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

See = Callable[[Any, Any, Any, Any], None]

see: See | None = None  # called with the plan, inputs, scalars and outputs of each recorded call
gradient_of: Any = None  # the plan of the call whose gradient is being computed, or None


@contextmanager
def watched(callback: See) -> Iterator[None]:
    """Inside, callback sees the calls of all threads that record."""
    global see
    before, see = see, callback
    try:
        yield
    finally:
        see = before
