"""Compiles CUDA sources with NVRTC while the program runs, into the cache on disk (cache.py).

    source, name, defines -> key (they, headers, options, compiler) -> KEY.cubin -> function handle

A source is a file of kernels/cuda/ or text; its headers are those there that it includes.
Text, which the generator writes, is compiled without contraction of a * b + c, so that fused groups
round as single operators do; files say fmaf where they want it, or leave it to the compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...engine import cuda, ffi, lib
from ...engine.error import DeviceError, MXNetError
from .. import cache, compilers
from .activation_source import activation_cuda
from .update_source import update_rules_cuda

CUDA = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# NVRTC refuses functions without __device__, constexpr ones too, unless told that they have it
OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
GENERATED = ("--fmad=false",)  # of text
EXACT = (*OPTIONS, *GENERATED)  # of sources whose results must be the reference's bits
EXTERN = 'extern "C" __global__'

_lock = threading.Lock()
_key_locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
_modules: dict[tuple[int, str], int] = {}  # (device, key) -> handle; they stay loaded
_functions: dict[tuple[int, str, str], int] = {}  # (device, key, name) -> handle
_failed: dict[str, str] = {}  # key -> why it does not compile
_queue: deque[tuple[str, Kernel, str]] = deque()  # to compile: key, kernel, architecture
_n_workers = 0  # threads that do


class CompileError(MXNetError):
    """A source that the compiler refuses."""


class Kernel(NamedTuple):
    """A __global__ function to compile. source: a file of kernels/cuda/, or text. name: as C++
    names it, a template instance too. defines: (name, value) pairs for the preprocessor. options:
    of the compiler, instead of our own for text.

    The functions of a text that are `extern "C"` are one module, compiled once."""

    source: str
    name: str
    defines: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] | None = None

    @property
    def instance(self) -> str:
        """The name that the compiler is asked for, "" where the module has all of them anyway."""
        plain = self.options is None and self.name.isidentifier() and EXTERN in self.source
        return "" if plain else self.name


def function(
    device: int,
    source: str,
    name: str,
    defines: Sequence[tuple[str, str]] = (),
    options: tuple[str, ...] | None = None,
) -> int:
    """The handle (CUfunction) of a kernel on a GPU, compiled now if need be. Thread-safe.

    Raises: DeviceError where the GPU or NVRTC is missing, MXNetError with the compiler's messages
    where the source does not compile.
    """
    kernel = Kernel(source, name, tuple(defines), options)
    architecture = _architecture(device)
    key = _key(kernel, architecture)
    handle = _functions.get((device, key, name))
    if handle is None:
        with _key_locks[key]:
            handle = _functions.get((device, key, name))
            if handle is None:
                handle = _load(device, kernel, architecture, key)
                _functions[device, key, name] = handle
    return handle


def ready(
    device: int,
    source: str,
    name: str,
    defines: Sequence[tuple[str, str]] = (),
    options: tuple[str, ...] | None = None,
) -> bool:
    """Is the kernel at hand without compiling?"""
    key = _key(Kernel(source, name, tuple(defines), options), _architecture(device))
    return (device, key) in _modules or cache.read(_file(key)) is not None


def start(device: int, wanted: Iterable[Kernel]) -> list[Kernel]:
    """Begins to compile, on other threads, as many as there are processors, those kernels that are
    neither loaded nor on disk nor known to fail; returns them. Raises DeviceError as `function`."""
    global _n_workers
    architecture = _architecture(device)
    missing = {}
    for kernel in wanted:
        key = _key(kernel, architecture)
        known = key in missing or key in _failed or (device, key) in _modules
        if not known and cache.read(_file(key)) is None:
            missing[key] = kernel
    with _lock:
        queued = {key for key, _, _ in _queue}
        _queue.extend((k, v, architecture) for k, v in missing.items() if k not in queued)
        n_new = max(0, min(len(_queue), (os.cpu_count() or 1) - _n_workers))
        _n_workers += n_new
    for _ in range(n_new):
        threading.Thread(target=_work, daemon=True, name="plait-nvrtc").start()
    return list(missing.values())


def compile_all(device: int, wanted: Iterable[Kernel]) -> None:
    """Compiles those kernels that are neither loaded nor on disk, side by side. Never raises for
    one that fails: `function` does, for it."""
    architecture = _architecture(device)
    missing = start(device, wanted)
    with compilers.waiting():
        for kernel in missing:
            if compilers.stopped():
                return
            _compile_one(_key(kernel, architecture), kernel, architecture)


def _compile_one(key: str, kernel: Kernel, architecture: str) -> None:
    """Compiles a kernel, or waits for the thread that does; a failure is noted in _failed."""
    with contextlib.suppress(MXNetError), _key_locks[key]:
        _image(kernel, architecture, key)


def _work() -> None:
    """A thread that compiles what is queued, then ends."""
    global _n_workers
    while True:
        with _lock:
            if not _queue or compilers.stopped():
                _n_workers -= 1
                return
            job = _queue.popleft()
        _compile_one(*job)


def compile_image(
    source: str, name: str, architecture: str, defines: Sequence[tuple[str, str]] = ()
) -> bytes:
    """A kernel's cubin (or, for an architecture compute_XX, PTX text that ends with 0), after the
    name that it has there and a 0. Needs no GPU. Raises as `function`."""
    kernel = Kernel(source, name, tuple(defines))
    return _compile(kernel, architecture)


# ---- sources -------------------------------------------------------------------------------------


def _is_file(source: str) -> bool:
    return "\n" not in source and source.endswith(".cu")


# headers that no file holds
MADE = {"activations.cuh": activation_cuda, "update_rules.cuh": update_rules_cuda}


@functools.cache
def _header(name: str) -> str:
    make = MADE.get(name)
    return make() if make else (CUDA / name).read_text()


def _headers(text: str) -> dict[str, str]:
    """The headers of kernels/cuda/ that a text includes, and those that they include."""
    found: dict[str, str] = {}
    open_names = INCLUDE.findall(text)
    while open_names:
        name = open_names.pop()
        if name not in found and (name in MADE or (CUDA / name).is_file()):
            found[name] = _header(name)
            open_names += INCLUDE.findall(found[name])
    return dict(sorted(found.items()))


@functools.lru_cache(maxsize=4096)
def _key(kernel: Kernel, architecture: str) -> str:
    """The name of a kernel's file."""
    text = _header(kernel.source) if _is_file(kernel.source) else kernel.source
    headers = [part.encode() for item in _headers(text).items() for part in item]
    about = (kernel.instance, kernel.defines, _options(kernel, architecture), _nvrtc().identity)
    return cache.digest([text.encode(), repr(about).encode(), *headers])


