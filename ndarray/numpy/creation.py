"""Creation functions of mx.np: as NumPy's, of float32 where no dtype is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp

from ...engine import Context, current_context
from ...engine.error import InvalidValue
from ...kernels.record import dtype_name, lookup, several
from ...kernels.spec import DType
from .. import creation
from ..indexing import EXACT_FLOAT
from ..invoke import invoke
from ..launch import copy_into
from ..ndarray import NDArray, from_memory
from .array import array, fresh, is_symbol, ndarray, operand
from .functions import broadcast_to
from .functions import full_like as _full_like
from .methods import row_major

Shape = int | Sequence[int]


def _made(name: str, ctx: Context | None, **attrs: Any) -> ndarray:
    """The result of an operator without inputs."""
    return fresh(invoke(lookup(name), (), attrs, None, ctx))


def zeros(
    shape: Shape, dtype: DType | None = None, order: str = "C", ctx: Context | None = None
) -> ndarray:
    """Zeros of a shape."""
    row_major(order, "np.zeros")
    return fresh(creation._create("_zeros", shape, ctx, dtype, None))


def ones(
    shape: Shape, dtype: DType | None = "float32", order: str = "C", ctx: Context | None = None
) -> ndarray:
    """Ones of a shape."""
    row_major(order, "np.ones")
    return fresh(creation._create("_ones", shape, ctx, dtype, None))


def empty(
    shape: Shape, dtype: DType | None = "float32", order: str = "C", ctx: Context | None = None
) -> ndarray:
    """Memory of a shape whose contents nobody has written."""
    row_major(order, "np.empty")
    return fresh(creation.empty(shape, ctx, dtype))


def full(
    shape: Shape,
    fill_value: Any,
    dtype: DType | None = None,
    order: str = "C",
    ctx: Context | None = None,
    out: Any = None,
) -> ndarray:
    """fill_value in every element; an array broadcasts. dtype: default that of an array, bool for
    a bool, float32 for other numbers."""
    row_major(order, "np.full")
    if out is not None:
        out[...] = fill_value
        return out
    if isinstance(fill_value, (NDArray, onp.ndarray, list, tuple)):
        return broadcast_to(array(fill_value, dtype, ctx), tuple(several(shape))).copy()
    name = dtype_name(
        ("bool" if isinstance(fill_value, (bool, onp.bool_)) else "float32")
        if dtype is None
        else dtype
    )
    if name in ("int64", "uint64") and abs(fill_value) > EXACT_FLOAT:
        return fresh(from_memory(onp.full(shape, fill_value, name), ctx))
    return fresh(creation._create("_full", shape, ctx, name, None, float(fill_value)))


def full_like(
    a: Any,
    fill_value: Any,
    dtype: DType | None = None,
    order: str = "C",
    ctx: Context | None = None,
    out: Any = None,
    shape: Shape | None = None,
) -> Any:
    """fill_value in every element of an array like a: of its shape and dtype where they are not
    given."""
    row_major(order, "np.full_like")
    a = operand(a)
    if is_symbol(a):
        return _full_like(a, fill_value=float(fill_value), dtype=dtype)
    shape = a.shape if shape is None else shape
    made = full(shape, fill_value, a.dtype if dtype is None else dtype, order, ctx or a.context)
    return _written(made, out)


def _like(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    def like(
        a: Any,
        dtype: DType | None = None,
        order: str = "C",
        ctx: Context | None = None,
        out: Any = None,
        shape: Shape | None = None,
    ) -> Any:
        row_major(order, f"np.{name}")
        a = operand(a)
        if is_symbol(a):
            return invoke(lookup(f"_npi_{name}"), (a,), {"dtype": dtype})
        shape = a.shape if shape is None else shape
        made = make(shape, a._spec.dtype if dtype is None else dtype, ctx=ctx or a.context)
        return _written(made, out)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"np.{make.__name__} of a's shape, dtype and device where they are not given."
    return like


zeros_like, ones_like = _like("zeros_like", zeros), _like("ones_like", ones)


def empty_like(
    prototype: Any,
    dtype: DType | None = None,
    order: str = "C",
    subok: bool = False,
    shape: Shape | None = None,
) -> Any:
    """Unwritten memory of prototype's shape and dtype where they are not given."""
    a = operand(prototype)
    if is_symbol(a):
        return zeros_like(a, dtype)
    shape = a.shape if shape is None else shape
    return empty(shape, a._spec.dtype if dtype is None else dtype, order, a.context)


