"""Small networks that `plait compile` is tried with, and their inputs."""

import numpy as np
import plait as mx
from plait import gluon, nd
from plait.gluon import nn, rnn


class Residual(gluon.HybridBlock):
    """Two convolutions and a shortcut, which has one too where the size changes."""

    def __init__(self, channels, stride):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(
            nn.Conv2D(channels, 3, stride, 1, use_bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, 3, 1, 1, use_bias=False),
            nn.BatchNorm(),
        )
        self.short = nn.Conv2D(channels, 1, stride, use_bias=False) if stride > 1 else None

    def hybrid_forward(self, F, x):
        return F.relu(self.body(x) + (x if self.short is None else self.short(x)))


class Attention(gluon.HybridBlock):
    """A layer of a transformer: attention of four heads, normalised, and two products."""

    def __init__(self, units=32, heads=4):
        super().__init__()
        self.heads, self.scale = heads, (units // heads) ** -0.5
        self.projections = nn.HybridSequential()
        for _ in range(4):
            self.projections.add(nn.Dense(units, flatten=False))
        self.first, self.second = nn.LayerNorm(), nn.LayerNorm()
        self.inner = nn.Dense(2 * units, activation="relu", flatten=False)
        self.outer = nn.Dense(units, flatten=False)

    def hybrid_forward(self, F, x):
        def split(y):
            y = F.transpose(F.reshape(y, (0, 0, self.heads, -1)), (0, 2, 1, 3))
            return F.reshape(y, (-3, 0, 0))

        q, k, v = (split(self.projections[i](x)) for i in range(3))
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale)
        y = F.reshape(F.batch_dot(weights, v), (-4, -1, self.heads, 0, 0))
        y = F.reshape(F.transpose(y, (0, 2, 1, 3)), (0, 0, -3))
        x = self.first(x + self.projections[3](y))
        return self.second(x + self.outer(self.inner(x)))


class Pair(gluon.HybridBlock):
    """Two inputs, two outputs, groups of pointwise operators, and a loop of a reference."""

    def hybrid_forward(self, F, a, b):
        y = F.exp(-F.abs(a)) * b + F.sqrt(F.abs(b) + 1)
        return F.log_softmax(y), F.cumsum(F.sin(y) * 0.5, axis=1)


def lenet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(6, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(16, 5, activation="relu"),
        nn.MaxPool2D(2),
        nn.Dense(120, activation="relu"),
        nn.Dense(84, activation="relu"),
        nn.Dense(10),
    )
    return net, {"data": (1, 1, 28, 28)}


def resnet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(16, 7, 2, 3),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(3, 2, 1),
        Residual(16, 1),
        Residual(32, 2),
        nn.GlobalAvgPool2D(),
        nn.Dense(10),
    )
    return net, {"data": (2, 3, 48, 48)}


def lstm():
    net = nn.HybridSequential()
    net.add(nn.Embedding(50, 24), rnn.LSTM(32, layout="NTC"), nn.Dense(7, flatten=False))
    return net, {"words": (2, 9)}


def transformer():
    net = nn.HybridSequential()
    net.add(Attention(), Attention())
    return net, {"data": (2, 10, 32)}


def pair():
    return Pair(), {"a": (5, 70), "b": (1, 70)}


NETWORKS = {f.__name__: f for f in (lenet, resnet, lstm, transformer, pair)}
DTYPES = {"words": "int32"}


def make(name):
    """(a network with parameters, its inputs as NumPy arrays by name)."""
    mx.random.seed(3)
    net, shapes = NETWORKS[name]()
    net.initialize(mx.init.Xavier())
    rng = np.random.RandomState(1)
    inputs = {
        k: rng.randint(0, 50, s).astype("int32")
        if DTYPES.get(k) == "int32"
        else rng.normal(size=s).astype("float32")
        for k, s in shapes.items()
    }
    net(*arrays(inputs))  # the shapes of parameters
    return net, inputs


def arrays(inputs):
    return [nd.array(x, dtype=x.dtype) for x in inputs.values()]


def frozen(net, inputs):
    """What plait computes, by the program that is compiled."""
    net.hybridize()
    net.freeze()
    made = net(*arrays(inputs))
    return [y.asnumpy() for y in (made if isinstance(made, (list, tuple)) else [made])]
