"""DLPack both ways between mx.np and NumPy. With torch and JAX: make downstream."""

import numpy as onp
import pytest
from plait import np
from plait.engine.error import MXNetError

DTYPES = ("float32", "float64", "float16", "int8", "uint16", "int64", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)])
def test_numpys_memory_is_shared_both_ways(dtype, shape):
    values = onp.ones(shape, dtype)
    x = np.from_dlpack(values)
    assert (type(x), x.shape, x.dtype) == (np.ndarray, shape, values.dtype)
    back = onp.from_dlpack(x)
    onp.testing.assert_array_equal(back, values)
    if values.size:
        values[...] = 0
        assert not x.asnumpy().any() and onp.shares_memory(back, values)


def test_copies():
    values = onp.arange(6.0).reshape(2, 3)
    x = np.from_dlpack(values, copy=True)
    values[0, 0] = 9
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.from_dlpack(values.T).tolist() == values.T.tolist()
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(values.T, copy=False)
    given = onp.from_dlpack(x, copy=True)
    given[...] = 0
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert onp.shares_memory(onp.from_dlpack(x, copy=False), onp.from_dlpack(x))


def test_read_only_memory_is_a_read_only_array():
    values = onp.arange(3.0)
    values.flags.writeable = False
    x = np.from_dlpack(values, copy=False)
    assert (x + 1).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        x[:] = 0
    assert not onp.from_dlpack(x).flags.writeable and values.tolist() == [0, 1, 2]


def test_protocol():
    x = np.array([1.0, 2.0])
    assert x.__dlpack_device__() == (1, 0)
    for options in ({}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}, {"copy": True}):
        assert type(x.__dlpack__(**options)).__name__ == "PyCapsule"
    with pytest.raises(BufferError):
        x.__dlpack__(stream=1)
    with pytest.raises(TypeError, match="__dlpack__"):
        np.from_dlpack([1.0])
    assert type(np.from_dlpack(x.__dlpack__())) is np.ndarray
    y = np.from_dlpack(x)
    y[0] = 5
    assert x.tolist() == [5, 2]
    assert isinstance(pytest.raises(MXNetError, np.from_dlpack, 5).value, TypeError)
