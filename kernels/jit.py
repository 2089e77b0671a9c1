"""Compiles C functions while the program runs, by the system's C compiler, into a cache on disk.

    source -> key (source, headers, compiler, flags) -> KEY.so in the cache (cache.py) -> address

Without a compiler nothing here raises; there are just no functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from ..engine import lib
from ..engine.settings import get
from . import cache
from .generate import ISAS

CPU = Path(__file__).resolve().parent / "cpu"
HEAD = '#include <stdint.h>\n#include "half.h"\n'
HEADERS = ("half.h", "row_reduce.h")  # what sources include
FUNCTION = "plk_compiled"  # the name that every source defines
FLAGS = (
    "-std=gnu11 -O3 -fPIC -shared -w -fno-math-errno -fno-trapping-math -fwrapv"
    " -fno-strict-aliasing -fno-thread-jumps -ffp-contract=off"
).split()
SECONDS = 60  # for one compilation

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
def headers() -> dict[str, bytes]:
    """Name in CPU -> text of HEADERS and of what they include."""
    found: dict[str, bytes] = {}
    wanted = list(HEADERS)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = (CPU / name).read_bytes()
            wanted += re.findall(r'^#include "(.*)"', found[name].decode(), re.MULTILINE)
    return found


def _key(source: str) -> str:
    """The name of a source's file; "" without a compiler."""
    cc = compiler()
    if cc is None:
        return ""
    parts = [source.encode(), *headers().values(), repr(cc).encode(), repr(_flags()).encode()]
    return cache.digest(parts)


class _Compilation:
    """A compiler at work: its library goes to the cache and is loaded; a failure is noted."""

    def __init__(self, key: str, source: str):
        self._key = key
        self._process: subprocess.Popen | None = None
        self._work: tempfile.TemporaryDirectory | None = None
        try:
            self._work = tempfile.TemporaryDirectory(prefix="new-", dir=cache.folder())
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
        cache.write(f"{self._key}.so", self._made.read_bytes())
        if not _open(self._key):
            raise OSError("the compiled library cannot be loaded")


def stop() -> None:
    """Ends the compilers at work and starts no more: the process ends."""
    global _stopped
    with _lock:
        _stopped = True
        for process in _processes:
            process.kill()


def stopped() -> bool:
    """Does the process end?"""
    return _stopped


def _fail(key: str, why) -> None:
    with _lock:
        first = 0 not in _loaded.values() and not _stopped
        _loaded.setdefault(key, 0)
    if first:
        log.warning("a fused kernel cannot be compiled, its operators stay unfused: %s", why)


def _open(key: str) -> bool:
    """Loads a library from the cache."""
    if cache.read(f"{key}.so") is None:
        return False
    try:
        library = ctypes.CDLL(str(cache.folder() / f"{key}.so"))
        address = ctypes.cast(getattr(library, FUNCTION), ctypes.c_void_p).value
    except (AttributeError, OSError):
        return False
    with _lock:
        _libraries.append(library)
        _loaded[key] = address or 0
    return True
