"""Functions of mx.np that choose, replace or leave out elements by index or condition. Conditions
that decide a shape, and lists of indices, are read on the host."""

from __future__ import annotations

from typing import Any

import numpy as onp

from ...engine.error import IndexOutOfRange, InvalidValue, ShapeError
from ...kernels.ops.index import places_now
from ..indexing import EXACT_FLOAT, FEW
from ..ndarray import NDArray, from_memory
from .array import array, fresh, is_symbol, ndarray, operand
from .operators import is_whole
from .shapes import call


def take(
    a: Any, indices: Any, axis: int | None = None, mode: str = "raise", out: Any = None
) -> Any:
    """Elements of a (flat without axis), or slices along an axis. Indices outside raise, wrap
    around or are clipped to the nearest."""
    return call("_npi_take", a, indices_of(indices), out=out, axis=axis, mode=mode)


def indices_of(indices: Any) -> Any:
    """Indices as an array: lists of whole numbers without the detour over float32."""
    if isinstance(indices, (int, list, tuple, onp.integer)) and not isinstance(indices, bool):
        indices = onp.asarray(
            [_on_host(i) for i in indices] if isinstance(indices, (list, tuple)) else indices
        )
        indices = indices.astype(onp.int64)
    return indices


def _on_host(x: Any) -> Any:
    return x.asnumpy() if isinstance(x, NDArray) else x


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """arr at indices along an axis (flat: None); the other axes run with the indices'."""
    return call("_npi_take_along_axis", arr, indices_of(indices), axis=axis)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Writes values at indices along an axis of arr (None: of its flat memory)."""
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    axis %= arr.ndim
    places = onp.asarray(_on_host(indices)).astype(onp.int64)
    key = []
    for i, n in enumerate(arr.shape):
        along = [n if j == i else 1 for j in range(arr.ndim)]
        key.append(places if i == axis else onp.arange(n).reshape(along))
    arr[tuple(key)] = values


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where condition is not 0, else y, either of which may be a number; without both, the places
    of what is not 0, as np.nonzero."""
    if (x is None) != (y is None):
        raise InvalidValue("np.where: needs both x and y, or none of them")
    if x is None:
        return nonzero(condition)
    if _is_number(x) and _is_number(y):
        x = array(x)
    if _is_number(x):
        return call("_npi_where_lscalar", condition, y, scalar=x, is_int=is_whole(x))
    if _is_number(y):
        return call("_npi_where_rscalar", condition, x, scalar=y, is_int=is_whole(y))
    return call("_npi_where", condition, x, y)


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, float)) or isinstance(x, int) and abs(x) <= EXACT_FLOAT


def nonzero(a: Any) -> tuple:
    """The indices of what is not 0: one vector for each axis."""
    if is_symbol(a):
        argwhere(a)  # which says that its shape depends on values
    a = operand(a)
    if not a.ndim:
        raise ShapeError("np.nonzero", "a must have an axis, got ()", fix="np.atleast_1d(a)")
    vector = a.ndim == 1
    if a._spec.dtype == "bool" and a.context.on_host and isinstance(a, ndarray):
        values = a._values()  # NumPy counts bools faster than the engine answers
        if a.size < FEW:
            return tuple([fresh(from_memory(i, a.context, "int64")) for i in onp.nonzero(values)])
        found = call("_places", a, count=int(onp.count_nonzero(values)), vector=vector)
    else:
        found = places_now(call, a, vector)
    return (found,) if vector else tuple(found)


def argwhere(a: Any) -> Any:
    """The indices of what is not 0: one row for each element."""
    return call("_npx_nonzero", a)


def flatnonzero(a: Any) -> Any:
    """The places of what is not 0 in the flat array."""
    return nonzero(operand(a).reshape(-1))[0]


def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """The slices of a along an axis where a condition holds; of the flat array without axis."""
    places = onp.flatnonzero(onp.asarray(_on_host(condition)))
    return call("_npi_take", a, places, out=out, axis=axis)


