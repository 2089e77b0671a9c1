"""A steady training step takes no memory from the system: everything comes from the pool or from
the threads' own workspaces."""

import plait as mx
import pytest
from plait import autograd, engine, gluon, nd
from plait.gluon import nn, rnn

loss = gluon.loss.SoftmaxCrossEntropyLoss()


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Conv2D(16, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(4))
    return net, nd.random.normal(shape=(4, 3, 16, 16))


def perceptron():
    net = nn.HybridSequential()
    net.add(nn.Dense(64, activation="relu"), nn.Dropout(0.3), nn.LayerNorm(), nn.Dense(4))
    return net, nd.random.normal(shape=(4, 30))


class Language(nn.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(50, 16)
            self.lstm = rnn.LSTM(16, 2, layout="NTC")
            self.out = nn.Dense(4, flatten=True)

    def hybrid_forward(self, F, x):
        return self.out(self.lstm(self.embed(x)))


def words():
    return Language(), nd.array([[1, 2, 3], [4, 4, 5], [6, 7, 8], [9, 1, 0]])


@pytest.mark.parametrize("make", [convolutions, perceptron, words])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_no_memory_from_the_system(make, optimizer):
    net, x = make()
    net.initialize()
    net.hybridize(static_alloc=True)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01})
    label = nd.array([0, 1, 2, 3])

    def step():
        with autograd.record():
            value = loss(net(x), label)
        value.backward()
        trainer.step(4)
        nd.waitall()  # the next step may not run ahead: it would hold more at once

    for _ in range(5):
        step()
        mx.wait_compiled()
    before = None
    for i in range(20):
        step()
        if i == 5:
            before = taken()
    assert taken() == before


def taken():
    """How many blocks came from the system, and what the threads' kernels hold."""
    s = engine.stats()
    return s["allocations"] - s["pool_hits"], s["workspace_bytes"]


def test_workspaces_are_counted():
    a = nd.random.normal(shape=(300, 300))
    nd.dot(a, a).wait_to_read()
    assert engine.stats()["workspace_bytes"] > 0
    net = nn.Dense(2)
    net.initialize()
    report = net.memory_report(nd.ones((4, 3)))
    assert report.inference["workspace"] == engine.stats()["workspace_bytes"]
    assert "workspace" in str(report)
