"""The layer whose operations a thread pushes: its path from the network, `features.3 (Conv2D)`.

Nobody keeps it unless somebody asks: `watched` counts the profiler, PLAIT_LOG=ops, traces of blocks
and searches for NaN. Whoever runs a layer looks at `watched` first.
"""

from __future__ import annotations

import threading
from typing import Any

from ._core import ffi, lib

watched = 0

_lock = threading.Lock()
_pointers: dict[str | None, Any] = {None: ffi.NULL}  # names in the core are never freed


class _Own(threading.local):
    name: str | None = None


own = _Own()  # the layer of this thread


def watch(on: bool) -> None:
    """One more wants to know the layers (on), or one fewer."""
    global watched
    with _lock:
        watched += 1 if on else -1


def current() -> str | None:
    """The layer of this thread, or None."""
    return own.name


def enter(name: str | None) -> str | None:
    """This thread's operations are of that layer from now on. Returns the layer before."""
    before, own.name = own.name, name
    lib.pl_profiler_set_layer(pointer(name))
    return before


def pointer(name: str | None) -> Any:
    """The name as the core keeps it."""
    found = _pointers.get(name)
    if found is None:
        assert name is not None
        found = _pointers[name] = lib.pl_name(name.encode(errors="replace"))
    return found


def joined(outer: str | None, inner: str | None) -> str | None:
    """The path of a layer inside another: of `body (Net)` and `0 (Dense)` it is `body.0 (Dense)`.
    A name without a path is the layer at the top."""
    if not outer or not inner:
        return inner or outer
    above, below = outer.rpartition(" (")[0], inner.rpartition(" (")[0]
    if not below:
        return outer if above else inner
    return f"{above}.{inner}" if above else inner
