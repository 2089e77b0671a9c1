"""Functions of mx.np on shapes that take sequences, other names than their operators have, or give
no arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as onp

from ...engine import lib
from ...engine.error import InvalidType, InvalidValue, ShapeError
from ...kernels.record import lookup
from ..functions import operator_function
from ..launch import copy_into
from ..ndarray import NDArray
from .array import is_symbol, ndarray, operand


@functools.cache
def _function(name: str) -> Callable[..., Any]:
    return operator_function(lookup(name), name, operand)


def call(name: str, *inputs: Any, out: Any = None, **attrs: Any) -> Any:
    """An operator on arrays, Symbols, or what becomes an array; plans of calls are kept."""
    return _function(name)(*inputs, out=out, **attrs)


def several_arrays(seq: Any, what: str) -> list:
    """The members of a sequence, or of an array along axis 0. Raises TypeError."""
    if seq.__class__ not in (list, tuple) and (not hasattr(seq, "__iter__") or is_symbol(seq)):
        raise InvalidType(f"{what}: needs a sequence of arrays, got {type(seq).__name__}")
    return [x if x.__class__ is ndarray else operand(x) for x in seq]


_CONCATENATE, _STACK = _function("_npi_concatenate"), _function("_npi_stack")

# ---- joins ---------------------------------------------------------------------------------------


def _to(made: Any, dtype: Any, out: Any) -> Any:
    made = made if dtype is None else made.astype(dtype)
    if out is None:
        return made
    if out.shape != made.shape:
        raise ShapeError("out", f"must have the result's shape {made.shape}, got {out.shape}")
    copy_into(made, out)
    return out


def concatenate(seq: Any, axis: int | None = 0, out: Any = None, dtype: Any = None) -> Any:
    """Arrays joined along an axis, in their common dtype; axis None: flat."""
    made = _CONCATENATE(*several_arrays(seq, "np.concatenate"), axis=axis)
    return made if dtype is None and out is None else _to(made, dtype, out)


concat = concatenate


def stack(arrays: Any, axis: int = 0, out: Any = None, dtype: Any = None) -> Any:
    """Arrays of one shape joined along a new axis, in their common dtype."""
    made = _STACK(*several_arrays(arrays, "np.stack"), axis=axis)
    return made if dtype is None and out is None else _to(made, dtype, out)


def vstack(arrays: Any, out: Any = None, dtype: Any = None) -> Any:
    """Arrays joined along axis 0; vectors are rows."""
    return _to(call("_npi_vstack", *several_arrays(arrays, "np.vstack")), dtype, out)


row_stack = vstack


def hstack(arrays: Any, dtype: Any = None) -> Any:
    """Arrays joined along axis 1; vectors along their only one."""
    return _to(call("_npi_hstack", *several_arrays(arrays, "np.hstack")), dtype, None)


def dstack(arrays: Any) -> Any:
    """Arrays joined along axis 2."""
    return call("_npi_dstack", *several_arrays(arrays, "np.dstack"))


def column_stack(tup: Any) -> Any:
    """Arrays joined along axis 1; vectors are columns."""
    return call("_npi_column_stack", *several_arrays(tup, "np.column_stack"))


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """values behind arr, along an axis; without one both are flat."""
    return concatenate([arr, values], axis)


# ---- splits --------------------------------------------------------------------------------------


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Parts along an axis that begin at indices, or so many, the first longer by 1 where they
    cannot be equal."""
    ary = operand(ary)
    if hasattr(indices_or_sections, "__index__") and getattr(indices_or_sections, "ndim", 0) == 0:
        sections = int(indices_or_sections)
        if sections < 1:
            raise InvalidValue(f"np.split: needs at least one part, got {sections}")
        made = call("_split_v2", ary, indices=(), axis=axis, sections=sections)
        return (
            made if isinstance(made, list) else [made] if isinstance(made, NDArray) else list(made)
        )
    indices = [int(i) for i in indices_or_sections]
    if is_symbol(ary):
        return list(call("_split_v2", ary, indices=(0, *indices), axis=axis))
    n = ary.shape[axis]
    ends = [slice(i, j).indices(n)[:2] for i, j in zip([None, *indices], [*indices, None])]
    key = (slice(None),) * (axis % ary.ndim)
    return [ary[(*key, slice(a, max(a, b)))] for a, b in ends]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Equal parts along an axis, or parts that begin at indices. Raises ValueError where they
    cannot be equal."""
    ary = operand(ary)
    sections = indices_or_sections
    if hasattr(sections, "__index__") and not is_symbol(ary) and getattr(sections, "ndim", 0) == 0:
        if int(sections) < 1 or ary.shape[axis] % int(sections):
            raise InvalidValue(
                f"np.split: axis {axis} must be divisible into {sections} equal parts, got ary"
                f" {ary.shape}\n  fix: np.array_split"
            )
    return array_split(ary, indices_or_sections, axis)


def _split_along(name: str, least: int, axis: int) -> Callable[[Any, Any], list]:
    def divide(ary: Any, indices_or_sections: Any) -> list:
        ary = operand(ary)
        if not is_symbol(ary) and ary.ndim < least:
            raise InvalidValue(f"np.{name}: ary must have {least} axes at least, got {ary.shape}")
        vector = name == "hsplit" and not is_symbol(ary) and ary.ndim == 1
        return split(ary, indices_or_sections, 0 if vector else axis)

    divide.__name__ = divide.__qualname__ = name
    divide.__doc__ = f"np.split along axis {axis}."
    return divide


hsplit, vsplit = _split_along("hsplit", 1, 1), _split_along("vsplit", 2, 0)
dsplit = _split_along("dsplit", 3, 2)

# ---- shapes --------------------------------------------------------------------------------------


def reshape(
    a: Any, newshape: Any = None, order: str = "C", out: Any = None, *, shape: Any = None
) -> Any:
    """a in another shape of as many elements, on the same memory where order is C; one size may be
    -1."""
    target = newshape if shape is None else shape
    if order == "C" and out is None and isinstance(a, ndarray):
        return a.reshape(target)
    return call("_np_reshape", a, out=out, newshape=target, order=order)


def ravel(x: Any, order: str = "C") -> Any:
    """x as a vector, on the same memory where order is C."""
    return (
        call("_np_reshape", x, newshape=(-1,), order=order)
        if is_symbol(x)
        else operand(x).ravel(order)
    )


def broadcast_arrays(*args: Any) -> list:
    """Arrays under the shape to which all broadcast."""
    arrays = [operand(x) for x in args]
    shape = broadcast_shapes(*[x.shape for x in arrays])
    return [call("_npi_broadcast_to", x, shape=shape) for x in arrays]


def broadcast_shapes(*args: Any) -> tuple[int, ...]:
    """The shape to which shapes broadcast. Raises ValueError."""
    try:
        return onp.broadcast_shapes(*args)
    except ValueError:
        raise ShapeError("np.broadcast", f"shapes must be equal or broadcast, got {args}") from None


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    return call("_npi_swapaxes", a, dim1=axis1, dim2=axis2)


def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


def permute_dims(a: Any, axes: Any = None) -> Any:
    """Axes in another order; reversed without axes."""
    return call("_np_transpose", a, axes=axes)


def fliplr(m: Any) -> Any:
    """m with axis 1 in reverse order."""
    if not is_symbol(m) and operand(m).ndim < 2:
        raise InvalidValue("np.fliplr: m must have two axes at least")
    return call("_npi_flip", m, axis=1)


def flipud(m: Any) -> Any:
    """m with axis 0 in reverse order."""
    if not is_symbol(m) and operand(m).ndim < 1:
        raise InvalidValue("np.flipud: m must have an axis")
    return call("_npi_flip", m, axis=0)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated, along an axis or of the flat array; repeats: a number, or one for each
    element."""
    if isinstance(repeats, int) or hasattr(repeats, "__index__") and repeats.ndim == 0:
        return call("_np_repeat", a, repeats=int(repeats), axis=axis)
    a = operand(a)
    if axis is None:
        a, axis = a.reshape(-1), 0
    counts = onp.broadcast_to(onp.asarray(repeats), (a.shape[axis],))
    return call("_npi_take", a, onp.repeat(onp.arange(a.shape[axis]), counts), axis=axis)


