"""MXNet's functions on index keys: expansion, dispatch code, and the shape of gather_nd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.error import InvalidIndex, InvalidValue
from .ndarray import NDArray

BASIC, ADVANCED, EMPTY_TUPLE = 0, 1, 2  # results of get_indexing_dispatch_code


def indexing_key_expand_implicit_axes(key: Any, shape: Sequence[int]) -> tuple:
    """A key with `...` and missing axes expanded, and boolean masks as integers.

    >>> indexing_key_expand_implicit_axes(np.s_[0, ...], (3, 4))
    (0, slice(None, None, None))

    Raises IndexError for two `...` or too many indices.
    """
    key = key if isinstance(key, tuple) else (key,)
    items: list = []
    ellipsis = None
    for k in key:
        if isinstance(k, NDArray) and k.dtype == np.bool_:
            k = k.asnumpy()
        if k is Ellipsis:
            if ellipsis is not None:
                raise InvalidIndex("cannot use more than one ellipsis (`...`) for indexing")
            ellipsis = len(items)
        elif isinstance(k, np.ndarray) and k.dtype == np.bool_:
            items += k.nonzero()
        else:
            items.append(k)
    missing = len(shape) - sum(k is not None for k in items)
    if missing < 0:
        raise InvalidIndex(f"too many indices ({len(shape) - missing}) for shape {tuple(shape)}")
    place = len(items) if ellipsis is None else ellipsis
    return (*items[:place], *[slice(None)] * missing, *items[place:])


def get_indexing_dispatch_code(key: tuple) -> int:
    """0 for a key of numbers, slices and None; 1 where it has arrays or lists; 2 where it has an
    empty tuple. Raises ValueError for anything else."""
    for k in key:
        if isinstance(k, (NDArray, np.ndarray, list, tuple, range)):
            return EMPTY_TUPLE if isinstance(k, tuple) and not k else ADVANCED
        if not (k is None or isinstance(k, (slice, int, np.integer))):
            raise InvalidValue(
                f"NDArray does not support slicing with key {k!r} of type {type(k).__name__}"
            )
    return BASIC


def get_oshape_of_gather_nd_op(dshape: Any, ishape: Any) -> tuple[int, ...]:
    """The shape of gather_nd(data, indices) from those of its inputs."""
    return (*ishape[1:], *dshape[ishape[0] :])
