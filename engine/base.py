"""mx.base: errors, type tuples and ctypes helpers that code written for MXNet imports from it."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .error import MXNetError, compose

__all__ = ["MXNetError"]

string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
long, basestring = int, str

mx_uint, mx_int, mx_int64 = ctypes.c_uint, ctypes.c_int, ctypes.c_int64
mx_float, mx_float_p = ctypes.c_float, ctypes.POINTER(ctypes.c_float)
mx_real_t = np.float32
NDArrayHandle = SymbolHandle = CachedOpHandle = ExecutorHandle = FunctionHandle = ctypes.c_void_p
OpHandle = KVStoreHandle = RecordIOHandle = DataIterHandle = DataIterCreatorHandle = ctypes.c_void_p
CudaModuleHandle = CudaKernelHandle = RtcHandle = ProfileHandle = DLPackHandle = ctypes.c_void_p


class _NullType:
    """The default of a parameter that was not given."""

    def __repr__(self):
        return "_Null"

    def __bool__(self):
        return False


_Null = _NullType()


class MXCallbackList(ctypes.Structure):
    """A list of C callbacks and their contexts."""

    _fields_ = (
        ("num_callbacks", ctypes.c_int),
        ("callbacks", ctypes.POINTER(ctypes.CFUNCTYPE(ctypes.c_int))),
        ("contexts", ctypes.POINTER(ctypes.c_void_p)),
    )


class _Unsupported(MXNetError):
    why = fix = ""

    def __init__(self, function: str | Callable[..., Any], alias: str | None = None, *args: Any):
        """function: the method, or its name; alias: the operator's name; args: those it got."""
        super().__init__()
        self.function, self.alias = getattr(function, "__name__", function), alias
        self.args = tuple(str(type(a)) for a in args)

    def __str__(self):
        named = f' (namely operator "{self.alias}")' if self.alias else ""
        given = f" with arguments ({', '.join(self.args)})" if self.args else ""
        return compose(f"Function {self.function}{named}{given} is {self.why}", fix=self.fix)


class NotImplementedForSymbol(_Unsupported):
    """A method that only arrays, which have values, can have."""

    why = "not available for a Symbol, which has no values"
    fix = (
        "in a hybridized block compute with F (F.where instead of if); elsewhere bind or eval it"
        " first"
    )


class NotSupportedForSparseNDArray(_Unsupported):
    """A method of dense arrays that a sparse one cannot have."""

    why = "not supported for SparseNDArray and only available in NDArray."


# ---- errors by name ------------------------------------------------------------------------------

error_types: dict[str, type] = {}


def register_error(func_name: Any = None, cls: Any = None) -> Any:
    """Makes an error class known by name to `c2pyerror`; a decorator, or (name, class)."""
    if callable(func_name):
        error_types[func_name.__name__] = func_name
        return func_name
    if cls is None:
        return lambda klass: register_error(func_name, klass)
    error_types[func_name] = cls
    return cls


register = register_error  # its name in mx.error

for _builtin in (ValueError, TypeError, AttributeError, IndexError, NotImplementedError):
    register_error(_builtin.__name__, _builtin)


def c2pyerror(err_msg: str) -> tuple[str, str | None]:
    """(text, name of the registered error class that the text begins with, or None)."""
    found = re.match(r"\s*([A-Za-z_][\w.]*):", err_msg)
    return err_msg, found.group(1) if found and found.group(1) in error_types else None


def get_last_ffi_error() -> Exception:
    """The core's last error as an exception, of a registered class where its text names one."""
    from ._core import ffi, lib

    text, name = c2pyerror(ffi.string(lib.pl_error_message()).decode())
    return error_types.get(name or "", MXNetError)(text)


def check_call(ret: int) -> None:
    """Raises the core's last error if a call returned anything but 0."""
    if ret != 0:
        raise get_last_ffi_error()


# ---- ctypes --------------------------------------------------------------------------------------


def py_str(x: bytes) -> str:
    """Text from a C string."""
    return x.decode("utf-8")


def c_str(string: str) -> ctypes.c_char_p:
    """A C string."""
    return ctypes.c_char_p(string.encode("utf-8"))


def c_str_array(strings: Any) -> Any:
    """A C array of C strings."""
    return c_array(ctypes.c_char_p, [s.encode("utf-8") for s in strings])


