"""Arrays on a GPU as users meet them: creation, indexing, files, exchange, memory, times."""

import copy
import gc
import json
import pickle

import numpy as np
import plait as mx
import pytest
from plait import engine, nd
from plait.engine import callback, cuda

GPU = mx.gpu(0)


def test_what_there_is():
    assert mx.context.num_gpus() >= 1
    free, total = mx.context.gpu_memory_info(0)
    assert 0 < free <= total == cuda.properties(0).total_bytes
    assert mx.runtime.Features().is_enabled("CUDA")
    major, minor = cuda.properties(0).capability
    assert mx.util.get_cuda_compute_capability(GPU) == 10 * major + minor


def test_borrowed_memory_of_numpy_stays_on_the_host():
    """Whatever the current device is: a GPU cannot read it."""
    for values in (np.arange(6.0), np.broadcast_to(np.float32(2), (1,))):
        with GPU:
            x = nd.from_numpy(values)
            copied = nd.from_numpy(np.array(values), zero_copy=False)
        assert x.context == mx.cpu() and copied.context == GPU
        np.testing.assert_array_equal((x + 1).asnumpy(), values + 1)
        np.testing.assert_array_equal((copied + 1).asnumpy(), values + 1)


def test_creation_and_reading():
    for dtype in ("float32", "float64", "float16", "int32", "int8", "uint8", "int64", "bool"):
        x = nd.array([[0, 1], [2, 3]], ctx=GPU, dtype=dtype)
        assert x.context == GPU and x.ctx == GPU
        np.testing.assert_array_equal(x.asnumpy(), np.array([[0, 1], [2, 3]]).astype(dtype))
    with GPU:
        for x in (nd.zeros((2,)), nd.ones((2,)), nd.full((2,), 3), nd.arange(2), nd.eye(2)):
            assert x.context == GPU
            np.testing.assert_array_equal(x.asnumpy(), x.as_in_context(mx.cpu()).asnumpy())
        assert nd.array(nd.ones((2,), ctx=mx.cpu())).context == mx.cpu()
        assert nd.empty((0, 3)).asnumpy().shape == (0, 3)
    assert nd.array([7], ctx=GPU).asscalar() == 7
    assert float(nd.array([2.5], ctx=GPU)) == 2.5
    assert "@gpu(0)" in repr(nd.zeros((1,), ctx=GPU))


def test_between_devices():
    x = nd.array([1.5, 2.5], ctx=GPU)
    for device in (mx.cpu(), mx.cpu_pinned(), mx.gpu(mx.context.num_gpus() - 1), GPU):
        y = x.copyto(device)
        assert y.context == device and y is not x
        np.testing.assert_array_equal(y.asnumpy(), [1.5, 2.5])
        back = y.as_in_context(GPU)
        assert (back is y) == (device == GPU)
    target = nd.zeros((2,), dtype="int32")
    x.copyto(target)  # another dtype on the way
    np.testing.assert_array_equal(target.asnumpy(), [1, 2])
    target = nd.zeros((2,), ctx=GPU, dtype="float64")
    nd.array([3, 4]).copyto(target)
    np.testing.assert_array_equal(target.asnumpy(), [3, 4])


def test_indexing():
    host = np.arange(24, dtype="float32").reshape(4, 6)
    x = nd.array(host, ctx=GPU)
    keys = (
        1,
        slice(1, 3),
        (slice(None), slice(0, 6, 2)),
        (2, 3),
        (slice(None, None, -1),),
        ([0, 2],),
    )
    for key in keys:
        np.testing.assert_array_equal(
            x[key].asnumpy(), nd.array(host)[key].asnumpy(), err_msg=str(key)
        )
    rows = nd.array([0, 3], ctx=GPU, dtype="int32")
    np.testing.assert_array_equal(x[rows].asnumpy(), host[[0, 3]])
    for key, value in (
        (0, 5),
        (slice(1, 3), np.ones((2, 6))),
        ((slice(None), 1), nd.zeros((4,), ctx=GPU)),
    ):
        x[key] = value
        host[key] = value.asnumpy() if isinstance(value, nd.NDArray) else value
        np.testing.assert_array_equal(x.asnumpy(), host)
    view = x[1]
    view[:] = 9
    assert (x.asnumpy()[1] == 9).all()


def test_random_numbers_are_the_cpus():
    drawn = []
    for ctx in (mx.cpu(), GPU):
        mx.random.seed(5)
        drawn.append(
            [
                nd.random.uniform(shape=(5,), ctx=ctx).asnumpy(),
                nd.random.normal(shape=(5,), ctx=ctx).asnumpy(),
                nd.random.randint(0, 100, shape=(5,), ctx=ctx).asnumpy(),
            ]
        )
    for a, b in zip(*drawn):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_files_and_copies(tmp_path):
    x = nd.array([[1, 2]], ctx=GPU)
    nd.save(str(tmp_path / "x"), {"x": x})
    np.testing.assert_array_equal(nd.load(str(tmp_path / "x"))["x"].asnumpy(), [[1, 2]])
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert y.context == GPU
        np.testing.assert_array_equal(y.asnumpy(), [[1, 2]])
    np.testing.assert_array_equal(np.asarray(x), [[1, 2]])


