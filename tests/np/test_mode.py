"""The switches of NumPy's semantics, and the paths of mx.np and mx.npx."""

import importlib
import subprocess
import sys
import threading

import numpy as onp
import plait as mx
import pytest
from plait import np, npx
from plait.gluon.data import ArrayDataset, DataLoader


@pytest.fixture(autouse=True)
def classic_afterwards():
    yield
    npx.reset_np()


def flags():
    return npx.is_np_shape(), npx.is_np_array()


def test_switches():
    assert flags() == (False, False)
    npx.set_np()
    assert flags() == (True, True)
    npx.set_np(array=False)
    assert flags() == (True, False)
    with pytest.raises(ValueError, match="NumPy Shape semantics is required"):
        npx.set_np(shape=False)
    npx.reset_np()
    with mx.util.np_shape(True), mx.util.np_array(True):
        assert flags() == (True, True)
        with mx.np_array(False):
            assert flags() == (True, False)
    assert flags() == (False, False)
    assert npx.use_np(flags)() == (True, True)
    assert mx.util.use_np_shape(flags)() == (True, False)
    assert mx.util.use_np_array(flags)() == (False, True)


def test_threads_have_their_own():
    npx.set_np()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(flags()))
    thread.start()
    thread.join()
    assert seen == [(False, False)]


def test_class_decorator_makes_a_block_of_np_arrays():
    @npx.use_np
    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.fc = mx.gluon.nn.Dense(3)

        def hybrid_forward(self, F, x):
            return F.np.add(self.fc(x), 1)

    net = Net()
    net.initialize()  # outside of the switch
    for _ in range(2):
        assert type(net(np.array([[1.0, 2.0]]))) is np.ndarray
        assert type(net.fc.weight.data()) is np.ndarray
        net.hybridize()
    assert flags() == (False, False)


def test_parameters_of_np_mode():
    npx.set_np()
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    x = np.array([[1.0, 2.0, 3.0]])
    with mx.autograd.record():
        y = net(x)
    y.backward()
    for made in (net.weight.data(), net.weight.grad(), *net.weight.list_data()):
        assert type(made) is np.ndarray
    assert type(net.weight.var()) is mx.sym.numpy._Symbol
    net.weight.set_data(np.array(onp.ones((2, 3))))
    assert type(net.weight.data()) is np.ndarray
    net.cast("float64")
    assert type(net.weight.data()) is np.ndarray
    assert type(net.weight.grad()) is np.ndarray
    net.collect_params().reset_ctx(mx.cpu(0))
    assert type(net.weight.data()) is np.ndarray
    constant = mx.gluon.Constant("c", np.array([1.0, 2.0]))
    constant.initialize()
    assert type(constant.data()) is np.ndarray


