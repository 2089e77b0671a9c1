"""Batching of items: default_batchify_fn."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine import current_context
from ...engine.error import InvalidValue
from ...kernels.record import dtype_name
from ...kernels.spec import NUMPY_DTYPES, spec
from ...ndarray import functions
from ...ndarray.ndarray import NDArray, empty_like_spec, from_memory
from ...ndarray.numpy_mode import in_mode


def default_batchify_fn(data: Any) -> Any:
    """Stacks items along a new first axis.

    data: list of items: NDArrays, NumPy arrays or numbers; or of tuples of them.
    Returns: NDArray, or a list with one batch for each tuple position. NumPy's dtypes are kept (a
        float is float64).
    """
    if isinstance(data[0], NDArray):
        return in_mode(functions.stack(*data))
    if isinstance(data[0], tuple):
        return [default_batchify_fn(column) for column in zip(*data)]
    return stacked(same_shaped(data))


def default_mp_batchify_fn(data: Any) -> Any:
    """As default_batchify_fn, but stacked by NumPy, without an operation of the engine: for worker
    processes."""
    return in_columns(data, stacked)


def in_columns(data: Any, make: Any) -> Any:
    """make(list of NumPy arrays) for each position of the items' tuples, or for the items
    themselves."""
    if isinstance(data[0], tuple):
        return [in_columns(column, make) for column in zip(*data)]
    return make(same_shaped(data))


def stacked(items: list[np.ndarray]) -> NDArray:
    """Arrays of one shape and dtype along a new first axis, each copied once."""
    first = items[0]
    name = dtype_name(first.dtype)
    if NUMPY_DTYPES[name] != first.dtype:
        return in_mode(from_memory(np.stack(items)))
    out = empty_like_spec(spec((len(items), *first.shape), name, current_context()))
    if first.size:
        np.stack(items, out=out._memory())
    return in_mode(out)


def same_shaped(data: Any) -> list[np.ndarray]:
    """Items as NumPy arrays of one shape and dtype; NDArrays as views of their memory, valid while
    they exist. Raises ValueError that names the differing shapes."""
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
    if item.stype != "default":  # made dense, as in MXNet
        return item.asnumpy()
    return item._values()
