"""Gradients go to another device while backward still runs on theirs."""

import os

os.environ.setdefault("EMULATOR_DELAY_US", "300")  # read when the first stream is made

import threading

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd

SECONDS = 60  # before what never comes is a failure


def both():
    if mx.context.num_gpus() < 2:
        pytest.skip("one GPU")
    return [mx.gpu(0), mx.gpu(1)]


def network(ctx):
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for before, units in zip((40, 100, 250, 600), (100, 250, 600, 1500)):  # sizes of their own
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


def some_of(arrays) -> list[int]:
    """Which arrays can be read while others cannot."""
    done: list[int] = []
    changed = threading.Condition()

    def look(i, array):
        array.wait_to_read()
        with changed:
            done.append(i)
            changed.notify()

    for i, array in enumerate(arrays):
        threading.Thread(target=look, args=(i, array), daemon=True).start()
    with changed:
        changed.wait_for(lambda: done, SECONDS)
        return list(done)


@pytest.mark.parametrize("kvstore", ["device", "nccl"])
def test_a_sum_is_made_while_recorded_backward_runs(emulator, kvstore, monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    monkeypatch.setattr(mx.kv.kvstore, "BUCKET_BYTES", 1)
    ctx = both()
    net = network(ctx)
    trainer = trainer_of(net, kvstore=kvstore, update_on_kvstore=False)
    grads = [p.list_grad() for p in net.collect_params().values()]
    found, wanted = [], None
    for step in range(40):  # the first ones learn what others wait for, and are recorded
        graphs = emulator.count(emulator.GRAPHS)
        emulator.hold(step > 5)
        backward(net, ctx)
        if step > 5:
            trainer.allreduce_grads()
            found = some_of([g[0] for g in grads])
            replayed = emulator.count(emulator.GRAPHS) - graphs
        else:
            trainer.allreduce_grads()
        emulator.hold(False)
        now = [[g.asnumpy() for g in both_of] for both_of in grads]
        for a, b in zip(now, wanted or now):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(*a)
        wanted = now
        if found and replayed >= 2 and max(found) - len(grads) < 0 and len(found) < len(grads):
            return
    pytest.fail(f"no sum was made while both devices replayed backward: {found}, {replayed}")


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
