"""Inputs of other sizes reuse the trace of a network; the answer is the same bits as of a fresh
trace."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn, rnn
from plait.gluon.trace import Trace

WIDTH = 8


class Residual(gluon.HybridBlock):
    """x + f(x): the operator depends on whether the shapes of its inputs differ."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.inside = nn.Dense(WIDTH, flatten=False, activation="relu", in_units=WIDTH)

    def hybrid_forward(self, F, x):
        return x + self.inside(x) * 0.5


class Attention(gluon.HybridBlock):
    def __init__(self, n_heads=2):
        super().__init__()
        self.n_heads = n_heads
        with self.name_scope():
            self.qkv = nn.Dense(3 * WIDTH, flatten=False, in_units=WIDTH)
            self.norm = nn.LayerNorm(in_channels=WIDTH)

    def hybrid_forward(self, F, x):
        def heads(t):
            t = F.reshape(t, shape=(0, 0, self.n_heads, -1))
            return F.reshape(F.transpose(t, axes=(0, 2, 1, 3)), shape=(-3, 0, 0))

        q, k, v = (heads(t) for t in F.split(self.qkv(x), 3, axis=-1))
        y = F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True), axis=-1), v)
        y = F.reshape(y, shape=(-4, -1, self.n_heads, 0, 0))
        y = F.reshape(F.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -3))
        return self.norm(x + y)


class Broadcast(gluon.HybridBlock):
    """Sums over an axis that are broadcast again."""

    def hybrid_forward(self, F, x):
        mean = F.mean(x, axis=1, keepdims=True)
        return F.broadcast_mul(x - mean, F.broadcast_like(mean, x)) + mean


class Loop(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        def step(row, state):
            state = state + row
            return state * 0.5, state

        x = F.swapaxes(x, dim1=0, dim2=1)
        out, _ = F.contrib.foreach(step, x, F.zeros_like(F.squeeze(F.slice_axis(x, 0, 0, 1), 0)))
        return out


class ReadsSizes(gluon.HybridBlock):
    """Its graph depends on the length."""

    def hybrid_forward(self, F, x):
        n = x.shape[1]
        return x * (1.0 / n) if n % 2 else x[:, 1:] - float(n)


def sequential(*blocks):
    net = nn.HybridSequential()
    net.add(*blocks)
    return net


def images():
    return sequential(
        nn.Conv2D(4, 3, padding=1, in_channels=2), nn.BatchNorm(in_channels=4),
        nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(3, in_units=4),
    )  # fmt: skip


def tokens():
    return sequential(
        nn.Embedding(20, WIDTH), rnn.LSTM(WIDTH, 2, layout="NTC", input_size=WIDTH), Residual()
    )


# a network; the shape of an input for a batch and a length; how many graphs all sizes need, where
# sizes decide: 0
NETWORKS = {
    "attention": (lambda: sequential(Attention(), Residual()), lambda b, n: (b, n, WIDTH), 1),
    "broadcast": (lambda: sequential(Residual(), Broadcast()), lambda b, n: (b, n, WIDTH), 2),
    "batch norm": (images, lambda b, n: (b, 2, n, n + 1), 1),
    "tokens": (tokens, lambda b, n: (b, n), 1),
    "loop": (lambda: sequential(Residual(), Loop()), lambda b, n: (b, n, WIDTH), 0),
    "reads sizes": (
        lambda: sequential(Residual(), ReadsSizes()),
        lambda b, n: (b, n + 2, WIDTH),
        0,
    ),
}


def made(name):
    make, shape_of, _ = NETWORKS[name]
    net = make()
    net.initialize()
    rng = np.random.RandomState(1)
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.uniform(0.1, 0.5, p.shape)))
    net.hybridize()
    return net, shape_of


def bits(net, x, train):
    """Outputs, and while training the gradients."""
    found = []
    if train:
        with autograd.record():
            y = net(x)
        y.backward()
        found = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
    else:
        y = net(x)
    return [(a.shape, a.asnumpy().tobytes()) for a in (y, *found)]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_as_of_a_fresh_trace(name, monkeypatch):
    traced, init = [], Trace.__init__

    def counted(self, block, *args):
        traced.append(block)
        init(self, block, *args)

    monkeypatch.setattr(Trace, "__init__", counted)
    rng = np.random.RandomState(len(name))
    net, shape_of = made(name)
    sizes = [(3, 1), *rng.randint(1, 9, (12, 2)).tolist()]
    for train in (False, True):
        traced.clear()
        for b, n in sizes:
            x = nd.array(rng.randint(0, 20, shape_of(b, n)))
            fresh, _ = made(name)
            assert bits(net, x, train) == bits(fresh, x, train)
        n_graphs = NETWORKS[name][2]
        assert traced.count(net) == (n_graphs or len({shape_of(*s) for s in sizes}))


@pytest.mark.parametrize("train", [False, True])
def test_values_are_numpys(train):
    net = Broadcast()
    net.hybridize()
    rng = np.random.RandomState(0)
    for b, n in ((2, 1), (3, 4), (1, 1), (5, 7)):
        x = rng.randn(b, n, 3)
        mean = x.mean(1, keepdims=True)
        with autograd.record(train_mode=train):
            got = net(nd.array(x)).asnumpy()
        np.testing.assert_allclose(got, (x - mean) * mean + mean, rtol=1e-4, atol=1e-6)


def test_sizes_that_do_not_fit_raise_what_a_trace_raises():
    net, _ = made("attention")
    net(nd.ones((2, 3, WIDTH)))
    with pytest.raises(mx.MXNetError, match="shape"):
        net(nd.ones((2, 3, WIDTH + 1)))
    net(nd.ones((2, 5, WIDTH)))


@pytest.mark.parametrize("first", [2, 0])
def test_operators_of_np_name_the_line_for_any_sizes(first):
    net = nn.HybridLambda(lambda F, x: F.np.insert(x, 1, 3.0, axis=0))
    net.hybridize()
    if first:
        net(mx.np.ones((first, 3)))
    with pytest.raises(mx.MXNetError, match=r"test_other_sizes.py:\d+, node"):
        net(mx.np.ones((0, 3)))
