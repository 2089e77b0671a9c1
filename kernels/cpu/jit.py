"""Compiles C functions while the program runs, by the system's C compiler, into a cache on disk.

    source -> key (source, headers, compiler, flags) -> KEY.so in the cache (cache.py) -> address

Without a compiler nothing here raises; there are just no functions.

Compiled and uncompiled operators may round differently, so whether a function is there must not
depend on the load of the machine: a compiler that was killed, found no memory or no place on the
disk is started again, and one that is slow is waited for. Ctrl-C ends the wait.
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
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from ...engine import lib
from ...engine.settings import get
from .. import cache, compilers
from .generate import ISAS

CPU = Path(__file__).resolve().parent
HEAD = '#include <stdint.h>\n#include "half.h"\n'
HEADERS = ("half.h", "row_reduce.h")  # what sources include
FUNCTION = "plk_compiled"  # the name that every source defines
FLAGS = (
    "-std=gnu11 -O3 -fPIC -shared -w -fno-math-errno -fno-trapping-math -fwrapv"
    " -fno-strict-aliasing -fno-thread-jumps -ffp-contract=off"
).split()
ATTEMPTS = 3
SLOW_S = 60  # after which a line says what is waited for
MOST_S = 1800  # for one attempt: nothing but a compiler that hangs takes so long
PAUSE_S = 1.0  # before another attempt: what was short may be there again

log = logging.getLogger(__name__)
_lock = threading.Lock()
_loaded: dict[str, int] = {}  # key -> address; 0: it cannot be compiled here
_sources: dict[int, str] = {}  # address -> source
_libraries: list = []  # never unloaded: plans point into them
_processes: set[subprocess.Popen] = set()


def function(source: str) -> int:
    """The address of the function FUNCTION of a C source, compiled now if need be; 0 where that
    cannot be done. Thread-safe."""
    compile_all([source])
    key = _key(source)
    address = _loaded.get(key, 0) if key else 0
    if address:
        _sources[address] = source
    return address


def source_of(address: int) -> str:
    """The source of a function that `function` gave; "" if it gave no such address."""
    return _sources.get(address, "")


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
    again = []
    try:
        while missing or running:
            while missing and len(running) < (os.cpu_count() or 1):
                running.append(_Compilation(*missing.popleft()))
            if not running[0].finish():
                again.append(running[0])
            running.popleft()
    finally:
        for compilation in running:  # after Ctrl-C
            compilation.abandon()
    for compilation in again:  # alone, so that it has more memory
        compilation.repeat()


# ---- compiler ------------------------------------------------------------------------------------


@functools.cache
def compiler() -> tuple[str, str] | None:
    """(path, version) of the C compiler, or None; says so once where there is none."""
    named = get("PLAIT_CC")
    if named == "none":
        return None
    for name in [named] if named else ["cc", "gcc", "clang"]:
        path = shutil.which(name)
        version = _version(path) if path else None
        if path and version is not None:
            return path, version
    log.warning("no C compiler found: pointwise operators stay unfused")
    return None


def _version(path: str) -> str | None:
    """What a compiler says of itself; None if it cannot run here."""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt * PAUSE_S)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(
                [path, "--version"], capture_output=True, timeout=MOST_S, check=True
            )
            return said.stdout.decode(errors="replace")
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
    """A compiler at work: its library goes to the cache and is loaded."""

    def __init__(self, key: str, source: str):
        self._key, self._source = key, source
        self._why: Exception | None = None
        self._start(cache.folder())

    def _start(self, folder: Path | None) -> None:
        """Starts the compiler. folder: where it works; None: a temporary one of the system."""
        self._process: subprocess.Popen | None = None
        self._work: tempfile.TemporaryDirectory | None = None
        try:
            self._work = tempfile.TemporaryDirectory(prefix="new-", dir=folder)
            given, self._made = Path(self._work.name, "group.c"), Path(self._work.name, "group.so")
            given.write_text(HEAD + self._source)
            command = [
                *(compiler() or ())[:1],
                *_flags(),
                f"-I{CPU}",
                str(given),
                "-o",
                str(self._made),
            ]
            with _lock:
                if compilers.stopped():
                    raise OSError("the process ends")
                self._process = subprocess.Popen(
                    [*command, "-lm"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                _processes.add(self._process)
        except (OSError, RuntimeError) as error:
            self._why = error

    def finish(self) -> bool:
        """Waits for the compiler and loads what it made. Returns False if that failed."""
        try:
            if self._process is not None:
                self._load(self._process)
                self._why = None
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            self._why = error
        finally:
            self.abandon()
        return self._why is None

    def repeat(self) -> None:
        """Tries again, some time later. Notes the failure if there is no success."""
        for attempt in range(1, ATTEMPTS):
            if compilers.stopped():
                return
            with compilers.waiting():
                time.sleep(attempt * PAUSE_S)
            self._start(None)
            if self.finish():
                return
        _fail(self._key, self._why)

    def abandon(self) -> None:
        """Ends the compiler and removes what it wrote."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()  # no zombie
            if self._process.stderr is not None:
                self._process.stderr.close()
            with _lock:
                _processes.discard(self._process)
        if self._work is not None:
            self._work.cleanup()

    def _load(self, process: subprocess.Popen) -> None:
        with compilers.waiting():
            try:
                _, text = process.communicate(timeout=SLOW_S)
            except subprocess.TimeoutExpired:
                log.warning("the C compiler has been at work for %s s: waiting for it", SLOW_S)
                _, text = process.communicate(timeout=MOST_S)
        if process.returncode:
            raise OSError(text.decode(errors="replace")[-2000:])
        with contextlib.suppress(OSError):  # a full disk
            cache.write(f"{self._key}.so", self._made.read_bytes())
        if not _open(self._key) and not _loads(self._made, self._key):
            raise OSError("the compiled library cannot be loaded")


def _stop() -> None:
    with _lock:  # one that starts now sees that the process ends
        for process in _processes:
            process.kill()


compilers.on_stop.append(_stop)


def _fail(key: str, why) -> None:
    with _lock:
        _loaded.setdefault(key, 0)
    if not compilers.stopped():
        log.warning(
            "a fused kernel cannot be compiled, its operators stay unfused, and the last bits of"
            " results are not those of a run in which it can: %s",
            why,
        )


def _open(key: str) -> bool:
    """Loads a library from the cache."""
    name = f"{key}.so"
    return cache.read(name) is not None and _loads(cache.folder() / name, key)


def _loads(path: Path, key: str) -> bool:
    try:
        library = ctypes.CDLL(str(path))
        address = ctypes.cast(getattr(library, FUNCTION), ctypes.c_void_p).value
    except (AttributeError, OSError):
        return False
    with _lock:
        _libraries.append(library)
        _loaded[key] = address or 0
    return True
