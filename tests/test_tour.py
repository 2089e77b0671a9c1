"""The whole API in one file: what a user of plait does, in the order in which it is learnt."""

import numpy as np
import plait as mx
from plait import autograd, gluon, nd, sym
from plait.gluon import nn


def test_arrays():
    a = nd.array([[1, 2], [3, 4]])  # float32, whatever comes in
    b = a * 2 + nd.ones((2, 2))
    assert b.shape == (2, 2) and b.dtype == np.float32 and b.context == mx.cpu()
    assert b.asnumpy().tolist() == [[3, 5], [7, 9]]
    assert b.sum().asscalar() == 24
    a[0] = 0  # rows are views
    assert a[1, :].asnumpy().tolist() == [3, 4] and a.sum().asscalar() == 7
    assert nd.concat(a, b, dim=0).reshape((-1, 4)).shape == (2, 4)
    assert nd.dot(a, b).asnumpy().tolist() == (a.asnumpy() @ b.asnumpy()).tolist()
    assert np.asarray(b.astype("int32")).dtype == np.int32


def test_random_numbers():
    mx.random.seed(7)
    first = nd.random.normal(0, 1, shape=(1000,)).asnumpy()
    mx.random.seed(7)
    assert np.array_equal(first, nd.random.normal(0, 1, shape=(1000,)).asnumpy())
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.1


def test_files(tmp_path):
    nd.save(str(tmp_path / "x.params"), {"w": nd.arange(3)})
    assert nd.load(str(tmp_path / "x.params"))["w"].asnumpy().tolist() == [0, 1, 2]


def test_gradients():
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = (x**3).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [3, 12]
    with autograd.record():
        first = autograd.grad((x**3).sum(), x, create_graph=True)[0]
        y = first.sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [6, 12]  # the second order


def test_the_engine():
    order, var = [], mx.engine.Var()
    mx.engine.push(lambda: order.append("write"), writes=[var])
    mx.engine.push(lambda: order.append("read"), reads=[var])
    mx.nd.waitall()
    assert order == ["write", "read"]


def test_symbols(tmp_path):
    x = sym.var("data")
    out = sym.FullyConnected(sym.relu(x), num_hidden=2, name="fc")
    assert out.list_arguments() == ["data", "fc_weight", "fc_bias"]
    assert out.infer_shape(data=(3, 4))[1] == [(3, 2)]
    out.save(str(tmp_path / "net-symbol.json"))
    executor = sym.load(str(tmp_path / "net-symbol.json")).simple_bind(mx.cpu(), data=(3, 4))
    executor.arg_dict["fc_weight"][:] = 1
    executor.arg_dict["fc_bias"][:] = 5
    assert (
        executor.forward(is_train=True, data=nd.ones((3, 4)))[0].asnumpy().tolist() == [[9, 9]] * 3
    )
    executor.backward(nd.ones((3, 2)))
    assert executor.grad_dict["fc_bias"].asnumpy().tolist() == [3, 3]
    assert "FullyConnected" in mx.viz.plot_network(out, shape={"data": (3, 4)}).source


class Residual(gluon.HybridBlock):
    """A block of one's own: x + dense(x). (N, units) -> (N, units)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.Dense(units, in_units=units, activation="tanh")
            self.scale = self.params.get("scale", shape=(1,), init=mx.init.One())

    def hybrid_forward(self, F, x, scale):
        return x + F.broadcast_mul(self.dense(x), scale)


def make_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 8)).astype(np.float32)
    return gluon.data.ArrayDataset(x, (x.sum(axis=1) > 0).astype(np.float32))


def test_training(tmp_path):
    mx.seed_all(1)
    loader = gluon.data.DataLoader(make_data(), batch_size=32, shuffle=True)
    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu"), Residual(16), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True)
    loss_of, metric = gluon.loss.SoftmaxCrossEntropyLoss(), mx.metric.Accuracy()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    for _ in range(8):
        metric.reset()
        for x, y in loader:
            with autograd.record():
                out = net(x)
                loss = loss_of(out, y)
            loss.backward()
            trainer.step(x.shape[0])
            metric.update([y], [out])
    assert metric.get()[1] > 0.9

    net.save_parameters(str(tmp_path / "net.params"))  # weights
    net.export(str(tmp_path / "net"), epoch=8)  # graph and weights
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0008.params")
    )
    np.testing.assert_allclose(again(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_eager_is_hybridized():
    net = Residual(4)
    net.initialize()
    x = nd.random.uniform(shape=(2, 4))
    eager = net(x).asnumpy()
    net.hybridize()
    np.testing.assert_allclose(net(x).asnumpy(), eager, rtol=1e-6)


def test_recurrent_and_convolutional_layers():
    lstm = gluon.rnn.LSTM(5, num_layers=2, bidirectional=True)
    lstm.initialize()
    out, states = lstm(nd.ones((7, 3, 4)), lstm.begin_state(batch_size=3))
    assert out.shape == (7, 3, 10) and [s.shape for s in states] == [(4, 3, 5)] * 2
    net = gluon.model_zoo.vision.get_model("mobilenet0.25", classes=10)
    net.initialize()
    assert net(nd.ones((1, 3, 32, 32))).shape == (1, 10)


def test_profiler(tmp_path):
    mx.profiler.set_config(filename=str(tmp_path / "trace.json"), profile_all=True)
    mx.profiler.start()
    nd.dot(nd.ones((64, 64)), nd.ones((64, 64))).wait_to_read()
    mx.profiler.stop()
    assert "dot" in mx.profiler.dumps()
    mx.profiler.dump()
    assert (tmp_path / "trace.json").stat().st_size > 0
