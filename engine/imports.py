"""A fork while another thread imports: its child would never get that module's lock, whose holder
does not exist there. plait imports some of its modules at their first use, so this can be any first
use of an operator in a thread."""

from __future__ import annotations

import importlib
import threading
import time

PATIENCE_S = 5.0  # the importing thread may wait for the one that forks


def wait_for_other_threads() -> None:
    """Waits until no other thread imports a module; at most PATIENCE_S. Locks of modules are
    Python's own; where it has none by this name, nothing is waited for."""
    until = time.monotonic() + PATIENCE_S
    while _imported_elsewhere() and time.monotonic() < until:
        time.sleep(0.0005)


def _imported_elsewhere() -> bool:
    me = threading.get_ident()
    known = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    locks = [reference() for reference in list(known.values())]
    return any(getattr(lock, "owner", None) not in (None, me) for lock in locks)