def test_sparse_arrays():
    dense = np.array([[0, 1, 0], [2, 0, 3]], "float32")
    for stype in ("csr", "row_sparse"):
        x = nd.array(dense, ctx=GPU).tostype(stype)
        assert x.context == GPU
        np.testing.assert_array_equal(x.asnumpy(), dense)
        np.testing.assert_array_equal(x.tostype("default").asnumpy(), dense)


def test_memory_is_pooled_and_given_back():
    nd.waitall()
    memory = engine.lib.PL_MEMORY_GPU
    stats = engine.ffi.new("pl_storage_stats *")
    x = nd.zeros((1 << 20,), ctx=GPU)
    del x
    engine.lib.pl_memory_get_stats(memory, stats)
    assert stats.pooled_bytes >= 4 << 20
    hits = stats.n_hit
    nd.zeros((1 << 20,), ctx=GPU)
    engine.lib.pl_memory_get_stats(memory, stats)
    assert stats.n_hit == hits + 1
    free = mx.context.gpu_memory_info(0)[0]
    GPU.empty_cache()
    assert mx.context.gpu_memory_info(0)[0] >= free + (4 << 20)


def test_page_locked_memory_is_the_drivers():
    x = nd.ones((1 << 20,), ctx=mx.cpu_pinned())
    assert engine.lib.pl_array_memory(x._handle) == engine.lib.PL_MEMORY_PINNED
    y = x + 1
    assert engine.lib.pl_array_memory(y._handle) == engine.lib.PL_MEMORY_PINNED
    assert (y.as_in_context(GPU) * 2)[:2].asnumpy().tolist() == [4, 4]


def test_the_profiler_shows_device_times(tmp_path):
    file = tmp_path / "trace.json"
    mx.profiler.set_config(filename=str(file))
    x = nd.ones((100,), ctx=GPU)
    (x + 1).wait_to_read()
    net = mx.gluon.nn.HybridLambda(lambda F, x: F.relu(x).sum() + F.softmax(x).sum())
    net.hybridize()
    mx.profiler.start()
    for _ in range(3):
        (net(x) + 1).asnumpy()
    mx.profiler.stop()
    mx.profiler.dump()
    events = json.loads(file.read_text())["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    times = [e for e in events if e["ph"] == "X" and rows[e["tid"]] == "gpu(0) compute stream"]
    names = {e["name"] for e in times}
    assert {"softmax", "_plus_scalar"} <= names, names
    assert all(e["dur"] >= 0 for e in times)
    first = min(e["ts"] for e in events if e["ph"] == "X")
    assert all(e["ts"] >= first - 1000 for e in times)  # the host's clock
    assert any(rows[e["tid"]] == "gpu(0) d2h stream" for e in events if e["ph"] == "X")


def test_dlpack():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    x = nd.arange(6, ctx=GPU).reshape((2, 3))
    t = torch.from_dlpack(x)
    assert t.is_cuda and t.tolist() == [[0, 1, 2], [3, 4, 5]]
    y = nd.from_dlpack(torch.ones(3, device="cuda"))
    assert y.context == GPU and (y + 1).asnumpy().tolist() == [2, 2, 2]


class Other:
    """Another library's array on a GPU."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_round_trip():
    x = nd.arange(6, ctx=GPU).reshape((2, 3))
    assert x.__dlpack_device__() == (2, 0)
    y = nd.from_dlpack(Other(x))
    assert y.context == GPU
    y += 1  # the same memory
    y.wait_to_read()
    np.testing.assert_array_equal(x.asnumpy(), [[1, 2, 3], [4, 5, 6]])
    capsule = nd.to_dlpack_for_read(x)
    z = nd.from_dlpack(capsule)
    np.testing.assert_array_equal(z.asnumpy(), x.asnumpy())
    with pytest.raises(mx.MXNetError, match="used before"):
        nd.from_dlpack(capsule)
    del x, y
    np.testing.assert_array_equal((z * 1).asnumpy(), [[1, 2, 3], [4, 5, 6]])
    nd.arange(3, ctx=GPU).__dlpack__()  # never used: it lets go of the array by itself


def test_a_capsule_dies_while_an_exception_is_on_its_way():
    def fails():
        raise ValueError("the user's")

    before = len(callback._objects)
    x = nd.arange(3, ctx=GPU)
    for _ in range(20):
        with pytest.raises(ValueError, match="the user's"):
            (x.__dlpack__(), nd.from_dlpack(Other(x)), fails())
    gc.collect()
    assert len(callback._objects) <= before + 2
