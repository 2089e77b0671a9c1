"""Creation functions of nd: array, zeros, ones, full, empty, arange, linspace, eye and others."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..engine import Context, current_context
from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..kernels.record import dtype_name, lookup, several
from ..kernels.spec import DType, spec
from .invoke import SPARSE, invoke
from .launch import Plans, run
from .ndarray import NDArray, empty_like_spec, from_memory

__all__ = [
    "arange",
    "array",
    "concatenate",
    "empty",
    "eye",
    "full",
    "histogram",
    "linspace",
    "moveaxis",
    "onehot_encode",
    "ones",
    "split_v2",
    "waitall",
    "zeros",
]


def array(source_array: Any, ctx: Context | None = None, dtype: DType | None = None) -> NDArray:
    """An NDArray with a copy of the values of anything NumPy understands; strings and objects are
    converted by Python's float(), None to nan.

    dtype: default float32; the source's own when it is an NDArray.
    """
    sparse = isinstance(source_array, NDArray) and source_array._spec.stype != "default"
    if sparse or type(source_array).__module__.startswith("scipy.sparse"):
        return SPARSE["array"](source_array, ctx, dtype)
    if isinstance(source_array, NDArray):
        name = dtype_name(dtype) if dtype is not None else source_array._spec.dtype
        return from_memory(source_array.asnumpy(), ctx or source_array.context, name)
    try:
        if source_array is None:
            raise ValueError("got None")
        values = np.asarray(source_array)
        if values.dtype == object and not isinstance(source_array, np.ndarray) and values.ndim:
            values = np.asarray(
                [v.asnumpy() if isinstance(v, NDArray) else v for v in source_array]
            )
        if values.dtype == object:
            values = np.asarray(values.tolist())
        if values.dtype.kind in "SUOMm":
            values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidType(
            f"array: the source must be an array or a regular nesting of sequences: {error}"
        ) from None
    if ctx is not None:
        _device(ctx)
    if values.dtype.kind not in "biufV":
        raise InvalidType(f"array: the source must hold numbers, got NumPy dtype {values.dtype}")
    return from_memory(values, ctx, dtype_name(dtype) if dtype is not None else "float32")


def _shape(shape) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(n) for n in several(shape))
    except TypeError:
        raise InvalidType(
            f"creation: shape must be an int or a tuple of ints, got {shape!r}"
        ) from None
    if any(n < 0 for n in sizes):
        raise InvalidValue(f"creation: shape must not be negative, got {sizes}")
    return sizes


def _device(ctx) -> Context:
    """The device to create on. Raises InvalidType, DeviceError."""
    if ctx is None:
        return current_context()
    if not isinstance(ctx, Context):
        raise InvalidType(f"creation: ctx must be a Context, got {ctx!r}\n  fix: ctx=mx.cpu()")
    ctx.check()
    return ctx


def empty(
    shape: int | Sequence[int],
    ctx: Context | None = None,
    dtype: DType | None = None,
    stype: str | None = None,
) -> NDArray:
    """Uninitialised memory; for a sparse storage type, an empty array."""
    if stype not in (None, "default"):
        return SPARSE["empty"](stype, shape, ctx, dtype)
    return empty_like_spec(spec(_shape(shape), dtype_name(dtype or "float32"), _device(ctx)))


_plans = Plans()  # by operator, shape, dtype and device


def _create(name: str, shape, ctx, dtype, out, value=None) -> NDArray:
    """A new array, or `out`, by an operator; value: the number that fills it, if it takes one."""
    scalars = () if value is None else (value,)
    try:
        key = (name, shape, dtype, current_context() if ctx is None else ctx)
        plan = _plans[key] if out is None else None
    except TypeError:  # a list
        key, plan = None, None
    if plan is not None:
        return run(plan, (), scalars)
    attrs = {"shape": _shape(shape), "dtype": dtype_name(dtype or "float32")}
    if value is not None:
        attrs["value"] = value
    if out is not None or key is None or type(shape) is not tuple:
        return invoke(lookup(name), (), attrs, out, ctx)
    plans = _plans if all([type(n) is int for n in shape]) else None
    return invoke(lookup(name), (), attrs, None, _device(ctx), plans, key)


def _only_names(op: str, keywords: dict) -> None:
    """Raises OperatorError for keywords that `op` does not have. name, attr and __any__ describe
    Symbols: here they do nothing, so that cells make states by nd.zeros and sym.zeros."""
    unknown = {k: v for k, v in keywords.items() if k not in ("name", "attr") and k[:2] != "__"}
    if unknown:
        lookup(op).parse(unknown)


def zeros(
    shape: int | Sequence[int],
    ctx: Context | None = None,
    dtype: DType | None = None,
    stype: str | None = None,
    out: NDArray | None = None,
    **kwargs: str,
) -> NDArray:
    """Zeros of a shape. stype: storage type, default dense."""
    if kwargs:
        _only_names("_zeros", kwargs)
    if stype not in (None, "default"):
        return SPARSE["zeros"](stype, shape, ctx, dtype)
    return _create("_zeros", shape, ctx, dtype, out)


def ones(
    shape: int | Sequence[int],
    ctx: Context | None = None,
    dtype: DType | None = None,
    out: NDArray | None = None,
    **kwargs: str,
) -> NDArray:
    """Ones of a shape."""
    if kwargs:
        _only_names("_ones", kwargs)
    return _create("_ones", shape, ctx, dtype, out)


def full(
    shape: int | Sequence[int],
    val: float,
    ctx: Context | None = None,
    dtype: DType | None = "float32",
    out: NDArray | None = None,
) -> NDArray:
    """An array filled with `val`."""
    try:
        val = float(val)
    except (TypeError, ValueError):
        raise InvalidType(f"full: val must be a number, got {val!r}") from None
    return _create("_full", shape, ctx, dtype, out, val)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Context | None = None,
    dtype: DType | None = "float32",
) -> NDArray:
    """start, start + step, ... below stop (start counts from 0 when stop is None), each `repeat`
    times."""
    if infer_range is not None:
        raise MXNetError("arange: infer_range is only for symbols")
    return invoke(
        lookup("_arange"),
        (),
        {
            "start": start,
            "stop": stop,
            "step": step,
            "repeat": repeat,
            "dtype": dtype_name(dtype or "float32"),
        },
        None,
        ctx,
    )


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: DType | None = "float32",
) -> NDArray:
    """`num` evenly spaced numbers from start to stop."""
    return invoke(
        lookup("_linspace"),
        (),
        {
            "start": start,
            "stop": stop,
            "num": num,
            "endpoint": endpoint,
            "dtype": dtype_name(dtype or "float32"),
        },
        None,
        ctx,
    )


def eye(
    N: int,
    M: int = 0,
    k: int = 0,
    ctx: Context | None = None,
    dtype: DType | None = None,
    **kwargs: str,
) -> NDArray:
    """Ones on diagonal k of an (N, M) array (M = 0: N), zeros elsewhere."""
    _only_names("_eye", kwargs)
    return invoke(
        lookup("_eye"),
        (),
        {"N": N, "M": M, "k": k, "dtype": dtype_name(dtype or "float32")},
        None,
        ctx,
    )


def concatenate(arrays: Iterable[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Joins arrays along an axis. always_copy=False returns a single array itself."""
    arrays = list(arrays)
    if not arrays:
        raise MXNetError("concatenate: needs at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return invoke(lookup("Concat"), arrays, {"dim": axis})


def histogram(
    a: NDArray, bins: int | NDArray = 10, range: tuple[float, float] | None = None
) -> tuple[NDArray, NDArray]:
    """(counts, edges) of values. bins: a number of equal bins over range (default: of the values),
    or the edges."""
    if isinstance(bins, NDArray):
        return invoke(lookup("_histogram"), (a, bins), {})
    if range is None:
        range = float(a.min().asscalar()), float(a.max().asscalar())
    return invoke(lookup("_histogram"), (a,), {"bin_cnt": bins, "range": tuple(range)})


def moveaxis(
    tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]
) -> NDArray:
    """Moves axes to other positions; the others keep their order. Raises ValueError for axes that
    do not exist."""
    n = tensor.ndim
    resolved = []
    for name, given in (("source", source), ("destination", destination)):
        axes = list(given) if isinstance(given, Sequence) else [given]
        if any(not -n <= a < n for a in axes) or len({a % n for a in axes}) != len(axes):
            raise InvalidValue(
                f"moveaxis: {name} must be different axes in [{-n}, {n}), got {axes}"
            )
        resolved.append([a % n for a in axes])
    if len(resolved[0]) != len(resolved[1]):
        raise InvalidValue(
            f"moveaxis: source and destination must have as many axes, got {source} and"
            f" {destination}"
        )
    order = [a for a in builtins.range(n) if a not in resolved[0]]
    for to, a in sorted(zip(resolved[1], resolved[0])):
        order.insert(to, a)
    return invoke(lookup("transpose"), (tensor,), {"axes": tuple(order)})


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Fills out (N, depth) with rows that are 1 at indices (N,) and 0 elsewhere."""
    attrs = {"depth": out.shape[1], "dtype": out._spec.dtype}
    return invoke(lookup("one_hot"), (indices,), attrs, out)


def split_v2(
    ary: NDArray,
    indices_or_sections: int | Sequence[int],
    axis: int = 0,
    squeeze_axis: bool = False,
) -> Any:
    """Splits an array along an axis into equal parts, or at the given indices. Raises ValueError if
    equal parts are impossible."""
    attrs: dict[str, Any]
    if not isinstance(indices_or_sections, (Sequence, np.ndarray)):
        if indices_or_sections < 1 or ary.shape[axis] % indices_or_sections:
            raise InvalidValue(
                "split_v2: array split does not result in an equal division, got"
                f" {indices_or_sections} parts of {ary.shape[axis]}"
            )
        attrs = {"indices": (), "sections": int(indices_or_sections)}
    else:
        attrs = {"indices": (0, *indices_or_sections)}
    return invoke(
        lookup("_split_v2"), (ary,), {**attrs, "axis": axis, "squeeze_axis": squeeze_axis}
    )


def waitall() -> None:
    """Waits for every operation. Raises the oldest error not yet reported; call
    again for the next one."""
    from ..engine import waitall as wait_for_all

    wait_for_all()