def _written(made: Any, out: Any) -> Any:
    if out is None:
        return made
    copy_into(made, out)
    return out


# ---- ranges --------------------------------------------------------------------------------------


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: DType | None = None,
    ctx: Context | None = None,
) -> ndarray:
    """start, start + step, ... below stop; from 0 to start without stop."""
    stop = None if stop is None else float(stop)
    name = dtype_name(dtype)
    attrs = {"start": float(start), "stop": stop, "step": float(step), "dtype": name}
    return _made("_arange", ctx, **attrs)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DType | None = None,
    axis: int = 0,
    ctx: Context | None = None,
) -> Any:
    """num values from start to stop, evenly spaced, along a new axis where they are arrays.
    retstep: (values, their distance)."""
    if num < 0:
        raise InvalidValue(f"np.linspace: num must not be negative, got {num}")
    name = dtype_name(dtype)
    steps = num - 1 if endpoint else num
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)):
        attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": name}
        values = _made("_linspace", ctx, **attrs)
        return (values, (stop - start) / steps if steps else math.nan) if retstep else values
    start, stop = operand(start), operand(stop)
    step = (stop - start) / max(steps, 1)
    at: Any = arange(num, dtype=step._spec.dtype, ctx=step.context)
    at = at.reshape((num,) + (1,) * step.ndim)
    made: Any = (start + at * step).astype(name if dtype is not None else step._spec.dtype)
    made = invoke(lookup("_np_moveaxis"), (made,), {"source": 0, "destination": axis})
    return (made, step) if retstep else made


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: DType | None = None,
    axis: int = 0,
    ctx: Context | None = None,
) -> Any:
    """base to the powers that linspace gives."""
    if isinstance(start, (int, float)) and isinstance(stop, (int, float)):
        return _made(
            "_npi_logspace",
            ctx,
            start=start,
            stop=stop,
            num=num,
            endpoint=endpoint,
            base=base,
            dtype=dtype_name(dtype),
        )
    powers = linspace(start, stop, num, endpoint, axis=axis, ctx=ctx)
    made = base**powers
    return made if dtype is None else made.astype(dtype)


def geomspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    dtype: DType | None = None,
    axis: int = 0,
    ctx: Context | None = None,
) -> ndarray:
    """num values from start to stop, each the same multiple of the one before."""
    return array(onp.geomspace(start, stop, num, endpoint, axis=axis), dtype or "float32", ctx)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DType | None = "float32",
    ctx: Context | None = None,
) -> ndarray:
    """Ones on the k-th diagonal of (N, M), zeros elsewhere; M: default N."""
    return _made("_npi_eye", ctx, N=N, M=M, k=k, dtype=dtype_name(dtype))


def identity(n: int, dtype: DType | None = None, ctx: Context | None = None) -> ndarray:
    """The unit matrix (n, n)."""
    return eye(n, dtype=dtype, ctx=ctx)


def tri(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DType | None = "float32",
    ctx: Context | None = None,
) -> ndarray:
    """Ones on and below the k-th diagonal of (N, M), zeros above."""
    return _made("_npi_tri", ctx, N=N, M=M, k=k, dtype=dtype_name(dtype))


def indices(
    dimensions: Sequence[int], dtype: DType | None = "int32", ctx: Context | None = None
) -> ndarray:
    """The index of each element of a grid along each axis: (axes, *dimensions)."""
    return _made("_npi_indices", ctx, dimensions=tuple(dimensions), dtype=dtype_name(dtype))


def _window(name: str) -> Callable[..., ndarray]:
    def window(M: int, dtype: DType | None = "float32", ctx: Context | None = None) -> ndarray:
        return _made(f"_npi_{name}", ctx, M=int(M), dtype=dtype_name(dtype))

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"The {name} window of M points."
    return window


hanning, hamming, blackman = _window("hanning"), _window("hamming"), _window("blackman")


