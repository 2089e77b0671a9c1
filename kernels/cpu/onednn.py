"""Finds and loads oneDNN, which comes as a wheel."""

from __future__ import annotations

import functools

from ...engine import lib


def _file_of(package: str, prefix: str) -> str | None:
    from importlib import metadata

    try:
        files = metadata.files(package) or ()
    except metadata.PackageNotFoundError:
        return None
    found = [f for f in files if f.name.startswith(prefix)]
    return str(found[0].locate()) if found else None


@functools.cache
def load() -> bool:
    """Whether oneDNN serves. The first call loads it."""
    for package, prefix in (("onednn-cpu-gomp", "libdnnl.so.3"), ("onednn", "libdnnl.so.3")):
        path = _file_of(package, prefix)
        if path and lib.plk_dnn_load(path.encode()):
            return True
    return False


def version() -> str | None:
    """oneDNN's version, or None."""
    n = lib.plk_dnn_version() if load() else 0
    return f"{n // 10000}.{n // 100 % 100}.{n % 100}" if n else None
