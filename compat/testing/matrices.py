"""Arrays with known properties for tests: orthonormal matrices, real eigenvalues, large vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels.spec import DType
from ...ndarray import functions
from ...ndarray.ndarray import NDArray


def _stacked(make, shape):
    *batch, n, _ = shape
    count = int(np.prod(batch, dtype=int))
    return np.array([make(n) for _ in range(count)]).reshape(shape)


def new_orthonormal_matrix_2d(n: Any) -> np.ndarray:
    """A random orthonormal (n, n) matrix."""
    return np.linalg.qr(np.random.randn(n, n))[0]


def new_matrix_with_real_eigvals_2d(n: Any) -> np.ndarray:
    """A random, well-conditioned (n, n) matrix whose eigenvalues are real, in (-10, 10)."""
    while True:
        vectors = new_orthonormal_matrix_2d(n) @ np.diag(np.random.uniform(-1.0, 1.0, n))
        if np.linalg.cond(vectors, 2) < 3:
            break
    return np.linalg.inv(vectors) @ np.diag(np.random.uniform(-10.0, 10.0, n)) @ vectors


def new_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    """A batch of new_matrix_with_real_eigvals_2d, of shape (..., n, n)."""
    return _stacked(new_matrix_with_real_eigvals_2d, shape)


def new_sym_matrix_with_real_eigvals_2d(n: Any) -> np.ndarray:
    """A random symmetric (n, n) matrix with eigenvalues in (-10, 10)."""
    q = new_orthonormal_matrix_2d(n)
    return q.T @ np.diag(np.random.uniform(-10.0, 10.0, n)) @ q


def new_sym_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> np.ndarray:
    """A batch of new_sym_matrix_with_real_eigvals_2d, of shape (..., n, n)."""
    return _stacked(new_sym_matrix_with_real_eigvals_2d, shape)


def get_identity_mat(size: Any) -> NDArray:
    """The (size, size) identity."""
    return functions.eye(size)


def get_identity_mat_batch(size: Any) -> NDArray:
    """Two identities, (2, size, size)."""
    return functions.stack(get_identity_mat(size), get_identity_mat(size))


def create_vector(size: Any, dtype: DType = np.int64) -> NDArray:
    """0, 1, ... size - 1."""
    return functions.arange(0, size, dtype=dtype)


def create_2d_tensor(rows: Any, columns: Any, dtype: DType = np.int64) -> NDArray:
    """(rows, columns), row i filled with i."""
    return functions.broadcast_to(
        create_vector(rows, dtype).reshape((rows, 1)), shape=(rows, columns)
    )


def rand_coord_2d(x_low: Any, x_high: Any, y_low: Any, y_high: Any) -> Any:
    """(x, y), random whole numbers in [low, high)."""
    return (
        np.random.randint(x_low, x_high, dtype=np.int64),
        np.random.randint(y_low, y_high, dtype=np.int64),
    )


def random_uniform_arrays(
    *shapes: Any, low: float = 0.0, high: float = 1.0, dtype: DType = np.float32
) -> list[np.ndarray]:
    """Uniform random arrays, one for each shape."""
    return [np.random.uniform(low, high, s).astype(dtype) for s in shapes]


def np_reduce(
    dat: Any, axis: int | Sequence[int] | None, keepdims: bool, numpy_reduce_func: Any
) -> np.ndarray:
    """dat reduced over axes (a number, several, or None for all) by a NumPy function of (array,
    axis=)."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    result = dat
    for a in sorted(axes, reverse=True):
        result = numpy_reduce_func(result, axis=a)
    if keepdims:
        result = result.reshape([1 if i in axes else n for i, n in enumerate(dat.shape)])
    return result


def collapse_sum_like(a: Any, shape: Sequence[int]) -> np.ndarray:
    """a summed over the axes that broadcasting a shape to a.shape repeats."""
    if 0 in shape or a.size == 0:
        return np.zeros(shape, a.dtype)
    lead = a.ndim - len(shape)
    axes = [*range(lead), *(i + lead for i, n in enumerate(shape) if n != a.shape[i + lead])]
    return a.sum(axis=tuple(axes)).reshape(shape)


def assign_each(the_input: Any, function: Callable[..., Any] | None) -> np.ndarray:
    """function of each element, as float64; a copy if function is None."""
    if function is None:
        return np.array(the_input)
    return np.vectorize(function, otypes=[np.float64])(the_input)


def assign_each2(input1: Any, input2: Any, function: Callable[..., Any] | None) -> np.ndarray:
    """function of each pair of elements, as float64; a copy of input1 if function is None."""
    if function is None:
        return np.array(input1)
    assert input1.shape == input2.shape
    return np.vectorize(function, otypes=[np.float64])(input1, input2)
