"""The layer whose operations a thread pushes: its path from the network, `features.3 (Conv2D)`.

Nobody keeps it unless somebody asks: `watched` counts the profiler, PLAIT_LOG=ops, traces of blocks
and searches for NaN. Whoever runs a layer looks at `watched` first.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from ._core import ffi, lib
from ._layer import bind
from ._layer import current as current
from ._layer import enter as enter

bind(int(ffi.cast("uintptr_t", ffi.addressof(lib, "pl_profiler_set_layer"))))

watched = 0

_lock = threading.Lock()


class Layer(NamedTuple):
    """A layer, as threads enter it; layer.c knows the first three fields.

    above: where its block was called. pointer: its name in the core, which is never freed. path: of
    its block, from the outermost one.
    """

    above: Layer | None
    pointer: int
    name: str
    path: str
    block: weakref.ref[Any] | None


_names: dict[str | None, Any] = {None: ffi.NULL}


def c_name(name: str | None) -> Any:
    """A name in the core."""
    found = _names.get(name)
    if found is None and name is not None:
        found = _names[name] = lib.pl_name(name.encode(errors="replace"))
    return found


def made(
    name: str, above: Layer | None = None, path: str = "", block: weakref.ref[Any] | None = None
) -> Layer:
    """A new layer."""
    return Layer(above, int(ffi.cast("uintptr_t", c_name(name))), name, path, block)


_named: dict[str, Layer] = {}


def watch(on: bool) -> None:
    """One more wants to know the layers (on), or one fewer."""
    global watched
    with _lock:
        watched += 1 if on else -1


def named(name: str | None) -> Layer | None:
    """The layer of a name, the same each time; None of None."""
    if name is None:
        return None
    found = _named.get(name)
    if found is None:
        found = _named[name] = made(name)
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
