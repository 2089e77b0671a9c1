"""Compiles C functions while the program runs, by the system's C compiler, into a cache on disk.

    source -> key (source, headers, compiler, flags) -> CACHE/plait/kernels/KEY.so -> address

The cache may be shared by processes: files appear by renaming. It is ours alone: a folder or file
that others own or may write is not used. A file ends with the digest of what stands before, so that
a damaged one is made again. Without a compiler nothing here raises; there are just no functions.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from ..engine import lib
from ..engine.settings import cache_home, get
from .generate import ISAS

CPU = Path(__file__).resolve().parent / "cpu"
HEADERS = ("half.h", "vecmath.h", "row_reduce.h", "generated/trig_table.h")
HEAD = "#include <stdint.h>\n" + f'#include "{HEADERS[0]}"\n'
FUNCTION = "plk_compiled"  # the name that every source defines
FLAGS = (
    "-std=gnu11 -O3 -fPIC -shared -w -fno-math-errno -fno-trapping-math -fwrapv"
    " -fno-strict-aliasing -fno-thread-jumps -ffp-contract=off"
).split()
MAX_CACHE_BYTES = 64 << 20  # beyond it the files used longest ago go, down to three quarters
SECONDS = 60  # for one compilation
DIGEST_BYTES = hashlib.sha256().digest_size

log = logging.getLogger(__name__)
_lock = threading.Lock()
_loaded: dict[str, int] = {}  # key -> address; 0: it cannot be compiled here
_libraries: list = []  # never unloaded: plans point into them
_processes: set[subprocess.Popen] = set()
_stopped = False
# around the wait for a compiler: a thread may let go of what it holds
waiting: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def function(source: str) -> int:
    """The address of the function FUNCTION of a C source, compiled now if need be; 0 where that
    cannot be done. Thread-safe."""
    compile_all([source])
    key = _key(source)
    return _loaded.get(key, 0) if key else 0


def ready(source: str) -> bool:
    """Is the function at hand without compiling?"""
    key = _key(source)
    return bool(key) and (bool(_loaded.get(key)) or _open(key))


def compile_all(sources: Iterable[str]) -> None:
    """Compiles those sources that are neither loaded nor on disk, as many at a time as there are
    processors. Never raises for a source that fails: `function` gives 0 for it."""
    wanted = {_key(s): s for s in sources}
    wanted.pop("", None)
    missing = deque((k, s) for k, s in wanted.items() if k not in _loaded and not _open(k))
    running: deque[_Compilation] = deque()
    while missing or running:
        while missing and len(running) < (os.cpu_count() or 1):
            running.append(_Compilation(*missing.popleft()))
        running.popleft().finish()


# ---- compiler ------------------------------------------------------------------------------------


@functools.cache
def compiler() -> tuple[str, str] | None:
    """(path, version) of the C compiler, or None; says so once where there is none."""
    named = get("PLAIT_CC")
    if named == "none":
        return None
    for name in [named] if named else ["cc", "gcc", "clang"]:
        path = shutil.which(name)
        if path:
            try:
                version = subprocess.run(
                    [path, "--version"], capture_output=True, timeout=SECONDS, check=True
                )
                return path, version.stdout.decode(errors="replace")
            except (OSError, subprocess.SubprocessError):
                continue
    log.warning("no C compiler found: pointwise operators stay unfused")
    return None


def _flags() -> list[str]:
    isa = {lib.PLK_BASELINE: "baseline", lib.PLK_AVX2: "avx2", lib.PLK_AVX512: "avx512"}
    named = ISAS[isa[lib.plk_isa_get()]]
    return [*FLAGS, *(f"-m{feature}" for feature in named.split(",") if feature)]


@functools.cache
def _headers() -> bytes:
    return b"\0".join((CPU / h).read_bytes() for h in HEADERS)


def _key(source: str) -> str:
    """The name of a source's file; "" without a compiler."""
    cc = compiler()
    if cc is None:
        return ""
    parts = [source.encode(), _headers(), repr(cc).encode(), repr(_flags()).encode()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()


class _Compilation:
    """A compiler at work: its library goes to the cache and is loaded; a failure is noted."""

    def __init__(self, key: str, source: str):
        self._key = key
        self._process: subprocess.Popen | None = None
        self._work: tempfile.TemporaryDirectory | None = None
        try:
            self._work = tempfile.TemporaryDirectory(prefix="new-", dir=folder())
            given, self._made = Path(self._work.name, "group.c"), Path(self._work.name, "group.so")
            given.write_text(HEAD + source)
            command = [
                *(compiler() or ())[:1],
                *_flags(),
                f"-I{CPU}",
                str(given),
                "-o",
                str(self._made),
            ]
            with _lock:
                if _stopped:
                    raise OSError("the process ends")
                self._process = subprocess.Popen(
                    [*command, "-lm"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                _processes.add(self._process)
        except (OSError, RuntimeError) as error:
            _fail(key, error)

    def finish(self) -> None:
        if self._process is not None:
            try:
                self._load(self._process)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                _fail(self._key, error)
            finally:
                self._process.kill()
                self._process.wait()  # no zombie
                if self._process.stderr is not None:
                    self._process.stderr.close()
                with _lock:
                    _processes.discard(self._process)
        if self._work is not None:
            self._work.cleanup()

    def _load(self, process: subprocess.Popen) -> None:
        with waiting():
            _, text = process.communicate(timeout=SECONDS)
        if process.returncode:
            raise OSError(text.decode(errors="replace")[-2000:])
        code = self._made.read_bytes()
        self._made.write_bytes(code + hashlib.sha256(code).digest())
        os.replace(self._made, folder() / f"{self._key}.so")
        _trim()
        if not _open(self._key):
            raise OSError("the library that was made cannot be loaded")


def stop() -> None:
    """Ends the compilers at work and starts no more: the process ends."""
    global _stopped
    with _lock:
        _stopped = True
        for process in _processes:
            process.kill()


def _fail(key: str, why) -> None:
    with _lock:
        first = 0 not in _loaded.values() and not _stopped
        _loaded.setdefault(key, 0)
    if first:
        log.warning("a fused kernel cannot be compiled, its operators stay unfused: %s", why)


# ---- cache ---------------------------------------------------------------------------------------


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


def _open(key: str) -> bool:
    """Loads a library from the cache; a damaged one is removed."""
    path = folder() / f"{key}.so"
    try:
        if not _private(path, stat.S_ISREG):
            return False
        data = path.read_bytes()
        if hashlib.sha256(data[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
            path.unlink()
            return False
        library = ctypes.CDLL(str(path))
        address = ctypes.cast(getattr(library, FUNCTION), ctypes.c_void_p).value
        os.utime(path)
    except (AttributeError, OSError):
        return False
    with _lock:
        _libraries.append(library)
        _loaded[key] = address or 0
    return True


def _trim() -> None:
    """Removes the files used longest ago when the cache has grown too large."""
    files = []
    for path in folder().glob("*.so"):
        try:
            info = path.stat()
        except OSError:  # another process was faster
            continue
        files.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= MAX_CACHE_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= MAX_CACHE_BYTES * 3 // 4:
            break
        path.unlink(missing_ok=True)
        total -= size
