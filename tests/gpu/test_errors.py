"""What goes wrong on a GPU: a clear error at the user's line, nothing leaked, and work goes on."""

import os
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from plait import engine, nd
from plait.engine import lib
from plait.engine.error import DeviceError, OutOfMemory

INVALID_VALUE, OUT_OF_MEMORY, LAUNCH_FAILED = 1, 2, 719


@pytest.fixture(autouse=True)
def nothing_leaks():
    nd.waitall()
    before = used()
    yield
    try:
        nd.waitall()
    except mx.MXNetError:
        pass
    assert used() == before


def used():
    stats = engine.ffi.new("pl_storage_stats *")
    lib.pl_memory_get_stats(lib.PL_MEMORY_GPU, stats)
    return stats.used_bytes


def works():
    x = nd.array([1, 2, 3], ctx=mx.gpu(0))
    return ((x + 1).asnumpy() == [2, 3, 4]).all()


def test_a_gpu_that_is_not_there():
    n = mx.context.num_gpus()
    with pytest.raises(DeviceError, match=rf"(?s)gpu\(7\): this machine has {n} GPU.*fix: use gpu"):
        nd.zeros((2,), ctx=mx.gpu(7))
    with pytest.raises(DeviceError, match=r"gpu\(7\)"):
        nd.zeros((2,)).as_in_context(mx.gpu(7))
    with pytest.raises(DeviceError, match=r"gpu\(7\)"):
        engine.push(lambda: None, lane="gpu_compute", device=7)
    with pytest.raises(DeviceError, match=r"gpu\(7\)"):
        mx.context.gpu_memory_info(7)
    assert works()


def test_two_devices_in_one_operation():
    a, b = nd.ones((2,)), nd.ones((2,), ctx=mx.gpu(0))
    for use in (
        lambda: a + b,
        lambda: nd.concat(b, a, dim=0),
        lambda: nd.dot(b, a),
    ):
        with pytest.raises(
            DeviceError, match=r"(?s)(cpu.*gpu|gpu.*cpu)\(0\).*fix: x.as_in_context"
        ):
            use()
    with pytest.raises(DeviceError, match=r"(?s)out must be on gpu\(0\).*got cpu\(0\).*copyto"):
        nd.relu(b, out=a)
    with pytest.raises(DeviceError, match="one device"):
        net = mx.gluon.nn.HybridLambda("broadcast_add")
        net.hybridize()
        net(a, b)


def test_more_memory_than_there_is():
    _, total = mx.context.gpu_memory_info(0)
    with pytest.raises(OutOfMemory, match=r"on gpu\(0\)"):
        nd.empty((total // 4 + 1,), ctx=mx.gpu(0))
    x = nd.ones((2, 1), ctx=mx.gpu(0))
    with pytest.raises(mx.MXNetError, match=r"(?s)out of memory for .*gpu\(0\).*fix: "):
        nd.broadcast_to(x, shape=(2, total // 8)).wait_to_read()
    assert works()


def test_pooled_memory_is_given_back_when_it_is_needed():
    _, total = mx.context.gpu_memory_info(0)
    n = total // 4 * 2 // 5  # two do not fit beside two of another size
    for size in (n, n - n // 3, n):
        arrays = [nd.empty((size,), ctx=mx.gpu(0)) for _ in range(2)]
        arrays[0][:1] = 0
        del arrays
    mx.gpu(0).empty_cache()
    free, _ = mx.context.gpu_memory_info(0)
    assert total - free < total // 10


def test_a_launch_that_fails(emulator):
    x = nd.ones((4,), ctx=mx.gpu(0))
    x.wait_to_read(), works()
    emulator.fail(emulator.LAUNCH, INVALID_VALUE)
    y = x + 1
    z = y * 2
    for _ in range(2):
        with pytest.raises(
            mx.MXNetError,
            match=r"(?s)launch failed.*CUDA_ERROR_INVALID_VALUE.*"
            r"test_errors\.py|launch failed",
        ):
            z.wait_to_read()
    with pytest.raises(mx.MXNetError, match="launch failed"):
        y.asnumpy()
    y[:] = 3  # overwritten: healed
    assert (y.asnumpy() == 3).all()
    assert works()


def test_a_copy_that_fails(emulator):
    x = nd.ones((4,), ctx=mx.gpu(0))
    x.wait_to_read()
    emulator.fail(emulator.COPY, INVALID_VALUE)
    with pytest.raises(mx.MXNetError, match="copy between memories failed"):
        x.asnumpy()
    assert (x.asnumpy() == 1).all()


def test_an_allocation_that_fails_once_is_tried_again(emulator):
    big = nd.zeros((1 << 20,), ctx=mx.gpu(0))
    del big
    emulator.fail(emulator.ALLOCATION, OUT_OF_MEMORY)
    assert (nd.zeros((3 << 20,), ctx=mx.gpu(0)) + 1)[:1].asscalar() == 1


CHILD = """
import os, plait as mx
x = mx.nd.ones((3,), ctx=mx.gpu(0)); x.wait_to_read()
pid = os.fork()
if pid == 0:
    try:
        mx.nd.ones((3,), ctx=mx.gpu(0))
    except mx.MXNetError as error:
        assert "forked" in str(error), error
        assert mx.nd.ones((2,)).sum().asscalar() == 2
        del x
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert (x + 1).asnumpy().sum() == 6
"""


def test_a_forked_child_uses_the_cpu_alone():
    subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD], check=True, timeout=100)


def test_exit_with_work_in_flight():
    code = (
        "import plait as mx; x = mx.nd.ones((1000,), ctx=mx.gpu(0))\n"
        "for _ in range(50): x = x + 1\ny = x.as_in_context(mx.cpu())"
    )
    env = {**os.environ, "EMULATOR_DELAY_US": "500"}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=100, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_naive_mode_raises_at_the_call(emulator):
    x = nd.ones((4,), ctx=mx.gpu(0))
    works()
    engine.set_naive(True)
    try:
        assert works()
        emulator.fail(emulator.LAUNCH, INVALID_VALUE)
        with pytest.raises(mx.MXNetError, match="launch failed"):
            nd.relu(x).wait_to_read()
    finally:
        engine.set_naive(False)


def test_the_host_cannot_look_at_memory_of_a_gpu():
    x = nd.ones((2,), ctx=mx.gpu(0))
    with pytest.raises(DeviceError, match="cannot access memory of gpu"):
        x._memory()
    np.testing.assert_array_equal(np.asarray(x), [1, 1])
