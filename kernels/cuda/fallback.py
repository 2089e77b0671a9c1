"""Operators that have no kernel on GPUs: their reference, on CuPy over the device's memory, or on
NumPy through copies on the host. Also where calls wait for their kernels (pending.py)."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from ...engine import cpu, ffi, lib, log
from ...engine.error import DeferredError
from .. import backend
from ..layouts import physical_shape
from ..record import Operator, Type
from ..reference import Call, call_of, run_python
from ..spec import NUMPY_DTYPES, Spec
from ..traits import PythonKernel
from .compile import CompileError

KERNEL = "plpy_kernel_gpu"
# what CuPy raises where it lacks a function or an argument of NumPy's
LACKS = (AttributeError, ImportError, NotImplementedError, TypeError, ValueError)

_on_numpy: set[Operator] = set()  # operators that CuPy cannot run
_reported: set[tuple[str, str]] = set()


@ffi.def_extern(name=KERNEL, error=3)
def _run(params, bufs, scalars):
    call = call_of(params, scalars)
    try:
        status = _run_pending(call, bufs, scalars)
        if status is not None:
            return status
        if call.op.has(PythonKernel):
            run_python(call, bufs)
        elif cupy() is None or call.rng is not None or call.op in _on_numpy:
            _run_on_numpy(call, bufs, scalars)
        else:
            _run_on_cupy(call, bufs)
        return lib.PL_OK
    except Exception as error:
        return call.failed(error)


def _run_pending(call: Call, bufs, scalars) -> int | None:
    """Runs the kernels of the call that were being compiled; None where there are none."""
    if call.pending is None:
        return None
    try:
        return call.pending.run(bufs, scalars)
    except CompileError as error:
        warn(call.op, error)
        return None


def warn(op: Operator, error: CompileError) -> None:
    """Says that an operator's source does not compile."""
    logging.getLogger(__name__).warning("%s: its reference runs instead: %s", op.name, error)


def _report(op: Operator, where: str) -> None:
    if (op.name, where) not in _reported:
        _reported.add((op.name, where))
        log.write("gpu", f"{op.name}: no kernel for these types, its reference runs on {where}")


# ---- NumPy ---------------------------------------------------------------------------------------


def _run_on_numpy(call: Call, bufs, scalars=None) -> None:
    n = len(call.in_specs)
    memory = [read(bufs[i], s) for i, s in enumerate(call.in_specs)]
    targets = [_host_buffer(s) for s in call.out_specs]
    if call.rng is None or not _drawn(call, [*memory, *targets], scalars):
        _report(call.op, "NumPy, through the host")
        call.run(memory, [*targets, *(memory[i] for i in call.mutated)])
    for i, target in enumerate(targets):
        write(bufs[n + i], call.out_specs[i], target)
    for i in call.mutated:
        write(bufs[i], call.in_specs[i], memory[i])


def _drawn(call: Call, memory: list[np.ndarray], scalars) -> bool:
    """Runs the CPU's kernel of an operator that draws random numbers, if it has one: a seed gives
    the same numbers on all devices. memory: of inputs and outputs."""
    ins, outs = (
        [Type(s.shape, s.dtype) for s in specs] for specs in (call.in_specs, call.out_specs)
    )
    found = backend.of(cpu()).kernels.choose(call.op, ins, outs, call.attrs)
    if found is None or found.python:
        return False
    _report(call.op, "the CPU's kernel, through the host")
    bound = backend.bind_struct(call.op, found, cpu())
    places = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in memory])
    _check(getattr(lib, found.function)(bound.params or ffi.NULL, places, scalars))
    return True


def _host_buffer(s: Spec) -> np.ndarray:
    return np.empty(physical_shape(s.shape, s.layout), NUMPY_DTYPES[s.dtype])


def read(address: Any, s: Spec) -> np.ndarray:
    """The memory of the device at `address`, copied to the host."""
    values = _host_buffer(s)
    _check(lib.pl_gpu_read(ffi.cast("void *", values.ctypes.data), address, values.nbytes))
    return values


def write(address: Any, s: Spec, values: np.ndarray) -> None:
    """Puts contiguous values into memory of the device at `address`."""
    _check(lib.pl_gpu_write(address, ffi.cast("void *", values.ctypes.data), values.nbytes))


def _check(status: int) -> None:
    if status:
        raise DeferredError(ffi.string(lib.pl_error_message()).decode(errors="replace"))


# ---- CuPy ----------------------------------------------------------------------------------------


@functools.cache
def cupy() -> Any:
    """The module, or None where it is not installed or does not find its libraries."""
    try:
        import cupy as module

        module.cuda.runtime.getDeviceCount()
    except Exception:  # it is a plugin of its own kind: whatever it raises, NumPy serves
        return None
    return module


def _run_on_cupy(call: Call, bufs) -> None:
    xp, device = cupy(), lib.pl_gpu_device()
    stream = int(ffi.cast("uintptr_t", lib.pl_gpu_stream()))
    n = len(call.in_specs)
    with xp.cuda.Device(device), xp.cuda.ExternalStream(stream, device):
        memory = [_view(xp, bufs[i], s, device) for i, s in enumerate(call.in_specs)]
        try:
            results = call.op.ref(
                xp,
                *[_wide(xp, m, s) for m, s in zip(memory, call.in_specs)],
                **call.attrs,
                **({"rng": None} if call.op.random else {}),
            )
        except LACKS:  # or the call is wrong: then NumPy says so
            _on_numpy.add(call.op)
            return _run_on_numpy(call, bufs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        call.check(results)
        _report(call.op, "CuPy")
        targets = [_view(xp, bufs[n + i], s, device) for i, s in enumerate(call.out_specs)]
        targets += [memory[i] for i in call.mutated]
        results = [xp.array(r) for r in results]  # none lies in what is written below
        for target, value, s in zip(targets, results, call.target_specs):
            target[...] = _narrow(xp, value, s) if s.size else target


def _view(xp, address, s: Spec, device: int):
    """The memory of the device as a CuPy array; bfloat16 as uint16. The caller keeps it alive."""
    name = "uint16" if s.dtype == "bfloat16" else s.dtype
    if s.size == 0:
        return xp.empty(s.shape, name)
    memory = xp.cuda.UnownedMemory(int(ffi.cast("uintptr_t", address)), s.nbytes, None, device)
    return xp.ndarray(s.shape, name, xp.cuda.MemoryPointer(memory, 0))


def _wide(xp, values, s: Spec):
    """16-bit floats as float32: what references compute in."""
    if s.dtype == "bfloat16":
        return (values.astype(xp.uint32) << 16).view(xp.float32)
    return values.astype(xp.float32) if s.dtype == "float16" else values


def _narrow(xp, value, s: Spec):
    """A result in the dtype of its target, bfloat16 as its bits; see spec.round_to_bfloat16."""
    if s.dtype != "bfloat16":
        return xp.asarray(value).astype(s.dtype, copy=False)
    bits = xp.ascontiguousarray(xp.broadcast_to(xp.asarray(value, xp.float32), s.shape))
    bits = bits.view(xp.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(xp.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return xp.where(nan, xp.uint16(0x7FC0), rounded).astype(xp.uint16).reshape(s.shape)
