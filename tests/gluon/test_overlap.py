"""Gradients are summed over devices while backward still runs; forward begins while weights of its
last layers are still written."""

import threading

import numpy as np
import plait as mx
import pytest
from plait import autograd, engine, gluon, nd
from plait.gluon import nn

BOTH = [mx.cpu(0), mx.cpu(1)]
SECONDS = 60  # before what never comes is a failure
gate = threading.Event()


class Gate(mx.operator.CustomOp):
    """The identity, whose backward waits for the gate."""

    fails = False

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        if not gate.wait(SECONDS):
            raise RuntimeError("the gate stays closed")
        if Gate.fails:
            raise RuntimeError("backward fails in the middle")
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("overlap_gate")
class GateProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Gate()


class Net(gluon.HybridBlock):
    def __init__(self, gated):
        super().__init__(prefix="net_")
        self.gated = gated
        with self.name_scope():
            self.low, self.high = nn.Dense(4, in_units=3), nn.Dense(2, in_units=4)

    def hybrid_forward(self, F, x):
        x = self.low(x)
        if self.gated:
            x = F.Custom(x, op_type="overlap_gate")
        return self.high(x)


def network(gated=True, hybridize=False):
    net = Net(gated)
    net.initialize(mx.init.Xavier(), ctx=BOTH)
    values = np.random.RandomState(1)
    for p in net.collect_params().values():
        p.set_data(nd.array(values.randn(*p.shape)))
    if hybridize:
        net.hybridize()
    return net


def backward(net, at_once=True):
    x = np.random.RandomState(0).randn(8, 3).astype(np.float32)
    with autograd.record():
        losses = [(net(a) ** 2).sum() for a in gluon.utils.split_and_load(x, BOTH)]
    if at_once:
        autograd.backward(losses)
    else:
        for loss in losses:
            loss.backward()


def trainer_of(net, **arguments):
    return gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **arguments
    )


@pytest.fixture(autouse=True)
def closed():
    gate.clear()
    Gate.fails = False
    yield
    gate.set()
    while True:
        try:
            engine.waitall()
            return
        except mx.MXNetError:
            pass


