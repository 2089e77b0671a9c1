"""Index keys: parsing a key into one item per axis and per new axis. What basic keys select is
found in C (part.c)."""

from __future__ import annotations

import warnings
from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np

from ..engine.error import InvalidValue, MXNetError, compose
from .ndarray import NDArray

NEW_AXIS = None


class Span(NamedTuple):
    """A range of one axis: `count` elements from `start` on. An int key is a Span of one element
    whose axis is dropped."""

    start: int
    count: int  # type: ignore[assignment]  # tuples have a method of that name
    step: int
    dropped: bool = False


class OutOfBounds(MXNetError, IndexError):
    """A key outside the array, or with too many indices."""


class InvalidKey(InvalidValue, IndexError):
    """A key of another kind, or a mask that does not fit."""


class ShapeMismatch(MXNetError, ValueError):
    """Index arrays that do not broadcast, or a value that does not fit the indexed part."""


# ---- taking a key apart --------------------------------------------------------------------------


def parse(key: Any, shape: tuple[int, ...]) -> list:
    """A key as items in order: Span, NEW_AXIS, or an array of indices (NumPy int64, or NDArray).

    Raises IndexError for indices outside the shape, InvalidKey for keys of another kind.
    """
    keys = list(key) if type(key) is tuple else [key]
    n_used = sum(k is not None and k is not Ellipsis for k in keys)
    if n_used > len(shape):
        raise OutOfBounds(f"too many indices ({n_used}) for array with {len(shape)} dimensions")
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise OutOfBounds("an index can only have a single Ellipsis ('...')")
    at = dots[0] if dots else len(keys)
    keys[at : at + 1] = [slice(None)] * (len(shape) - n_used)
    items: list = []
    axis = 0
    for k in keys:
        if k is None:
            items.append(NEW_AXIS)
        else:
            items.append(_item(k, axis, shape[axis]))
            axis += 1
    return items


def _item(k, axis: int, n: int):
    if type(k) is slice:
        start, stop, step = k.indices(n)
        count = len(range(start, stop, step))
        return Span(start, count, step) if count else Span(0, 0, 1)
    if isinstance(k, NDArray):
        if k._spec.dtype == "bool":
            raise InvalidKey(
                compose(
                    "indexing: mx.nd supports only integer indices, not a boolean NDArray",
                    fix="nd.contrib.boolean_mask(x, mask), or nd.where",
                )
            )
        return k
    if isinstance(k, (list, tuple, range, np.ndarray)):
        return _checked(_index_array(k), axis, n)
    try:
        i = as_int(k)
    except TypeError:
        raise InvalidKey(
            f"indexing: NDArray does not support a key of type {type(k).__name__}: {k!r}"
        ) from None
    if not -n <= i < n:
        raise OutOfBounds(f"index {i} is out of bounds for axis {axis} with size {n}")
    return Span(i % n, 1, 1, True)


def _index_array(k) -> np.ndarray:
    if not isinstance(k, np.ndarray):
        k = np.asarray([v.asnumpy() if isinstance(v, NDArray) else v for v in k])
    if k.size == 0:
        return k.astype(np.int64)
    if k.dtype.kind not in "biuf":
        raise InvalidKey(f"indexing: an array of indices must hold numbers, got dtype {k.dtype}")
    return k.astype(np.int64)


def _checked(k: np.ndarray, axis: int, n: int):
    if k.size and not (-n <= k.min() and k.max() < n):
        bad = k[(k < -n) | (k >= n)].flat[0]
        raise OutOfBounds(f"index {bad} is out of bounds for axis {axis} with size {n}")
    k = np.where(k < 0, k + n, k)
    return Span(int(k), 1, 1, True) if k.ndim == 0 else k


def is_basic(items: Any) -> bool:
    return all(i is NEW_AXIS or type(i) is Span for i in items)


# ---- NumPy's masks -------------------------------------------------------------------------------


def mask_of(key: Any) -> np.ndarray | None:
    """A boolean key as a NumPy array, None for other keys; waits for the values of an array."""
    if isinstance(key, NDArray):
        return key.asnumpy() if key._spec.dtype == "bool" else None
    if isinstance(key, (list, tuple)):
        try:
            key = np.asarray([k.asnumpy() if isinstance(k, NDArray) else k for k in key])
        except ValueError:  # irregular: for `parse` to refuse
            return None
    if not isinstance(key, (bool, np.bool_, np.ndarray)):
        return None
    key = np.asarray(key)
    return key if key.dtype == bool else None


def without_masks(key: Any, shape: tuple[int, ...]) -> tuple[list, tuple[int, ...]]:
    """A key whose masks are arrays of indices, one for each of their axes, as NumPy reads them; and
    the shape of the array that it indexes: True and False index a new axis of size 1.

    Raises IndexError for a mask of another shape than the axes that it stands for.
    """
    keys = list(key) if key.__class__ is tuple else [key]
    masks = [mask_of(k) for k in keys]
    n_used = sum(
        [
            1 if m is None else m.ndim
            for k, m in zip(keys, masks)
            if k is not None and k is not Ellipsis
        ]
    )
    sizes, found, axis = list(shape), [], 0
    for k, mask in zip(keys, masks):
        if mask is None:
            found.append(k)
            axis += 0 if k is None else len(shape) - n_used if k is Ellipsis else 1
        elif not mask.ndim:
            sizes.insert(axis, 1)
            found.append(np.zeros(int(mask), np.int64))
            axis += 1
        else:
            check_mask(mask.shape, tuple(sizes[axis : axis + mask.ndim]), axis)
            found += mask.nonzero()
            axis += mask.ndim
    return found, tuple(sizes)


def check_mask(mask: tuple[int, ...], sizes: tuple[int, ...], axis: int) -> None:
    if mask != sizes:
        raise OutOfBounds(
            f"boolean index of shape {mask} must have the shape {sizes} of the axes that it"
            f" indexes, from axis {axis} on"
        )


def warn_of_floats(key: Any, shape: tuple[int, ...]) -> None:
    """np.array([True, False]) is float32 and so indexes elements 1 and 0, as in MXNet: says so
    where it is likely that a mask was meant."""
    floats = isinstance(key, NDArray) and key._spec.dtype.startswith("float")
    if floats and shape and key.shape == shape[:1] and shape[0] > 1:
        if np.isin(key.asnumpy(), (0, 1)).all():
            warnings.warn(
                f"indexing: {key!r} holds floats, which are positions and no mask\n  fix:"
                " np.array(..., dtype=bool)",
                stacklevel=4,
            )


def as_python(item: Any) -> Any:
    """An item of a basic key as a Python key."""
    if item is NEW_AXIS or item.dropped:
        return item and item.start
    stop = item.start + item.count * item.step
    return slice(item.start, stop if stop >= 0 else None, item.step)
