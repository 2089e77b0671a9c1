"""Memory, streams and devices of the emulated CuPy, on the emulated driver."""

import ctypes
import functools
import os


@functools.cache
def _driver():
    return ctypes.CDLL(os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1"))


def _check(code):
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise runtime.CUDARuntimeError((text.value or b"unknown").decode())


def memory(ptr):
    """Where the bytes are that a pointer to memory of the current device names."""
    find = _driver().emulatorMemory
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return find(ptr)


class runtime:
    class CUDARuntimeError(RuntimeError):
        pass

    @staticmethod
    def getDeviceCount():
        n = ctypes.c_int()
        _check(_driver().cuDeviceGetCount(ctypes.byref(n)))
        return n.value


class UnownedMemory:
    """Memory of somebody else; `owner` is kept."""

    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self._owner, self.device_id = int(ptr), size, owner, device_id


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class Device:
    """A device; `with` makes its context the current one of this thread."""

    def __init__(self, device=0):
        self.id = int(device)
        self._outer = []

    def use(self):
        context = ctypes.c_void_p()
        _check(_driver().cuInit(0))
        _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), self.id))
        _check(_driver().cuCtxSetCurrent(context))

    def __enter__(self):
        outer = ctypes.c_void_p()
        _driver().cuCtxGetCurrent(ctypes.byref(outer))
        self._outer.append(outer)
        self.use()
        return self

    def __exit__(self, *error):
        _driver().cuCtxSetCurrent(self._outer.pop())

    def synchronize(self):
        with self:
            _check(_driver().cuCtxSynchronize())


class ExternalStream:
    """A stream of somebody else. What CuPy does inside `with` runs at once, on the host, so what is
    queued there must be done before."""

    def __init__(self, ptr, device_id=-1):
        self.ptr, self.device_id = int(ptr), device_id

    def use(self):
        self.synchronize()
        return self

    def synchronize(self):
        _check(_driver().cuStreamSynchronize(ctypes.c_void_p(self.ptr)))

    def __enter__(self):
        return self.use()

    def __exit__(self, *error):
        pass


class Stream(ExternalStream):
    null = None

    def __init__(self, null=False, non_blocking=False, ptds=False):
        made = ctypes.c_void_p()
        if not null:
            _check(_driver().cuStreamCreate(ctypes.byref(made), int(non_blocking)))
        super().__init__(made.value or 0)


def get_current_stream():
    return Stream(null=True)


def is_available():
    return True