def resize(a: Any, new_shape: Any) -> Any:
    """a's elements, repeated as needed, in a new shape."""
    flat = operand(a).reshape(-1)
    shape = (new_shape,) if hasattr(new_shape, "__index__") else tuple(new_shape)
    if any(n < 0 for n in shape):
        raise InvalidValue(f"np.resize: new_shape must not be negative, got {shape}")
    size = int(onp.prod(shape))
    if not flat.size:
        return call("_zeros", shape=shape, dtype=flat._spec.dtype).as_np_ndarray()
    return call("_npi_take", flat, onp.arange(size) % flat.size).reshape(shape)


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array or nested sequences."""
    return tuple(a.shape) if hasattr(a, "shape") else onp.shape(a)


def ndim(a: Any) -> int:
    """The number of axes."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, all or along an axis."""
    found = shape(a)
    return int(onp.prod(found)) if axis is None else found[axis]


def copy(a: Any, out: Any = None) -> Any:
    """A copy."""
    return call("_copy", a, out=out)


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Writes src, which broadcasts, into dst, where a condition holds."""
    dst[... if where is True else where] = (
        src if where is True else broadcast_arrays(src, dst)[0][where]
    )


def isscalar(element: Any) -> bool:
    """Is it a number, and no array?"""
    return onp.isscalar(element)


def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    """x.astype(dtype, copy=copy)."""
    return operand(x).astype(dtype, copy=copy)


# ---- memory --------------------------------------------------------------------------------------


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Has any element of one the place in memory of one of the other?"""
    if not (isinstance(a, NDArray) and isinstance(b, NDArray)) or not a.size or not b.size:
        return False
    if not lib.pl_array_shares(a._handle, b._handle):
        return False
    first, second = (int(_address(x)) for x in (a, b))
    return first < second + b._spec.nbytes and second < first + a._spec.nbytes


def _address(x: NDArray) -> Any:
    from ...engine import ffi

    return ffi.cast("uintptr_t", lib.pl_array_data(x._handle))


may_share_memory = shares_memory


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, **kwarg: Any
) -> None:
    """NumPy's: arrays of mx.np print as its do."""
    onp.set_printoptions(precision=precision, threshold=threshold, **kwarg)


__all__ = [
    *("append", "array_split", "astype", "broadcast_arrays", "broadcast_shapes", "column_stack"),
    *("concat", "concatenate", "copy", "copyto", "dsplit", "dstack", "fliplr", "flipud", "hsplit"),
    *("hstack", "isscalar", "matrix_transpose", "may_share_memory", "ndim", "permute_dims"),
    *("ravel", "repeat", "reshape", "resize", "row_stack", "set_printoptions", "shape"),
    *("shares_memory", "size", "split", "stack", "swapaxes", "vsplit", "vstack"),
]
