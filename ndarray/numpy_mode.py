"""mx.util: the switches of NumPy semantics, environment variables, GPUs.

Scalars and empty arrays are always legal in plait: the shape switch is a flag that code can query
and that has no effect. The array switch makes blocks, loaders and initializers make mx.np arrays.
Both are of the thread.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from ..engine import Context, cuda, gpu_memory_info, num_gpus


class _Mode(threading.local):
    shape = array = False


_mode = _Mode()


def is_np_shape() -> bool:
    """Is the NumPy shape switch on in this thread?"""
    return _mode.shape


def is_np_array() -> bool:
    """Is the NumPy array switch on in this thread?"""
    return _mode.array


def set_np_shape(active: Any) -> bool:
    """Turns the NumPy shape switch of this thread on or off. Returns the previous value."""
    before = _mode.shape
    _mode.shape = bool(active)
    return before


class _Scope:
    """Turns a switch of this thread on or off for a `with`."""

    switch: ClassVar[str]

    def __init__(self, active: bool = True):
        self._active = bool(active)
        self._outer: list[bool] = []

    def __enter__(self):
        self._outer.append(getattr(_mode, self.switch))
        setattr(_mode, self.switch, self._active)

    def __exit__(self, *error):
        setattr(_mode, self.switch, self._outer.pop())


def switches() -> tuple[bool, bool]:
    """(shape, array): what another thread or process gives to `set_np` to work as this one."""
    return _mode.shape, _mode.array


def in_mode(x: Any) -> Any:
    """An array or Symbol that plait made without one of the user's: of mx.np where the array switch
    is on. Sparse arrays, which mx.np has not, stay."""
    if not _mode.array or getattr(x, "stype", "default") != "default":
        return x
    return x.as_np_ndarray()


class np_shape(_Scope):  # noqa: N801 - MXNet's name
    """`with np_shape(True):` the NumPy shape switch of this thread."""

    switch = "shape"


class np_array(_Scope):  # noqa: N801 - MXNet's name
    """`with np_array(True):` the NumPy array switch of this thread."""

    switch = "array"


def _within(scope, func):
    """func, or the methods and properties of a class, run inside a scope."""
    if not inspect.isclass(func):

        @functools.wraps(func)
        def inside(*args, **kwargs):
            with scope(True):
                return func(*args, **kwargs)

        return inside
    for name, member in vars(func).copy().items():
        if inspect.isfunction(member):
            setattr(func, name, _within(scope, member))
        elif isinstance(member, property):
            parts = [m and _within(scope, m) for m in (member.fget, member.fset, member.fdel)]
            setattr(func, name, property(parts[0], parts[1], parts[2], member.__doc__))
    return func


def use_np_shape(func: Callable[..., Any]) -> Any:
    """Decorator of a function or class: runs it with the NumPy shape switch on."""
    return _within(np_shape, func)


def use_np_array(func: Callable[..., Any]) -> Any:
    """Decorator of a function or class: runs it with the NumPy array switch on."""
    return _within(np_array, func)


def use_np(func: Callable[..., Any]) -> Any:
    """Decorator of a function or class: runs it with both switches on."""
    return use_np_shape(use_np_array(func))


def set_np(shape: bool = True, array: bool = True) -> None:
    """Sets both switches of this thread. Raises ValueError for arrays without shapes."""
    if array and not shape:
        raise ValueError(
            "NumPy Shape semantics is required in using NumPy array semantics"
            "\n  fix: set_np(shape=True, array=True)"
        )
    _mode.shape, _mode.array = bool(shape), bool(array)


def reset_np() -> None:
    """Turns both switches off."""
    set_np(shape=False, array=False)


def set_module(module: Any) -> Callable:
    """Decorator: sets the module of a function or class."""

    def decorate(func):
        if module is not None:
            func.__module__ = module
        return func

    return decorate


UFUNC_OPTIONS = {  # keyword of a NumPy ufunc -> its legal values
    "where": (True, False),
    "casting": ("no", "equiv", "safe", "same_kind", "unsafe"),
    "order": ("C", "F", "A", "K"),
    "dtype": ("int8", "uint8", "int32", "int64", "float16", "float32", "float64"),
    "subok": (True, False),
}


def np_ufunc_legal_option(key: Any, value: Any) -> bool:
    """Is it a keyword of a NumPy ufunc, with a value that it may have?"""
    return value in UFUNC_OPTIONS.get(key, ())


def _checked(func, count):
    @functools.wraps(func)
    def call(*args, out=None, **kwargs):
        if len(args) != count:
            raise TypeError(f"{func.__name__}: expected {count} arrays, got {len(args)}")
        for key, value in kwargs.items():
            if not np_ufunc_legal_option(key, value):
                raise TypeError(f"{func.__name__}: {key}={value} is not supported")
        return func(*args, out=out)

    return call


def wrap_np_unary_func(func: Callable[..., Any]) -> Callable:
    """func(x, out=None) that also takes a NumPy ufunc's keywords, and ignores them."""
    return _checked(func, 1)


def wrap_np_binary_func(func: Callable[..., Any]) -> Callable:
    """func(x1, x2, out=None) that also takes a NumPy ufunc's keywords, and ignores them."""
    return _checked(func, 2)


def getenv(name: str) -> str | None:
    """An environment variable of this process, or None."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Sets an environment variable of this process; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def get_gpu_count() -> int:
    """The number of GPUs."""
    return num_gpus()


def get_gpu_memory(gpu_dev_id: int) -> tuple[int, int]:
    """(free, total) bytes of a GPU. Raises DeviceError."""
    return gpu_memory_info(gpu_dev_id)


def get_cuda_compute_capability(ctx: Context) -> int:
    """Ten times the compute capability of a GPU. Raises ValueError for another device, DeviceError
    if it cannot be used."""
    if ctx.on_host:
        raise ValueError(f"get_cuda_compute_capability: expected a gpu context, got {ctx}")
    ctx.check()
    major, minor = cuda.properties(ctx.device_id).capability
    return 10 * major + minor