def within(seconds, fn):
    """Runs fn on a thread; False if it takes longer."""
    thread = threading.Thread(target=fn, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_sums_of_gradients_overlap_with_backward(at_once, hybridize):
    net = network(hybridize=hybridize)
    trainer = trainer_of(net, update_on_kvstore=False)
    backward(net, at_once)
    trainer.allreduce_grads()
    assert within(SECONDS / 2, net.high.weight.list_grad()[0].wait_to_read)
    assert engine.lib.pl_engine_pending() > 0 and not gate.is_set()
    top = [g.asnumpy() for g in net.high.weight.list_grad()]
    np.testing.assert_array_equal(*top)
    gate.set()
    np.testing.assert_array_equal(*(g.asnumpy() for g in net.low.weight.list_grad()))


@pytest.mark.parametrize(
    "arguments", [{}, {"update_on_kvstore": False}, {"kvstore": "local"}, {"kvstore": "teststore"}]
)
def test_results_equal_those_without_overlap(arguments, monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")  # compiled programs round differently
    gate.set()
    found = []
    for waits in (False, True):
        net = network()
        trainer = trainer_of(net, **arguments)
        for _ in range(3):
            backward(net)
            if waits:
                engine.waitall()
            trainer.step(8)
            if waits:
                engine.waitall()
        found.append([p.data(c).asnumpy() for p in net.collect_params().values() for c in BOTH])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)


def test_failed_backward_poisons_gradients_not_yet_computed():
    Gate.fails = True
    net = network()
    trainer = trainer_of(net, update_on_kvstore=False)
    backward(net)
    trainer.allreduce_grads()
    top = net.high.weight.list_grad()[0].asnumpy()
    gate.set()
    for ctx in BOTH:
        with pytest.raises(RuntimeError, match="fails in the middle"):
            net.low.weight.grad(ctx).asnumpy()
    assert np.isfinite(top).all()
    Gate.fails = False
    backward(net)
    trainer.allreduce_grads()
    np.testing.assert_array_equal(*(g.asnumpy() for g in net.low.weight.list_grad()))


def test_heads_of_two_devices_that_share_a_variable_are_one_graph():
    w = nd.ones((2,))
    w.attach_grad()
    with autograd.record():
        a, b = (w * 2).sum(), (w.as_in_context(mx.cpu(1)) * 3).sum()
    autograd.backward([a, b])
    assert w.grad.asnumpy().tolist() == [5.0, 5.0]


def test_ready_sums_run_in_order_of_priority():
    kv = mx.kv.create("device")
    kv.init([0, 1, 2], [nd.zeros((2, 500000))] * 3)
    arrays = [[nd.ones((2, 500000), c) for c in BOTH] for _ in range(3)]
    engine.waitall()
    order, held = [], threading.Event()
    engine.push(lambda: held.wait(SECONDS), lane="comm")
    kv.push([0, 1, 2], arrays, priority=[-2, 5, 0])
    for k in range(3):
        read = [kv._stored[k]]
        engine.push(lambda k=k: order.append(k), reads=read, lane="comm", priority=9)
    held.set()
    engine.waitall()
    assert order == [1, 2, 0]
    with pytest.raises(mx.MXNetError, match="a priority for each of 3 keys"):
        kv.push([0, 1, 2], arrays, priority=[1])


def test_of_updates_that_can_be_made_the_one_with_the_highest_priority_comes_first():
    kv, shape = mx.kv.create("device"), (1 << 20, 1)  # each is a bucket of its own
    kv.init([0, 1], [nd.zeros(shape)] * 2)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    order, weights = [], [[nd.zeros(shape, c) for c in BOTH] for _ in range(2)]
    grads = [[nd.ones(shape, c) for c in BOTH] for _ in range(2)]
    engine.waitall()
    engine.push(lambda: gate.wait(SECONDS))  # on the lane of the updates
    kv.pushpull([1, 0], grads, out=weights, priority=[-1, 0])
    sums = engine.Var()
    engine.push(lambda: None, grads[0] + grads[1], [sums], lane="comm", priority=-9)
    for k, outs in zip([1, 0], weights):
        engine.push(lambda k=k: order.append(k), reads=outs[:1], priority=9)
    engine.wait(sums._handle)
    gate.set()
    engine.waitall()
    assert order == [0, 1]
    assert all((w.asnumpy() == -2.0).all() for outs in weights for w in outs)


# ---- arrays that are written while a program runs ------------------------------------------------


class Stack(gluon.HybridBlock):
    """The first layer's value is an output too, so that a test can see how far a program is."""

    def __init__(self, second):
        super().__init__()
        with self.name_scope():
            self.low = nn.Dense(4, in_units=3, use_bias=False)
            self.high = nn.Dense(2, in_units=4, use_bias=False)
        self.second = second

    def hybrid_forward(self, F, x):
        h = self.low(x)
        z = F.tanh(h)
        return h, self.high(z if self.second == mx.cpu(0) else z.as_in_context(self.second))


def stack(second=BOTH[0]):
    net = Stack(second)
    net.low.initialize(mx.init.Xavier(), ctx=mx.cpu(0))
    net.high.initialize(mx.init.Xavier(), ctx=second)
    net.hybridize()
    return net


def inference(net, x):
    return net(x)


def training(net, x):
    with autograd.record():
        return net(x)


def executor(net, x):
    given = {p.name: p.data() for p in net.collect_params().values()}
    return (
        mx.sym.Group(list(net(mx.sym.var("data")))).bind(x.context, {"data": x, **given}).forward()
    )


def is_ready(array):
    return engine.lib.pl_wait_read(array._handle, 0) == engine.lib.PL_OK


def write_at_the_gate(array, fails=False):
    """An operation that writes an array on the lane for communication, when the gate is open."""

    def write():
        assert gate.wait(SECONDS)
        if fails:
            raise ValueError("the network is gone")
        array._memory()[...] += 1.0

    engine.push(write, [array], [array], lane="comm")


@pytest.mark.parametrize(
    "forward, second",
    [(inference, BOTH[0]), (inference, BOTH[1]), (training, BOTH[0]), (training, BOTH[1])]
    + [(executor, BOTH[0])],
)
def test_forward_begins_while_the_last_weights_are_written(forward, second):
    net, x = stack(second), np.random.RandomState(0).randn(5, 3)
    for _ in range(4):  # tiers compile, stable weights are packed
        gate.clear()
        forward(net, nd.array(x))[1].wait_to_read()
        write_at_the_gate(net.high.weight.data())
        h, y = forward(net, nd.array(x))
        assert within(SECONDS / 2, h.wait_to_read) and not gate.is_set() and not is_ready(y)
        other = nd.ones((3,)) * 2  # the lane is free
        assert within(SECONDS / 2, other.wait_to_read) and not is_ready(y)
        gate.set()
        expected = x @ net.low.weight.data().asnumpy().astype(np.float64).T
        np.testing.assert_allclose(h.asnumpy(), expected, rtol=1e-5, atol=1e-6)
        expected = np.tanh(expected) @ net.high.weight.data().asnumpy().astype(np.float64).T
        np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-5, atol=1e-5)


def test_backward_begins_while_the_gradient_of_the_first_layer_is_read():
    net, x = stack(), np.random.RandomState(0).randn(5, 3)
    for p in net.collect_params().values():
        p.grad_req = "add"
    for step in range(4):
        gate.clear()
        h, y = training(net, nd.array(x))
        y.backward()
        engine.waitall()
        low, high = net.low.weight.grad(), net.high.weight.grad()
        engine.push(lambda: gate.wait(SECONDS), [low], [], lane="comm")  # as a sum that reads it
        h, y = training(net, nd.array(x))
        y.backward()
        assert within(SECONDS / 2, high.wait_to_read) and not gate.is_set()
        gate.set()
        w1, w2 = (p.data().asnumpy().astype(np.float64) for p in net.collect_params().values())
        z, times = x @ w1.T, 2 * (step + 1)
        by_hand = np.ones((5, 2)).T @ np.tanh(z), ((np.ones((5, 2)) @ w2) / np.cosh(z) ** 2).T @ x
        for grad, expected in zip((high, low), by_hand):
            np.testing.assert_allclose(grad.asnumpy(), times * expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("naive", [False, True])
def test_a_weight_that_could_not_be_written_stops_forward_where_it_is_read(naive):
    net, x = stack(), np.random.RandomState(0).randn(5, 3)
    inference(net, nd.array(x))[1].wait_to_read()
    w = net.high.weight.data()
    expected = x @ net.low.weight.data().asnumpy().astype(np.float64).T
    if naive:
        gate.set()
    engine.set_naive(naive)
    try:
        write_at_the_gate(w, fails=True)
        h, y = training(net, nd.array(x))
        np.testing.assert_allclose(h.asnumpy(), expected, rtol=1e-5, atol=1e-6)
        gate.set()
        with pytest.raises(ValueError, match="the network is gone"):
            y.asnumpy()
    finally:
        engine.set_naive(False)
