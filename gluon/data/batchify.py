"""Items into a batch: default_batchify_fn."""

from __future__ import annotations

import numpy as np

from ...engine.error import InvalidValue
from ...ndarray import functions
from ...ndarray.ndarray import NDArray, from_memory


def default_batchify_fn(data):
    """Stacks items along a new first axis.

    data: list of items: NDArrays, NumPy arrays or numbers; or of tuples of them.
    Returns: NDArray, or a list of what the places of the tuples give. NumPy's dtypes are kept (a
        float is float64).
    """
    if isinstance(data[0], NDArray):
        return functions.stack(*data)
    if isinstance(data[0], tuple):
        return [default_batchify_fn(column) for column in zip(*data)]
    return from_memory(stack_values(data))


def default_mp_batchify_fn(data):
    """As default_batchify_fn, but stacked by NumPy, without an operation of the engine: for worker
    processes."""
    return in_columns(data, lambda items: from_memory(np.stack(items)))


def in_columns(data, make):
    """make(list of NumPy arrays) for each place of the items' tuples, or for the items
    themselves."""
    if isinstance(data[0], tuple):
        return [in_columns(column, make) for column in zip(*data)]
    return make(same_shaped(data))


def stack_values(data) -> np.ndarray:
    """NumPy arrays or numbers along a new first axis."""
    return np.stack(same_shaped(data))


def same_shaped(data) -> list[np.ndarray]:
    """Items as NumPy arrays of one shape and dtype; NDArrays as their memory, while they live.
    Raises ValueError that names the shapes that do not fit."""
    values = [_as_values(item) for item in data]
    shapes = dict.fromkeys(v.shape for v in values)
    if len(shapes) > 1:
        raise InvalidValue(
            "batchify: all items of a batch must have one shape, got "
            f"{', '.join(map(str, list(shapes)[:4]))}\n  fix: crop or pad them in a transform, "
            "or give a batchify_fn"
        )
    dtypes = {v.dtype for v in values}
    if len(dtypes) == 1:
        return values
    common = np.result_type(*dtypes)
    return [v.astype(common) for v in values]


def _as_values(item) -> np.ndarray:
    if not isinstance(item, NDArray):
        return np.asarray(item)
    return item._values()
