"""Random shapes and arrays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine import Context
from ...kernels.spec import DType
from ...ndarray.ndarray import NDArray
from .sparse import rand_sparse_ndarray
from .tolerance import default_context, default_dtype


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> Any:
    """A random shape of two axes, from 1 (or 0) to dim0 and dim1."""
    return rand_shape_nd(2, (dim0, dim1), allow_zero_size)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> Any:
    """A random shape of three axes, from 1 (or 0) to dim0, dim1 and dim2."""
    return rand_shape_nd(3, (dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(
    num_dim: Any, dim: int | tuple[int, ...] = 10, allow_zero_size: bool = False
) -> Any:
    """A random shape: each axis from 1 (or 0) to `dim`."""
    dims = dim if isinstance(dim, tuple) else (dim,) * num_dim
    return tuple(int(n) for n in np.random.randint(0 if allow_zero_size else 1, np.array(dims) + 1))


def random_arrays(*shapes: Any) -> Any:
    """Normal float64 NumPy arrays (numbers for empty shapes); one, or a list."""
    arrays = [
        (
            np.array(np.random.randn(), dtype=default_dtype())
            if len(s) == 0
            else np.random.randn(*s).astype(default_dtype())
        )
        for s in shapes
    ]
    return arrays[0] if len(arrays) == 1 else arrays


def random_sample(population: Any, k: Any) -> Any:
    """k elements in random order without repetition."""
    return random.sample(list(population), k)


def rand_ndarray(
    shape: Sequence[int],
    stype: str = "default",
    density: Any = None,
    dtype: DType | None = None,
    modifier_func: Any = None,
    shuffle_csr_indices: bool = False,
    distribution: Any = None,
    ctx: Context | None = None,
) -> NDArray:
    """A dense array of uniform numbers in [-1, 1), or a sparse one: see rand_sparse_ndarray."""
    if stype != "default":
        found, _ = rand_sparse_ndarray(
            shape,
            stype,
            density,
            dtype or default_dtype(),
            distribution,
            modifier_func=modifier_func,
            shuffle_csr_indices=shuffle_csr_indices,
            ctx=ctx or default_context(),
        )
        return found
    values = np.random.uniform(-1, 1, shape)
    if modifier_func is not None:
        values = np.vectorize(modifier_func)(values)
    return nd.array(values, ctx or default_context(), dtype or default_dtype())
