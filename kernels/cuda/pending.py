"""Calls whose kernels are still being compiled: the lane waits, the caller does not.

The kernel of such a plan is in Python (fallback.py). When it runs it waits for the compiler, then
launches. Meanwhile the caller continues, and the kernels of its next calls are compiled in
parallel. The plan is made again when its kernels are compiled.
"""

from __future__ import annotations

import threading
from typing import Any

from ...engine import ffi, lib
from ..native import Native
from .compile import CompileError, Kernel, compile_all, start
from .launch import Launch, check_grid


class Pending:
    """A native kernel of a GPU and what it waits for."""

    def __init__(self, found: Native, device: int, kernels: list[Kernel]):
        self._found, self._device, self._kernels = found, device, kernels
        self._lock = threading.Lock()
        self._made: tuple | None = None

    def ready(self) -> bool:
        """Is everything compiled, or known not to compile?"""
        return self._made is not None or not start(self._device, self._kernels)

    def wait(self) -> None:
        """Until it is ready."""
        compile_all(self._device, self._kernels)

    def run(self, bufs: Any, scalars: Any) -> int:
        """Waits and runs the kernel on a lane of its GPU. Raises CompileError, MXNetError."""
        with self._lock:
            if self._made is None:
                self._made = self._found.params.on(self._device)
        kernel = ffi.addressof(lib, self._found.function)
        return lib.pl_kernel_run_locked(kernel, self._made[0], bufs, scalars)


def pending(found: Native, device: int) -> Pending | None:
    """What waits for a kernel's launches; None where all of them are at hand. Raises ValueError for
    sizes that no launch can have."""
    steps = [s for s in found.params.steps if isinstance(s, Launch)]
    for step in steps:
        check_grid(step)
    missing = start(device, [Kernel(s.source, s.function, s.defines, s.options) for s in steps])
    return Pending(found, device, missing) if missing else None


__all__ = ["CompileError", "Pending", "pending"]
