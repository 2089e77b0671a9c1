"""Where shuffling and augmentation draw: the streams of Python's `random` and of NumPy, or those of
a thread that makes batches ahead. Which numbers such a thread gets must not depend on what other
threads draw meanwhile."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_own = threading.local()


def python() -> Any:
    """`random`, or this thread's generator with the same methods."""
    return getattr(_own, "python", random)


def numpy() -> Any:
    """`numpy.random`, or this thread's generator with the same methods."""
    return getattr(_own, "numpy", np.random)


def draw_seed() -> tuple[int, int]:
    """What `own` takes, drawn from the streams of this thread: seeding either makes it another."""
    return python().getrandbits(64), int(numpy().randint(2**31))


@contextlib.contextmanager
def own(seed: tuple[int, int]) -> Iterator[None]:
    """Inside, this thread draws from streams of its own."""
    before = dict(_own.__dict__)
    _own.python = random.Random(f"{seed}")
    _own.numpy = np.random.RandomState([seed[0] & 0xFFFFFFFF, seed[0] >> 32, seed[1]])
    try:
        yield
    finally:
        _own.__dict__.clear()
        _own.__dict__.update(before)