def _file(key: str) -> str:
    return f"{key}.cubin"


def _options(kernel: Kernel, architecture: str) -> list[str]:
    defines = [f"--define-macro={n}={v}" if v else f"--define-macro={n}" for n, v in kernel.defines]
    extra = () if _is_file(kernel.source) else GENERATED
    if kernel.options is not None:
        return [f"--gpu-architecture={architecture}", *kernel.options, *defines]
    return [f"--gpu-architecture={architecture}", *OPTIONS, *extra, *defines]


# ---- compiler ------------------------------------------------------------------------------------


class _Nvrtc:
    """The library. identity: distinguishes its results from those of another version."""

    def __init__(self, path: str):
        self.library = ctypes.CDLL(path)
        for name in ("nvrtcGetErrorString",):
            getattr(self.library, name).restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        known = os.stat(path) if os.path.exists(path) else None
        self.identity = (self.version, known and (known.st_size, known.st_mtime_ns))

    @functools.cached_property
    def architectures(self) -> list[int]:
        """The compute capabilities that it compiles for, 80 is 8.0, ascending."""
        n = ctypes.c_int()
        self.library.nvrtcGetNumSupportedArchs(ctypes.byref(n))
        found = (ctypes.c_int * n.value)()
        self.library.nvrtcGetSupportedArchs(found)
        return sorted(found)

    def text(self, program: Any, size: str, get: str) -> bytes:
        n = ctypes.c_size_t()
        if getattr(self.library, size)(program, ctypes.byref(n)):
            return b""
        made = ctypes.create_string_buffer(n.value)
        getattr(self.library, get)(program, made)
        return made.raw


