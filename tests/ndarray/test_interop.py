"""DLPack in both directions, from_numpy, __array__, and what NumPy must not do."""

import gc
import weakref

import numpy as np
import plait as mx
import pytest
from plait import nd

DTYPES = [
    "float32",
    "float64",
    "float16",
    "uint8",
    "int32",
    "int8",
    "int64",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_numpy_shares_memory_through_dlpack(dtype, shape):
    x = nd.array(np.ones(shape), dtype=dtype)
    assert x.__dlpack_device__() == (1, 0)
    values = np.from_dlpack(x)
    assert values.shape == shape and values.dtype == np.dtype(dtype)
    if values.size:
        values[...] = 0
        assert not x.asnumpy().any()


def test_the_memory_outlives_the_ndarray():
    x = nd.array(np.arange(1000))
    values = np.from_dlpack(x + 0)
    del x
    gc.collect()
    nd.zeros((1000,)).wait_to_read()
    np.testing.assert_array_equal(values, np.arange(1000))


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_dlpack_shares_numpys_memory(dtype):
    values = np.ones((2, 3), dtype)
    x = nd.from_dlpack(values)
    assert x.shape == (2, 3) and x.dtype == np.dtype(dtype)
    x[0] = 0
    x.wait_to_read()
    assert not values[0].any() and values[1].all()


def test_from_dlpack_copies_what_it_cannot_share():
    values = np.arange(6.0).reshape(2, 3)
    x = nd.from_dlpack(values.T)
    x[:] = 0
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    y = nd.from_dlpack(fixed)
    y[:] = 5
    mx.nd.waitall()
    assert values[1, 2] == 5 and fixed.tolist() == [0, 1, 2] and y.asnumpy().tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    "export",
    [
        nd.to_dlpack_for_write,
        nd.to_dlpack_for_read,
        lambda x: x.to_dlpack_for_write(),
        lambda x: x.__dlpack__(max_version=(1, 0)),
    ],
)
def test_capsules(export):
    x = nd.ones((2, 2))
    y = nd.from_dlpack(export(x))
    y[0] = 7
    assert x.asnumpy().tolist() == [[7, 7], [1, 1]]


def test_a_capsule_is_used_once_and_unused_ones_free_their_array():
    x = nd.ones((2,))
    capsule = nd.to_dlpack_for_read(x)
    nd.from_dlpack(capsule)
    with pytest.raises(TypeError, match="used before"):
        nd.from_dlpack(capsule)
    with pytest.raises(TypeError, match="__dlpack__ or a capsule"):
        nd.from_dlpack(5)
    capsule = nd.to_dlpack_for_read(x)
    del capsule, x
    gc.collect()


def test_dlpack_refuses_what_it_cannot_give():
    with pytest.raises(BufferError, match="bfloat16"):
        np.from_dlpack(nd.ones((2,)).astype("bfloat16"))
    with pytest.raises(BufferError, match="stream"):
        nd.ones((2,)).__dlpack__(stream=1)


def test_dlpack_waits_for_pending_work():
    x = nd.ones((500, 500))
    for _ in range(20):
        x = x + 1
    assert (np.from_dlpack(x) == 21).all()


def test_from_numpy_owns_the_array_until_the_last_user_is_done():
    values = np.ones((100, 100))
    alive = weakref.ref(values)
    x = nd.from_numpy(values)
    assert x.dtype == np.float64 and not values.flags.writeable
    part = x[3]
    y = part + 1
    del values, x
    gc.collect()
    assert alive() is not None
    assert (y.asnumpy() == 2).all()
    del part, y
    mx.nd.waitall()
    gc.collect()
    assert alive() is None


def test_from_numpy_copies_or_refuses():
    values = np.arange(6.0).reshape(2, 3)
    x = nd.from_numpy(values, zero_copy=False)
    x[:] = 0
    x.wait_to_read()
    assert values[1, 2] == 5 and values.flags.writeable
    with pytest.raises(ValueError, match="C-contiguous"):
        nd.from_numpy(values.T)
    with pytest.raises(TypeError, match="numpy.ndarray"):
        nd.from_numpy([1, 2])
    with pytest.raises(mx.MXNetError, match="not supported"):
        nd.from_numpy(np.ones((2,), complex))


def test_array_protocol_of_numpy_2():
    x = nd.array([1.5, 2])
    values = np.asarray(x)
    values[0] = 9
    assert x.asnumpy().tolist() == [1.5, 2] and np.asarray(x, "int32").tolist() == [1, 2]
    assert np.array(x, copy=True).dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        np.array(x, copy=False)


def test_numpy_does_not_compute_on_ndarrays():
    x, one = nd.array([1.5]), np.ones(1)
    for f in (
        lambda: x + one,
        lambda: one + x,
        lambda: np.add(x, 1),
        lambda: np.sin(x),
        lambda: x == one,
        lambda: x + [1],
        lambda: x + "5",
        lambda: x + None,
        lambda: x + np.ones(()),
    ):
        for _ in range(2):
            with pytest.raises(TypeError):
                f()
    assert (np.sqrt(4.0) * x).asnumpy().tolist() == [3] and (
        x / np.float32(2)
    ).asnumpy().tolist() == [0.75]