def test_parameter_without_axes():
    npx.set_np()

    class Scaled(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.scale = self.params.get("scale", shape=(), init=mx.init.Constant(3))

        def hybrid_forward(self, F, x, scale):
            return x * scale

    net = Scaled()
    net.initialize()
    for _ in range(2):
        assert net(np.array([1.0, 2.0])).asnumpy().tolist() == [3, 6]
        net.hybridize()


def batches(**given):
    data = ArrayDataset(onp.arange(8.0, dtype="float32").reshape(4, 2), onp.arange(4))
    return [part for batch in DataLoader(data, 2, **given) for part in batch]


@pytest.mark.parametrize(
    "given",
    [{}, {"num_workers": 1, "thread_pool": True}, {"num_workers": 1}, {"batchify_fn": "list"}],
    ids=["here", "threads", "processes", "own"],
)
def test_loaders_follow_the_mode_of_the_thread_that_iterates(given):
    if given.get("batchify_fn"):
        given = {"num_workers": 1, "batchify_fn": _own}
    npx.set_np()
    assert {type(b) for b in batches(**given)} == {np.ndarray}
    npx.reset_np()
    assert {type(b) for b in batches(**given)} == {mx.nd.NDArray}


def _own(items):
    made = [mx.nd.array(onp.stack(column)) for column in zip(*items)]
    return [m.as_np_ndarray() for m in made] if npx.is_np_array() else made


def test_begin_state_with_functions_of_np():
    npx.set_np()

    def zeros(shape, dtype="float32", ctx=None):
        return np.array(onp.zeros(shape, dtype))

    for cell in (mx.gluon.rnn.LSTMCell(3), mx.gluon.rnn.LSTM(3)):
        for states in (cell.begin_state(2), cell.begin_state(2, func=zeros)):
            assert {type(s) for s in states} == {np.ndarray}
            assert states[0].shape[-2:] == (2, 3)


def test_names_of_npx():
    assert npx.cpu() == mx.cpu()
    assert npx.num_gpus() == mx.num_gpus()
    assert npx.current_context() == mx.current_context()
    assert npx.Context is mx.Context
    assert npx.image.imresize is mx.image.imresize
    npx.waitall()


def test_npx_of_whole_numbers():
    whole = np.array(onp.array([1, 2], "int32"))
    assert npx.sigmoid(whole).dtype == onp.float32
    assert npx.relu(whole).dtype == onp.int32
    assert npx.gamma(whole).asnumpy().tolist() == [1, 1]


def test_npx_loops():
    npx.set_np()
    x = np.array([[1.0, 2.0], [3.0, 4.0]])

    class Sums(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            rows, last = F.npx.foreach(lambda row, s: (row + s, row + s), x, x[0] * 0)
            count, _ = F.npx.while_loop(
                lambda i, s: i < 3, lambda i, s: (s, [i + 1, s + i]), [last[0] * 0, last], 4
            )
            picked = F.npx.cond(last[0] > 1, lambda: last, lambda: last * 2)
            return rows, last, count, picked

    net = Sums()
    found = []
    for _ in range(2):
        found.append([o.asnumpy().tolist() for o in net(x)])
        assert {type(o) for o in net(x)} == {np.ndarray}
        net.hybridize()
    assert found[0][:2] == [[[1, 2], [4, 6]], [4, 6]]
    assert found[0][2][:3] == [[4, 6], [4, 6], [5, 7]]
    assert found[0] == found[1]


def test_constraint_check():
    assert npx.constraint_check(np.array([1.0, 2.0]) > 0, "bad").asnumpy()
    with pytest.raises(ValueError, match="must be positive"):
        npx.constraint_check(np.array([1.0, -2.0]) > 0, "must be positive").wait_to_read()


def test_masked_softmax():
    x, mask = np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 0.0, 1.0]])
    e = onp.exp([1.0, 3.0])
    want = onp.float64([e[0], 0, e[1]]) / e.sum()
    onp.testing.assert_allclose(npx.masked_softmax(x, mask).asnumpy()[0], want, rtol=1e-6)
    with onp.errstate(divide="ignore"):
        log = onp.log(want)
    onp.testing.assert_allclose(npx.masked_log_softmax(x, mask).asnumpy()[0], log, rtol=1e-6)


PATHS = """np npx numpy numpy_extension nd.np nd.npx ndarray.numpy ndarray.numpy_extension sym.np
sym.npx symbol.numpy symbol.numpy_extension numpy_extension.image npx.image symbol.npx.image util
numpy.multiarray numpy._op numpy.arrayprint numpy.fallback numpy.fallback_linalg
numpy.function_base numpy.io numpy.linalg numpy.random numpy.set_functions numpy.stride_tricks
numpy.utils ndarray.numpy._op ndarray.numpy.linalg ndarray.numpy.random numpy_extension.random
numpy_extension.utils numpy_extension._op symbol.numpy._symbol symbol.numpy._op
symbol.numpy.linalg symbol.numpy.random symbol.numpy_extension._op""".split()


@pytest.mark.parametrize("path", PATHS)
def test_paths(path):
    module = importlib.import_module(f"plait.{path}")
    found = mx
    for name in path.split("."):
        found = getattr(found, name)
    assert found is module


def test_paths_in_compatibility_mode():
    lines = [f"import mxnet.{p}" for p in PATHS]
    script = "\n".join(
        [
            "import plait.compat; plait.compat.install()",
            "import mxnet as mx",
            "from mxnet import autograd, gluon, np, npx",
            "from mxnet.symbol.numpy import _Symbol",
            "from mxnet.util import use_np",
            *lines,
            "import plait",
            "assert np is plait.np and mx.np is np and mx.nd.np is np and mx.sym.npx",
            "assert not hasattr(np, 'gluon')",
            "npx.set_np(); assert type(gluon.nn.Flatten()(np.array([[1.0]]))) is np.ndarray",
        ]
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_np_is_not_imported_by_those_who_do_not_use_it():
    script = (
        "import sys, plait as mx; (mx.nd.ones(2) + 1).asnumpy(); mx.gluon.nn.Dense(2)\n"
        "assert not [m for m in sys.modules if m.startswith('plait.kernels.ops.np')]\n"
        "assert 'plait.ndarray.numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