def extract(condition: Any, arr: Any) -> Any:
    """The elements of arr where a condition of its size holds."""
    return compress(onp.asarray(_on_host(condition)).reshape(-1), arr)


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """For each element of a the one of the array in choices that has this number; all broadcast."""
    a, arrays = operand(a), [operand(c) for c in choices]
    if mode == "raise" and not is_symbol(a) and a.size:
        values = a._values()
        if values.min() < 0 or values.max() >= len(arrays):
            raise InvalidValue(
                f"np.choose: a must be in [0, {len(arrays)})\n  fix: mode='clip' or 'wrap'"
            )
    return call("_npi_choose", a, *arrays, out=out, mode=mode)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each element the first choice whose condition holds, else default."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise InvalidValue("np.select: needs a choice for each of at least one condition")
    found = default
    for condition, choice in zip(reversed(list(condlist)), reversed(list(choicelist))):
        found = where(condition, choice, found)
    return found


# ---- insert and delete ---------------------------------------------------------------------------


def _place(name: str, arr: Any, obj: Any, axis: int | None) -> tuple[dict[str, Any], list]:
    """Where np.delete and np.insert change arr: attributes and inputs of their records. Raises
    IndexOutOfRange for indices that are known here."""
    if isinstance(obj, slice):
        return {"start": obj.start, "stop": obj.stop, "step": obj.step or 1, "axis": axis}, []
    if is_symbol(obj):
        return {"axis": axis}, [obj]
    host = onp.asarray([] if isinstance(obj, list) and not obj else _on_host(obj))
    if host.dtype == bool and name == "insert":
        host = onp.flatnonzero(host)
    host = host if host.dtype == bool else host.astype(onp.int64)
    if host.ndim == 0 and host.dtype != bool:
        return {"int_ind": int(host), "axis": axis}, []
    if not is_symbol(arr) and host.dtype != bool and (axis is None or -arr.ndim <= axis < arr.ndim):
        n = arr.size if axis is None else arr.shape[axis]
        wrong = host[(host < -n) | (host > n - (name == "delete"))]
        if wrong.size:
            raise IndexOutOfRange(
                f"np.{name}: indices must be in [{-n}, {n}{')' if name == 'delete' else ']'}, "
                f"got {wrong[0]}"
            )
    return {"axis": axis}, [array(host)]


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """arr without the slices at an index, a slice, indices, or where a mask holds."""
    arr = operand(arr)
    attrs, where_ = _place("delete", arr, obj, axis)
    return call("_npi_delete", arr, *where_, **attrs)


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """arr with values, which broadcast and take its dtype, in front of an index, a slice, or
    indices."""
    arr = operand(arr)
    attrs, where_ = _place("insert", arr, obj, axis)
    if _is_number(values):
        attrs["val"], given = float(values), []
    else:
        given = [operand(values)]
    kind = "scalar" if "int_ind" in attrs else "slice" if "step" in attrs else "tensor"
    return call(f"_npi_insert_{kind}", arr, *given, *where_, **attrs)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """An array without the zeros at its front (f) and back (b), along an axis or all."""
    filt = operand(filt)
    axes = range(filt.ndim) if axis is None else (axis,) if hasattr(axis, "__index__") else axis
    key = [slice(None)] * filt.ndim
    found = onp.nonzero(onp.atleast_1d(filt._values()))
    for i in axes:
        places = found[i]
        first = int(places.min()) if places.size and "f" in trim.lower() else 0
        last = int(places.max()) + 1 if places.size and "b" in trim.lower() else filt.shape[i]
        key[i] = slice(first, last if places.size else 0)
    return filt[tuple(key)] if filt.ndim else filt


# ---- numbers of places ---------------------------------------------------------------------------


def unravel_index(indices: Any, shape: Any, order: Any = "C") -> tuple:
    """The index along each axis of places in the flat array."""
    places: Any = onp.asarray(_on_host(indices)).astype(onp.int64)
    found: Any = onp.unravel_index(places, shape, order=order)
    return tuple([array(onp.asarray(i, onp.int64)) for i in found])


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    """Places in the flat array of indices along each axis."""
    given: Any = tuple([onp.asarray(_on_host(i)).astype(onp.int64) for i in multi_index])
    return array(onp.asarray(onp.ravel_multi_index(given, dims, mode=mode, order=order), onp.int64))


def _places(found: Any) -> tuple:
    return tuple([array(onp.asarray(i, onp.int64)) for i in found])


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The indices of the elements on and below the k-th diagonal of (n, m)."""
    return _places(onp.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The indices of the elements on and above the k-th diagonal of (n, m)."""
    return _places(onp.triu_indices(n, k, m))