@functools.cache
def _nvrtc() -> _Nvrtc:
    path = cuda.require("nvrtc", "compile kernels")
    try:
        return _Nvrtc(path)
    except (AttributeError, OSError) as error:
        raise DeviceError(f"gpu: {path} cannot be loaded: {error}\n  fix: {cuda.INSTALL}") from None


@functools.cache
def _architecture(device: int) -> str:
    """What to compile for: this GPU, the nearest older one of its kind, else PTX for the driver."""
    major, minor = cuda.properties(device).capability
    known = _nvrtc().architectures
    same = [a for a in known if a // 10 == major and a % 10 <= minor]
    if same:
        return f"sm_{same[-1]}"
    older = [a for a in known if a < 10 * major + minor]
    if older:
        return f"compute_{older[-1]}"
    raise DeviceError(
        f"gpu({device}): NVRTC {'.'.join(map(str, _nvrtc().version))} compiles for compute "
        f"capability {known[0] / 10} and later, this GPU has {major}.{minor}"
    )


def _image(kernel: Kernel, architecture: str, key: str) -> bytes:
    """A kernel's image from the disk or the compiler. Raises CompileError."""
    image = cache.read(_file(key))
    if image is not None:
        return image
    if key in _failed:
        raise CompileError(_failed[key])
    try:
        image = _compile(kernel, architecture)
    except CompileError as error:
        _failed[key] = str(error)
        raise
    try:
        cache.write(_file(key), image)
    except OSError:  # a full disk: it serves this process
        pass
    return image


def _compile(kernel: Kernel, architecture: str) -> bytes:
    nvrtc = _nvrtc()
    call = nvrtc.library
    is_file = _is_file(kernel.source)
    text = _header(kernel.source) if is_file else kernel.source
    headers = _headers(text)
    strings = lambda items: (ctypes.c_char_p * len(items))(*[i.encode() for i in items])
    options = _options(kernel, architecture)
    program = ctypes.c_void_p()
    code = call.nvrtcCreateProgram(
        ctypes.byref(program),
        text.encode(),
        (kernel.source if is_file else "generated.cu").encode(),
        len(headers),
        strings(list(headers.values())),
        strings(list(headers)),
    )
    try:
        if kernel.instance:
            code = code or call.nvrtcAddNameExpression(program, kernel.instance.encode())
        code = code or call.nvrtcCompileProgram(program, len(options), strings(options))
        if code:
            log = nvrtc.text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
            why = log.rstrip(b"\0\n").decode(errors="replace")
            raise CompileError(
                f"gpu: {kernel.source if is_file else 'generated code'} does not compile as "
                f"{kernel.name} for {architecture} "
                f"({call.nvrtcGetErrorString(code).decode()})\n{why[-4000:]}"
            )
        lowered = ctypes.c_char_p()
        if kernel.instance:
            call.nvrtcGetLoweredName(program, kernel.instance.encode(), ctypes.byref(lowered))
        kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
        image = nvrtc.text(program, f"nvrtcGet{kind}Size", f"nvrtcGet{kind}")
        return (lowered.value or b"") + b"\0" + image
    finally:
        call.nvrtcDestroyProgram(ctypes.byref(program))


def _load(device: int, kernel: Kernel, architecture: str, key: str) -> int:
    name, _, code = _image(kernel, architecture, key).partition(b"\0")
    module = _modules.get((device, key)) or lib.pl_gpu_module(device, ffi.from_buffer(code))
    handle = module and lib.pl_gpu_function(device, module, name or kernel.name.encode())
    if not handle:
        why = ffi.string(lib.pl_error_message()).decode(errors="replace")
        raise MXNetError(f"gpu({device}): {kernel.name}: {why}")
    _modules[device, key] = module
    return handle