def meshgrid(*xi: Any, **kwargs: Any) -> list:
    """A grid of vectors: for each one an array whose elements vary along its axis alone.

    indexing: "xy" (the first two axes exchanged) or "ij". sparse: leaves the other axes of size 1.
    copy: False may share memory.
    """
    indexing, sparse = kwargs.pop("indexing", "xy"), kwargs.pop("sparse", False)
    kwargs.pop("copy", True)
    if kwargs or indexing not in ("xy", "ij"):
        raise InvalidValue(f"np.meshgrid: indexing must be 'xy' or 'ij', got {indexing!r} {kwargs}")
    xs = [operand(x).reshape(-1) for x in xi]
    n = len(xs)
    at = list(range(n))
    if indexing == "xy" and n > 1:
        at[:2] = 1, 0
    shape = [1] * n
    for x, i in zip(xs, at):
        shape[i] = x.size
    made = [x.reshape([x.size if j == i else 1 for j in range(n)]) for x, i in zip(xs, at)]
    return made if sparse else [broadcast_to(x, tuple(shape)) for x in made]


# ---- from elsewhere ------------------------------------------------------------------------------


def asarray(
    a: Any,
    dtype: DType | None = None,
    order: str | None = None,
    copy: bool | None = None,
    ctx: Context | None = None,
) -> ndarray:
    """a itself if it is an array of that dtype and device, else np.array(a)."""
    row_major(order or "C", "np.asarray")
    return array(a, dtype, ctx, copy=copy)


def ascontiguousarray(a: Any, dtype: DType | None = None) -> ndarray:
    """As asarray, of one axis at least: every array is contiguous."""
    found: Any = asarray(a, dtype)
    return found if found.ndim else found.reshape(1)


asanyarray = asarray


def fromfunction(function: Callable[..., Any], shape: Sequence[int], **kwargs: Any) -> Any:
    """function(i, j, ...) of the index arrays of a grid. dtype: of these, default float32."""
    dtype = kwargs.pop("dtype", "float32")
    return function(*indices(shape, dtype), **kwargs)


def _reader(name: str) -> Callable[..., ndarray]:
    official = getattr(onp, name)

    def read(*args: Any, **kwargs: Any) -> ndarray:
        ctx = kwargs.pop("ctx", None)
        return array(official(*args, **kwargs), ctx=ctx or current_context())

    read.__name__ = read.__qualname__ = name
    read.__doc__ = f"NumPy's {name}, whose result becomes an array of mx.np; dtypes are NumPy's."
    return read


genfromtxt, loadtxt, fromfile = _reader("genfromtxt"), _reader("loadtxt"), _reader("fromfile")
fromstring, frombuffer, fromiter = (_reader(n) for n in ("fromstring", "frombuffer", "fromiter"))


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Writes an array as a .npy file of NumPy. npx.save writes several, in MXNet's format."""
    onp.save(file, onp.asarray(arr), allow_pickle=allow_pickle)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """The array of a .npy file, or a dict of those of a .npz file."""
    found = onp.load(file, *args, **kwargs)
    if not isinstance(found, onp.ndarray):
        return {name: array(found[name]) for name in found.files}
    return array(found)


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Writes arrays as a .npz file of NumPy."""
    named: Any = {k: onp.asarray(v) for k, v in kwds.items()}
    onp.savez(file, *map(onp.asarray, args), **named)


class _Grid:
    """np.mgrid and np.ogrid: np.mgrid[0:3, 0:1:5j], of float32."""

    def __init__(self, official: Any):
        self._official = official

    def __getitem__(self, key: Any) -> Any:
        found = self._official[key]
        return (
            [array(x, "float32") for x in found]
            if isinstance(found, (list, tuple))
            else array(found, "float32")
        )


mgrid, ogrid = _Grid(onp.mgrid), _Grid(onp.ogrid)

__all__ = [
    *("arange", "asanyarray", "asarray", "ascontiguousarray", "blackman", "empty", "empty_like"),
    *("eye", "frombuffer", "fromfile", "fromfunction", "fromiter", "fromstring", "full"),
    *("full_like", "genfromtxt", "geomspace", "hamming", "hanning", "identity", "indices"),
    *(
        "linspace",
        "load",
        "loadtxt",
        "logspace",
        "meshgrid",
        "mgrid",
        "ogrid",
        "ones",
        "ones_like",
        "save",
    ),
    *("savez", "tri"),
    *("zeros", "zeros_like"),
]
