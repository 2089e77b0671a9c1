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


# ---- read-only memory, foreign byte orders -------------------------------------------------------


@pytest.fixture(params=["memmap", "bytes", "flag"])
def read_only(request, tmp_path):
    """(an NDArray on read-only memory with 0 .. 5, its NumPy array)."""
    values = np.arange(6, dtype="float32")
    if request.param == "memmap":
        values.tofile(tmp_path / "values")
        values = np.memmap(tmp_path / "values", dtype="float32", mode="r")
    elif request.param == "bytes":
        values = np.frombuffer(values.tobytes(), "float32")
    else:
        values.flags.writeable = False
    x = nd.from_numpy(values)
    yield x, values
    nd.waitall()
    np.testing.assert_array_equal(values, np.arange(6))


def add(x):
    x += 1


def set_by_optimizer(x):
    optimizer = mx.optimizer.create("adam")
    optimizer.update(0, x, nd.ones((6,)), optimizer.create_state(0, x))


def set_by_executor(x):
    """As its output gradient, which a compiled program writes."""
    v = mx.sym.var("v")
    executor = (v * 2).bind(mx.cpu(), {"v": nd.ones((6,))}, args_grad={"v": x})
    executor.forward(is_train=True)
    executor.backward([nd.ones((6,))])


class Writes(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        in_data[0][:] = 7


@mx.operator.register("writes_its_input")
class WritesProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Writes()


def set_by_custom_operator(x):
    nd.Custom(x, op_type="writes_its_input").wait_to_read()


def set_by_batch_norm(x):
    """As a moving mean, which a hybridized net writes in place."""
    net = mx.gluon.nn.BatchNorm(in_channels=6)
    net.initialize()
    net.running_mean._data[0] = x
    net.hybridize()
    with mx.autograd.record():
        net(nd.ones((2, 6)))


WRITERS = [
    add,
    set_by_optimizer,
    set_by_executor,
    set_by_batch_norm,
    set_by_custom_operator,
    lambda x: x.__setitem__(slice(None), 7),
    lambda x: x.__setitem__(1, 7),
    lambda x: x.__setitem__(slice(1, 3), np.ones(2)),
    lambda x: x.reshape((2, 3)).__setitem__(1, 7),
    lambda x: x[1:4].__iadd__(1),
    lambda x: nd.ones((6,)).copyto(x),
    lambda x: nd.relu(nd.ones((6,)), out=x),
    lambda x: nd.random.uniform(shape=(6,), out=x),
    lambda x: nd.sgd_mom_update(nd.ones((6,)), nd.ones((6,)), x, lr=1.0),
    lambda x: mx.engine.push(lambda: None, writes=[x]),
    lambda x: mx.kv.create("local").pull(0, out=x),
    lambda x: x.to_dlpack_for_write(),
]


@pytest.mark.parametrize("write", WRITERS)
def test_read_only_memory_is_not_written(read_only, write):
    x, _ = read_only
    assert not x.writable
    with pytest.raises(mx.MXNetError):
        write(x)
    np.testing.assert_array_equal((x * 2).asnumpy(), np.arange(6) * 2)


def test_what_a_write_to_read_only_memory_raises(read_only):
    with pytest.raises(ValueError, match="read-only"):
        add(read_only[0])
    y = read_only[0].copy()
    add(y)
    np.testing.assert_array_equal(y.asnumpy(), np.arange(1, 7))


def test_read_only_arrays_go_out_as_such(read_only):
    x, values = read_only
    seen = np.from_dlpack(x)  # NumPy speaks DLPack 1.0
    assert not seen.flags.writeable and np.shares_memory(seen, values)
    for capsule in (x.to_dlpack_for_read(), x.__dlpack__()):  # an old capsule: a copy
        y = nd.from_dlpack(capsule)
        add(y)
        np.testing.assert_array_equal(y.asnumpy(), np.arange(1, 7))


def test_read_only_arrays_come_in_as_copies(read_only):
    _, values = read_only
    for source in (values, values.__dlpack__(max_version=(1, 0))):
        y = nd.from_dlpack(source)
        assert y.writable
        add(y)


def test_writable_memory_stays_writable():
    values = np.zeros(3, "float32")
    x = nd.from_numpy(values)
    add(x)
    assert x.writable and x.asnumpy().tolist() == values.tolist() == [1, 1, 1]
    assert nd.ones((2,)).writable and nd.ones((2, 2)).tostype("csr").writable


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">u2", ">f2"])
def test_the_other_byte_order(dtype):
    values = np.arange(4).astype(dtype)
    with pytest.raises(ValueError, match="byte order"):
        nd.from_numpy(values)
    assert values.flags.writeable
    for x in (
        nd.from_numpy(values, zero_copy=False),
        nd.array(values),
        nd.array(values, dtype=values.dtype),
        nd.array(values.repeat(2)[::2]),
        nd.array(list(values)),
    ):
        assert x.asnumpy().tolist() == [0, 1, 2, 3]
    x = nd.zeros((4,))
    x[:] = values
    assert x.asnumpy().tolist() == [0, 1, 2, 3]
    record = np.zeros(4, [("a", "u1"), ("b", dtype)])
    record["b"] = values
    assert nd.array(record["b"]).asnumpy().tolist() == [0, 1, 2, 3]


def test_memory_that_is_not_aligned():
    values = np.frombuffer(b"x" + np.arange(4, dtype="float32").tobytes(), "float32", 4, 1)
    with pytest.raises(ValueError, match="aligned"):
        nd.from_numpy(values)
    assert nd.from_numpy(values, zero_copy=False).asnumpy().tolist() == [0, 1, 2, 3]
