"""What was compiled, on disk: CACHE/plait/kernels/KEY.suffix; KEY is the digest of what made it.

The cache may be shared by processes: files appear by renaming. It is ours alone: a folder or file
that others own or may write is not used. A file ends with the digest of what stands before, so that
a damaged one is made again. When it grows too large, the files used longest ago go; so does what
killed processes left unfinished.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from ..engine.settings import cache_home

MAX_BYTES = 128 << 20  # beyond it the files used longest ago go, down to three quarters
LEFT_S = 3600  # what is unfinished after so long was left by a process that was killed
DIGEST_BYTES = hashlib.sha256().digest_size

log = logging.getLogger(__name__)
_sizes: dict[tuple[Path, str], int] = {}  # folder, kind: bytes, without what other processes added


def digest(parts: Iterable[bytes]) -> str:
    """A key: equal only for equal parts."""
    return hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()


@functools.cache
def folder() -> Path:
    """The cache: a folder that only we may enter; a temporary one where that cannot be had."""
    path = Path(cache_home(), "plait", "kernels")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if _private(path, stat.S_ISDIR) and os.access(path, os.W_OK | os.X_OK):
            return path
        log.warning("%s is not ours alone: kernels are compiled for this process only", path)
    except OSError:
        pass
    return Path(_temporary())


def read(name: str) -> bytes | None:
    """A file's contents; None where there is none to be trusted. A damaged one is removed."""
    path = folder() / name
    try:
        if not _private(path, stat.S_ISREG):
            return None
        data = path.read_bytes()
        if hashlib.sha256(data[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
            path.unlink()
            return None
        os.utime(path)
    except OSError:
        return None
    return data[:-DIGEST_BYTES]


def write(name: str, data: bytes) -> None:
    """Keeps contents under a name, and trims the cache. Raises OSError."""
    handle, made = tempfile.mkstemp(prefix="new-", dir=folder())
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data + hashlib.sha256(data).digest())
        os.replace(made, folder() / name)
    except OSError:
        Path(made).unlink(missing_ok=True)
        raise
    _trim_if_full(Path(name).suffix, len(data) + DIGEST_BYTES)


def _trim_if_full(kind: str, added: int) -> None:
    """Counts what the cache holds of a kind at the process's first write, and again when this
    process has added too much: there may be thousands of files."""
    size = _sizes.get((folder(), kind), MAX_BYTES) + added
    _sizes[folder(), kind] = size if size <= MAX_BYTES else _trim(kind)


@functools.cache
def _temporary() -> str:
    path = tempfile.mkdtemp(prefix="plait-")
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: str, maker: int) -> None:
    if os.getpid() == maker:  # not a forked child
        shutil.rmtree(path, ignore_errors=True)


def _private(path: Path, is_kind) -> bool:
    """Is it of that kind, ours, and closed to the writes of others (a folder: to their looks)?"""
    info = path.lstat()
    closed = 0o077 if is_kind is stat.S_ISDIR else 0o022
    return is_kind(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & closed


def _trim(suffix: str) -> int:
    """Removes what was left unfinished, and the files of a kind that were used longest ago when the
    kind has grown too large. Returns the bytes that are left."""
    for path in folder().glob("new-*"):
        with contextlib.suppress(OSError):  # another process was faster
            if path.lstat().st_mtime < time.time() - LEFT_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    files = []
    for path in folder().glob(f"*{suffix}"):
        try:
            info = path.stat()
        except OSError:  # another process was faster
            continue
        files.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= MAX_BYTES:
        return total
    for _, size, path in sorted(files):
        if total <= MAX_BYTES * 3 // 4:
            break
        path.unlink(missing_ok=True)
        total -= size
    return total
