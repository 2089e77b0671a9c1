"""CuPy on the emulated GPU: NumPy on device memory, strict where CuPy is strict.

An array of CuPy does not become one of NumPy unasked, and functions take no NumPy arrays: both
raise TypeError here, too. What runs, runs at once: entering a stream waits for what is queued.
"""

import ctypes
import functools

import numpy as _np
from numpy import (  # noqa: F401  (types and constants are NumPy's own)
    bool_,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    inf,
    int8,
    int16,
    int32,
    int64,
    intp,
    nan,
    newaxis,
    pi,
    promote_types,
    uint8,
    uint16,
    uint32,
    uint64,
)

from . import cuda

globals().update(dtype=_np.dtype, e=_np.e)

__version__ = "14.0.0"
# of NumPy's namespace, not of CuPy's 14.2
ABSENT = set(
    "errstate seterr geterr vecdot matvec vecmat unstack nditer ndenumerate insert block spacing"
    " frompyfunc histogram_bin_edges geomspace nanpercentile nanquantile einsum_path memmap strings"
    " char ma matrix bmat asmatrix polyder polydiv polyint isnat nested_iters emath".split()
)
NUMBERS = (bool, int, float, complex, _np.generic)


class ndarray(_np.lib.mixins.NDArrayOperatorsMixin):
    """An array of device memory. Its NumPy array is `_host`."""

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if memptr is None:
            self._host = _np.empty(shape, dtype, order)
            return
        n = int(_np.prod(shape, dtype=_np.int64)) * _np.dtype(dtype).itemsize
        raw = (ctypes.c_char * n).from_address(cuda.memory(memptr.ptr)) if n else b""
        flat = _np.frombuffer(raw, _np.uint8, n) if n else _np.empty(0, _np.uint8)
        self._host = flat.view(dtype).reshape(shape, order=order)
        self._kept = memptr

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return _call(getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return _call(function, args, kwargs)

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_host", "ctypes", "resize"):
            raise AttributeError(name)
        value = getattr(self._host, name)
        return _function(value) if callable(value) else _wrap(value)

    def __getitem__(self, key):
        return _wrap(self._host[_plain(key)])

    def __setitem__(self, key, value):
        self._host[_plain(key)] = _plain(value)

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return iter([_wrap(row) for row in self._host])

    def __bool__(self):
        return bool(self._host)

    def __int__(self):
        return int(self._host)

    def __float__(self):
        return float(self._host)

    def __index__(self):
        return self._host.__index__()

    def __repr__(self):
        return repr(self._host)

    __hash__ = None

    @property
    def data(self):
        host = self._host
        address = host.ctypes.data
        memory = cuda.UnownedMemory(address, host.nbytes, self, 0)
        return cuda.MemoryPointer(memory, 0)

    @property
    def device(self):
        return cuda.Device()

    @property
    def shape(self):
        return self._host.shape

    @shape.setter
    def shape(self, shape):
        self._host.shape = shape

    def get(self, stream=None, order="C", out=None, blocking=True):
        if out is None:
            return self._host.copy(order)
        out[...] = self._host
        return out

    def set(self, array, stream=None):
        self._host[...] = array

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self._host.shape,
            "typestr": self._host.dtype.str,
            "data": (self._host.ctypes.data, False),
            "version": 3,
            "strides": None if self._host.flags.c_contiguous else self._host.strides,
        }


def _plain(value):
    """An argument as NumPy takes it. Raises TypeError for an array of NumPy's."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, _np.ndarray):
        if value.ndim == 0:
            return value
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_plain(v) for v in value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _wrap(value):
    """A result: arrays and numbers of NumPy's types become arrays."""
    if isinstance(value, (_np.ndarray, _np.generic)):
        made = ndarray.__new__(ndarray)
        made._host = _np.asarray(value)
        return made
    if isinstance(value, (tuple, list)) and any(isinstance(v, _np.ndarray) for v in value):
        return (
            type(value)(*map(_wrap, value))
            if hasattr(value, "_fields")
            else type(value)(map(_wrap, value))
        )
    return value


def _call(function, args, kwargs):
    with _np.errstate(all="ignore"):
        return _wrap(function(*_plain(args), **_plain(kwargs)))


def _function(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return _call(function, args, kwargs)

    return call


def asarray(a, dtype=None, order=None, **kwargs):
    """An array, from one of NumPy too: the one door."""
    if isinstance(a, ndarray):
        same = dtype is None or a._host.dtype == dtype
        return a if same else _wrap(a._host.astype(dtype))
    if isinstance(a, (list, tuple)) and any(isinstance(v, ndarray) for v in a):
        a = [v._host if isinstance(v, ndarray) else v for v in a]
    return _wrap(_np.array(a, dtype))


def array(a, dtype=None, copy=True, **kwargs):
    made = asarray(a, dtype)
    return _wrap(made._host.copy()) if copy else made


ascontiguousarray = lambda a, dtype=None: _wrap(_np.ascontiguousarray(asarray(a, dtype)._host))


def asnumpy(a, stream=None, order="C", out=None, **kwargs):
    return a.get(out=out) if isinstance(a, ndarray) else _np.asarray(a)


def get_array_module(*args):
    import sys

    return sys.modules[__name__] if any(isinstance(a, ndarray) for a in args) else _np


class _Namespace:
    """linalg, fft, lib, ...: their functions, for arrays of the device."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        value = getattr(self._module, name)
        return _function(value) if callable(value) and not isinstance(value, type) else value


linalg, fft, lib = _Namespace(_np.linalg), _Namespace(_np.fft), _Namespace(_np.lib)
random = _Namespace(_np.random)


class _Ufunc:
    """A ufunc: a call, and at, reduce, accumulate, outer."""

    def __init__(self, ufunc):
        self._ufunc, self.__name__ = ufunc, ufunc.__name__

    def __call__(self, *args, **kwargs):
        return _call(self._ufunc, args, kwargs)

    def __getattr__(self, name):
        return _function(getattr(self._ufunc, name))


def __getattr__(name):
    if name.startswith("__") or name in ABSENT:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    value = getattr(_np, name)
    if isinstance(value, _np.ufunc):
        return _Ufunc(value)
    return _function(value) if callable(value) and not isinstance(value, type) else value
