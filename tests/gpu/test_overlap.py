"""Sums of gradients over devices, whose copies wait for events inside recorded programs."""

import os

os.environ.setdefault("EMULATOR_DELAY_US", "300")  # read when the first stream is made

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd


def both():
    if mx.context.num_gpus() < 2:
        pytest.skip("one GPU")
    return [mx.gpu(0), mx.gpu(1)]


def network(ctx):
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for before, units in zip((40, 20, 12, 8), (20, 12, 8, 30)):  # sizes of their own
            net.add(gluon.nn.Dense(units, activation="tanh", in_units=before))
    net.initialize(mx.init.Xavier(), ctx=ctx)
    values = np.random.RandomState(1)
    for p in net.collect_params().values():
        p.set_data(nd.array(values.randn(*p.shape) / 20))
    net.hybridize()
    return net


def backward(net, ctx):
    x = np.random.RandomState(0).randn(8, 40).astype(np.float32)
    with autograd.record():
        made = [net(a) for a in gluon.utils.split_and_load(x, ctx)]
        losses = [(y * y).sum() for y in made]
    autograd.backward(losses)


def trainer_of(net, **arguments):
    params = {"learning_rate": 0.01, "momentum": 0.9}
    return gluon.Trainer(net.collect_params(), "sgd", params, **arguments)


@pytest.mark.parametrize(
    "arguments", [{}, {"update_on_kvstore": False}, {"kvstore": "nccl"}, {"kvstore": "local"}]
)
def test_training_is_what_it_is_with_waits_between(arguments, monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    found = []
    for waits in (False, True):
        ctx = both()
        net = network(ctx)
        trainer = trainer_of(net, **arguments)
        for _ in range(8):
            backward(net, ctx)
            if waits:
                mx.nd.waitall()
            trainer.step(8)
            if waits:
                mx.nd.waitall()
        found.append([p.data(c).asnumpy() for p in net.collect_params().values() for c in ctx])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)
