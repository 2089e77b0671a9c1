"""Finds and loads oneDNN, which comes as a wheel."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator

from ...engine import lib

LIBRARY = "libdnnl.so.3"


def _places() -> Iterator[str]:
    """Where the wheels may have put it. Where pip usually does comes first: to ask for the list of
    files of a package takes 10 ms."""
    usual = os.path.join(sys.prefix, "lib", LIBRARY)
    if os.path.exists(usual):
        yield usual
    from importlib import metadata

    for package in ("onednn-cpu-gomp", "onednn"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            files = metadata.files(package) or ()
            yield from (str(f.locate()) for f in files if f.name.startswith(LIBRARY))


@functools.cache
def load() -> bool:
    """Whether oneDNN serves. The first call loads it."""
    return any(lib.plk_dnn_load(path.encode()) for path in _places())


def version() -> str | None:
    """oneDNN's version, or None."""
    n = lib.plk_dnn_version() if load() else 0
    return f"{n // 10000}.{n // 100 % 100}.{n % 100}" if n else None
