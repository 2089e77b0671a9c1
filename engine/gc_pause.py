"""Python's cycle collector is paused while a large graph is made: it would walk all of it again and
again, and find nothing."""

from __future__ import annotations

import gc
import threading

_lock = threading.Lock()
_inside = 0
_was_on = False


class gc_paused:
    """`with gc_paused():` in a thread that the user waits for; nests, and threads may overlap."""

    __slots__ = ()

    def __enter__(self):
        global _inside, _was_on
        with _lock:
            _inside += 1
            if _inside == 1:
                _was_on = gc.isenabled()
                gc.disable()

    def __exit__(self, *exc):
        global _inside
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()
