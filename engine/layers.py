"""The layer whose operations a thread pushes: its path from the network, `features.3 (Conv2D)`.

Nobody keeps it unless somebody asks: `watched` counts the profiler, PLAIT_LOG=ops, traces of blocks
and searches for NaN. Whoever runs a layer looks at `watched` first.
"""

from __future__ import annotations

import threading

from ._core import ffi, lib

watched = 0

_lock = threading.Lock()


class Layer:
    """A layer, as threads enter it. pointer: of its name in the core, which is never freed."""

    __slots__ = ("name", "pointer")

    def __init__(self, name: str | None):
        self.name = name
        self.pointer = ffi.NULL if name is None else lib.pl_name(name.encode(errors="replace"))


_named: dict[str | None, Layer] = {None: Layer(None)}


class _Own(threading.local):
    def __init__(self) -> None:
        self.inside = [_named[None]]  # the layers that this thread is in, its own last


own = _Own()


def watch(on: bool) -> None:
    """One more wants to know the layers (on), or one fewer."""
    global watched
    with _lock:
        watched += 1 if on else -1


def current() -> str | None:
    """The layer of this thread, or None."""
    return own.inside[-1].name


def named(name: str | None) -> Layer:
    """The layer of a name."""
    found = _named.get(name)
    if found is None:
        found = _named[name] = Layer(name)
    return found


def enter(layer: Layer) -> None:
    """This thread's operations are of that layer from now on, until `leave`."""
    own.inside.append(layer)
    lib.pl_profiler_set_layer(layer.pointer)


def leave() -> None:
    """This thread's operations are of the layer before."""
    own.inside.pop()
    lib.pl_profiler_set_layer(own.inside[-1].pointer)


def joined(outer: str | None, inner: str | None) -> str | None:
    """The path of a layer inside another: of `body (Net)` and `0 (Dense)` it is `body.0 (Dense)`.
    A name without a path is the layer at the top."""
    if not outer or not inner:
        return inner or outer
    above, below = outer.rpartition(" (")[0], inner.rpartition(" (")[0]
    if not below:
        return outer if above else inner
    return f"{above}.{inner}" if above else inner
