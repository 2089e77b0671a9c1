"""Networks over a CPU and GPUs, and what the emulated GPU says of memory that is not its own."""

import signal
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.engine import ffi, lib
from plait.kernels.plan import make_plan
from plait.kernels.record import lookup
from plait.ndarray.ndarray import make
from stages import network

CPU, GPU, OTHER = mx.cpu(), mx.gpu(0), mx.gpu(1)
X = np.random.RandomState(1).randn(5, 4).astype(np.float32)
two_gpus = pytest.mark.skipif("mx.context.num_gpus() < 2", reason="needs two GPUs")


def trained(first, second, hybridize):
    """The weights after some steps."""
    net = network(first, second, hybridize)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    for _ in range(4):
        with autograd.record():
            y = net(nd.array(X, ctx=first))
            loss = (y**2).sum()
        assert y.context == second
        loss.backward()
        assert net.low.weight.grad().context == first
        trainer.step(5)
        mx.wait_compiled()
    return [p.data().asnumpy() for p in net.collect_params().values()]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    "first, second", [(CPU, GPU), (GPU, CPU), pytest.param(GPU, OTHER, marks=two_gpus)]
)
def test_training_over_two_devices(first, second, hybridize):
    for a, b in zip(trained(first, second, hybridize), trained(CPU, CPU, False)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_of_gradients():
    x = nd.array([1.0, 2.0, 3.0], ctx=CPU)
    x.attach_grad()
    with autograd.record():
        y = (x * x).as_in_context(GPU)
        z = (y * y * y).as_in_context(CPU).sum()
        (dx,) = autograd.grad(z, [x], create_graph=True, retain_graph=True)
        total = dx.sum()
    total.backward()
    assert dx.context == x.grad.context == CPU
    np.testing.assert_allclose(dx.asnumpy(), [6, 192, 1458])
    np.testing.assert_allclose(x.grad.asnumpy(), [30, 480, 2430])


def test_groups_of_an_executor():
    with mx.AttrScope(ctx_group="low"):
        h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc1")
        h = mx.sym.BatchNorm(h, name="bn", fix_gamma=False)
    with mx.AttrScope(ctx_group="high"):
        h = mx.sym.FullyConnected(mx.sym.Activation(h, act_type="tanh"), num_hidden=3, name="fc2")
    net = mx.sym.SoftmaxOutput(h, name="softmax")
    results = []
    for groups in (None, {"low": CPU, "high": GPU}, {"low": GPU, "high": CPU}):
        executor = net.simple_bind(CPU, data=(4, 5), group2ctx=groups)
        values = np.random.RandomState(0)
        for name, a in executor.arg_dict.items():
            a[:] = [0, 1, 2, 0] if name == "softmax_label" else values.randn(*a.shape)
        for _ in range(4):
            executor.forward(is_train=True)
            executor.backward()
            mx.wait_compiled()
        arrays = [*executor.outputs, *executor.grad_arrays, *executor.aux_arrays]
        results.append([a.asnumpy() for a in arrays])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_head_gradients_from_elsewhere():
    x = nd.array([1.0, 2.0], ctx=GPU)
    x.attach_grad()
    with autograd.record():
        y = x * x
    y.backward(nd.array([3.0, 4.0], ctx=CPU))
    np.testing.assert_allclose(x.grad.asnumpy(), [6, 16])


# ---- the emulated GPU ----------------------------------------------------------------------------


def run_with(a, device):
    """What a kernel of a device makes of the memory of an array, whatever device that is on: past
    the checks of Python."""
    s = nd.zeros(a.shape, ctx=device)._spec
    plan = make_plan(lookup("exp"), lookup("exp").parse({}), [s], device)
    made = ffi.new("uintptr_t[1]")
    assert lib.pl_invoke(plan.handle, [a._handle], made, ffi.NULL, -1) == 0
    return make(made[0], plan.out_spec)


def test_host_memory_given_to_a_kernel_is_a_fault(emulator):
    with pytest.raises(mx.MXNetError):
        run_with(nd.ones((1000, 1000), ctx=CPU), GPU).asnumpy()
    assert "memory of the host given to code of gpu(0)" in emulator.fault()


def test_page_locked_memory_is_none(emulator):
    made = run_with(nd.ones((1000,), ctx=mx.cpu_pinned()), GPU)
    np.testing.assert_allclose(made.asnumpy(), np.e, rtol=1e-6)


ALONE = """
import sys
import plait as mx
from plait import nd
from plait.engine import ffi, lib
a = nd.ones((1000,), ctx=mx.gpu({}))
a.wait_to_read()
{}
"""


def in_a_process(device, what):
    command = [sys.executable, "-c", ALONE.format(device, what)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_host_dies_where_it_touches_memory_of_a_gpu(emulator):
    done = in_a_process(1, "ffi.cast('float *', lib.pl_array_data(a._handle))[0]")
    assert done.returncode == -signal.SIGSEGV
    assert "emulator: host code touched memory of gpu(1)" in done.stderr


def test_memory_of_another_gpu_needs_peer_access(emulator):
    done = in_a_process(
        1,
        """
import ctypes, os
driver = ctypes.CDLL(os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1"))
driver.emulatorMemory.restype, driver.emulatorFault.restype = ctypes.c_void_p, ctypes.c_char_p
driver.emulatorMemory.argtypes = [ctypes.c_void_p]
nd.ones((1,), ctx=mx.gpu(0)).wait_to_read()
address = int(ffi.cast("uintptr_t", lib.pl_array_data(a._handle)))
context = ctypes.c_void_p()
for number in (1, 0):
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    driver.cuCtxSetCurrent(context)
    driver.emulatorMemory(address)
    print(number, driver.emulatorFault())
    driver.emulatorForgetPeers()
""",
    )
    assert done.stdout.splitlines() == [
        "1 b''",
        "0 b'memory of gpu(1) given to code of gpu(0)'",
    ], done.stderr


@pytest.mark.parametrize("devices", [[CPU], [CPU, GPU]], ids=["one", "both"])
def test_copies_on_a_cpu_and_a_gpu_of_one_number_count_apart(devices):
    w = gluon.Parameter("w", shape=(1,), init="ones")
    w.initialize(ctx=devices)
    trainer = gluon.Trainer([w], "adam", {"learning_rate": 0.1}, update_on_kvstore=False)
    expected, mean, var = 1.0, 0.0, 0.0
    for t in range(1, 5):
        with autograd.record():
            losses = [(w.data(d) * t).sum() for d in devices]
        autograd.backward(losses)
        trainer.step(len(devices))
        mean, var = 0.9 * mean + 0.1 * t, 0.999 * var + 0.001 * t * t
        rate = 0.1 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        expected -= rate * mean / (var**0.5 + 1e-8)
    for array in w.list_data():
        np.testing.assert_allclose(array.asscalar(), expected, rtol=1e-5)