def _matrix(arr: Any) -> tuple[int, int]:
    if len(arr.shape) != 2:
        raise ShapeError("np.tril_indices_from", f"arr must have two axes, got {tuple(arr.shape)}")
    return arr.shape


def tril_indices_from(arr: Any, k: int = 0) -> tuple:
    """np.tril_indices of a matrix."""
    n, m = _matrix(operand(arr))
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple:
    """np.triu_indices of a matrix."""
    n, m = _matrix(operand(arr))
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2) -> tuple:
    """The indices of the diagonal of an array of ndim axes of size n."""
    return _places(onp.diag_indices(n, ndim))


def diag_indices_from(arr: Any) -> tuple:
    """The indices of a square array's diagonal."""
    return tuple(call("_npi_diag_indices_from", arr))


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Writes a number, or numbers, into the diagonal of an array."""
    if a.ndim == 2:
        step = a.shape[1] + 1
        stop = None if wrap else a.shape[1] * a.shape[1]
        a.reshape(-1)[:stop:step] = val
    else:
        a[diag_indices_from(a)] = val


def ix_(*args: Any) -> tuple:
    """Vectors as arrays of indices that broadcast to a grid."""
    xs = [operand(a) for a in args]
    for x in xs:
        if x.ndim != 1:
            raise ShapeError("np.ix_", f"each argument must be a vector, got shape {x.shape}")
    xs = [nonzero(x)[0] if x._spec.dtype == "bool" else x for x in xs]
    n = len(xs)
    return tuple([x.reshape((1,) * i + (-1,) + (1,) * (n - i - 1)) for i, x in enumerate(xs)])


# ---- padding -------------------------------------------------------------------------------------


def pad(x: Any, pad_width: Any = None, mode: Any = "constant", **kwargs: Any) -> Any:
    """x with a border of a width (before, after) for each axis. mode: as NumPy's; those with
    stat_length, reflect_type='odd', linear_ramp, median and functions run in NumPy."""
    from .fallback import fallback

    if isinstance(pad_width, dict):
        given = {k % x.ndim: v for k, v in pad_width.items()}
        pad_width = [given.get(i, 0) for i in range(x.ndim)]
        pad_width = [(p, p) if hasattr(p, "__index__") else tuple(p) for p in pad_width]
    width = _nested(pad_width)
    value = (
        kwargs.pop("constant_values", kwargs.pop("constant_value", 0)) if mode == "constant" else 0
    )
    if kwargs.get("reflect_type") == "even":
        kwargs.pop("reflect_type")
    if callable(mode) or kwargs or mode in ("linear_ramp", "median"):
        return fallback("pad")(x, pad_width, mode, **kwargs)
    if hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0:
        return call("_npi_pad", x, pad_width=width, mode=mode, constant_value=float(value))
    return _pad_sides(operand(x), width, value)


def _nested(width: Any) -> Any:
    if isinstance(width, (NDArray, onp.ndarray)):
        width = onp.asarray(width).tolist()
    if isinstance(width, (list, tuple)):
        return tuple([_nested(w) for w in width])
    return width


def _pad_sides(x: Any, width: Any, value: Any) -> Any:
    """A border with a constant of its own on each side."""
    sizes = onp.broadcast_to(onp.asarray(width), (x.ndim, 2))
    for axis, pair in enumerate(onp.broadcast_to(onp.asarray(value), (x.ndim, 2))):
        for side, constant in enumerate(pair):
            one = [(0, 0)] * x.ndim
            one[axis] = (int(sizes[axis, 0]), 0) if side == 0 else (0, int(sizes[axis, 1]))
            x = call("_npi_pad", x, pad_width=tuple(one), constant_value=float(constant))
    return x


__all__ = [
    *("argwhere", "choose", "compress", "delete", "diag_indices", "diag_indices_from", "extract"),
    *("fill_diagonal", "flatnonzero", "insert", "ix_", "nonzero", "pad", "put_along_axis"),
    *("ravel_multi_index", "select", "take", "take_along_axis", "tril_indices"),
    *("tril_indices_from", "trim_zeros", "triu_indices", "triu_indices_from", "unravel_index"),
    "where",
]