def c_array(ctype: Any, values: Any) -> Any:
    """A C array of a ctypes type."""
    return (ctype * len(values))(*values)


def c_array_buf(ctype: Any, buf: Any) -> Any:
    """A C array over a buffer (array.array), which it shares."""
    return (ctype * len(buf)).from_buffer(buf)


def c_handle_array(objs: Any) -> Any:
    """A C array of the handles of arrays or symbols."""
    return c_array(ctypes.c_void_p, [getattr(o.handle, "value", o.handle) for o in objs])


def ctypes2buffer(cptr: Any, length: int) -> bytearray:
    """A copy of `length` bytes at a POINTER(c_char). Raises TypeError for another pointer."""
    if not isinstance(cptr, ctypes.POINTER(ctypes.c_char)):
        raise TypeError(f"ctypes2buffer: expected a POINTER(c_char), got {type(cptr).__name__}")
    return bytearray(ctypes.string_at(cptr, length))


def ctypes2numpy_shared(cptr: Any, shape: int | Sequence[int]) -> Any:
    """A NumPy array over the floats at a POINTER(c_float). Raises TypeError for another pointer."""
    if not isinstance(cptr, mx_float_p):
        raise TypeError(
            f"ctypes2numpy_shared: expected a POINTER(c_float), got {type(cptr).__name__}"
        )
    return np.ctypeslib.as_array(cptr, (shape,) if isinstance(shape, int) else tuple(shape))


# ---- documentation and classes -------------------------------------------------------------------


def build_param_doc(arg_names: Any, arg_types: Any, arg_descs: Any, remove_dup: bool = True) -> str:
    """The "Parameters" part of a docstring from names, types and descriptions."""
    seen: set[str] = set()
    lines = []
    for name, kind, text in zip(arg_names, arg_types, arg_descs, strict=True):
        if (name in seen and remove_dup) or name == "num_args":
            continue
        seen.add(name)
        lines.append(f"{name} : {kind}" + (f"\n    {text}" if text else ""))
    return "Parameters\n----------\n" + "\n".join(lines) + "\n"


def add_fileline_to_docstring(module: Any, incursive: bool = True) -> None:
    """Appends "From:file:line" to the docstrings of a module (or its name)."""
    import sys

    owner = sys.modules[module] if isinstance(module, str) else module
    name = owner.__name__ if inspect.ismodule(owner) else owner.__module__
    for member in list(vars(owner).values()):
        if getattr(member, "__module__", None) != name or not getattr(member, "__doc__", None):
            continue
        if inspect.isfunction(member) and member.__doc__:
            try:
                line = inspect.getsourcelines(member)[1]
            except OSError:
                continue
            member.__doc__ += f"\n\nFrom:{inspect.getsourcefile(member)}:{line}"
        elif inspect.isclass(member) and incursive:
            add_fileline_to_docstring(member, False)


def with_metaclass(meta: Any, *bases: Any) -> Any:
    """A base class that gives its subclasses a metaclass."""

    class _Make(type):
        def __new__(cls, name, this_bases, body):
            return meta(name, bases, body)

    return type.__new__(_Make, "temporary_class", (), {})


class _ClassProperty:
    def __init__(self, get: Callable):
        self.get = get

    def __get__(self, instance, owner):
        return self.get(owner)


def classproperty(func: Callable[..., Any]) -> _ClassProperty:
    """Decorator: a property of the class itself."""
    return _ClassProperty(func.__func__ if isinstance(func, classmethod) else func)


def _as_list(obj) -> list | tuple:
    """obj if it is a list or tuple, else a list of it."""
    return obj if isinstance(obj, (list, tuple)) else [obj]


def data_dir_default() -> str:
    """Where datasets and models are kept: ~/.mxnet."""
    return os.path.join(os.path.expanduser("~"), ".mxnet")


def data_dir() -> str:
    """Where datasets and models are kept: $MXNET_HOME, or ~/.mxnet."""
    return os.environ.get("MXNET_HOME") or data_dir_default()


@register_error
class InternalError(MXNetError):
    """Something in the core that should not happen."""

    def __init__(self, msg: Any):
        super().__init__(compose(msg, fix="report it, with the script that shows it"))
