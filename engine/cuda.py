"""The CUDA driver and its libraries: where they are, what the GPUs are."""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

from ._core import ffi, lib
from .error import DeviceError, compose
from .settings import get

INSTALL = (
    'pip install "plait[cuda13]" (plait[cuda12] for older drivers) on a machine with an NVIDIA GPU '
    "and its driver"
)
# library -> file names, newest first
NAMES = {
    "cuda": ("libcuda.so.1", "libcuda.so"),
    "nvrtc": ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"),
    "cublasLt": ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"),
    "cudnn": ("libcudnn.so.9", "libcudnn.so"),
    "nccl": ("libnccl.so.2", "libnccl.so"),
}
SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/opt/cuda/lib64")


class Properties(NamedTuple):
    """What a GPU is. capability: (major, minor); driver: 13000 is CUDA 13.0; sizes in bytes."""

    name: str
    capability: tuple[int, int]
    driver: int
    n_multiprocessors: int
    max_shared_bytes: int
    warp_threads: int
    max_block_threads: int
    total_bytes: int


@functools.cache
def find(library: str) -> str | None:
    """The path or name under which a library of NAMES can be loaded; None where it is not found.

    Looked for in PLAIT_CUDA_LIBRARIES, then in the wheels of NVIDIA, then in the system.
    """
    names = NAMES[library]
    named = get("PLAIT_CUDA_LIBRARIES")
    for folder in [*([named] if named else []), *_wheel_folders(), *_system_folders()]:
        for name in names:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    import ctypes  # here, as below: needed only where a GPU is used

    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def require(library: str, purpose: str) -> str:
    """`find`, or a DeviceError that says what to install. purpose: "compile kernels"."""
    found = find(library)
    if found is None:
        raise DeviceError(
            compose(f"gpu: the library {NAMES[library][0]} is needed to {purpose}", fix=INSTALL)
        )
    return found


def _wheel_folders() -> list[str]:
    """nvidia/*/lib, and nvidia/cu13/lib, of the wheels."""
    import glob
    import importlib.util

    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(f for root in roots for f in glob.glob(os.path.join(root, "*", "lib")))


def _system_folders() -> list[str]:
    import glob

    return [f for pattern in SYSTEM for f in glob.glob(pattern)]


@functools.cache
def open_driver() -> str:
    """Loads the driver. Returns "" or, where no GPU can be used, why not."""
    library = find("cuda")
    if library is None:
        return "this machine has no CUDA driver (libcuda.so.1)"
    if lib.pl_gpu_open(library.encode()) == lib.PL_OK:
        return ""
    return ffi.string(lib.pl_error_message()).decode(errors="replace")


def count() -> int:
    """How many GPUs there are."""
    open_driver()
    return lib.pl_gpu_count()


@functools.cache
def properties(device: int = 0) -> Properties:
    """What gpu(device) is. Raises DeviceError if it cannot be used."""
    check(device)
    p = ffi.new("pl_gpu_properties *")
    if lib.pl_gpu_get_properties(device, p):
        raise DeviceError(ffi.string(lib.pl_error_message()).decode(errors="replace"))
    return Properties(
        ffi.string(p.name).decode(errors="replace"),
        (p.major, p.minor),
        p.driver,
        p.n_multiprocessors,
        p.max_shared_bytes,
        p.warp_threads,
        p.max_block_threads,
        p.total_bytes,
    )


def check(device: int) -> None:
    """Raises DeviceError if gpu(device) cannot be used."""
    if device < lib.pl_gpu_count():
        return
    why = open_driver()
    if why:
        raise DeviceError(compose(f"gpu({device}): {why}", fix=f"{INSTALL}, or use mx.cpu()"))
    n = lib.pl_gpu_count()
    if n == 0:
        raise DeviceError(
            compose(
                f"gpu({device}): a GPU cannot be used in a process forked from one that used it",
                fix="use mx.cpu() there, or start it with multiprocessing's 'spawn'",
            )
        )
    if device >= n:
        there = "gpu(0)" if n == 1 else f"gpu(0) ... gpu({n - 1})"
        raise DeviceError(
            compose(f"gpu({device}): this machine has {n} GPU{'s' * (n > 1)}", fix=f"use {there}")
        )


def memory(device: int) -> tuple[int, int]:
    """(free, total) bytes of gpu(device). Raises DeviceError if it cannot be used."""
    check(device)
    sizes = ffi.new("size_t[2]")
    if lib.pl_gpu_memory(device, sizes, sizes + 1):
        raise DeviceError(ffi.string(lib.pl_error_message()).decode(errors="replace"))
    return sizes[0], sizes[1]
