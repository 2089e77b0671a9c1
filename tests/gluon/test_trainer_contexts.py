"""Trainer over several devices gives what one device gives."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn

BOTH = [mx.cpu(0), mx.cpu(1)]
R = np.random.RandomState(0)
X, Y = R.randn(3, 8, 5).astype(np.float32), R.randn(3, 8, 2).astype(np.float32)


def network(ctx, norm=False):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(6, activation="tanh"), nn.Dense(2))
        if norm:
            net.add(nn.BatchNorm())
    net.initialize(mx.init.Xavier(), ctx=ctx)
    values = np.random.RandomState(1)
    net.infer_shape(nd.zeros((1, 5)))
    for p in net.collect_params().values():
        if "running" not in p.name and "gamma" not in p.name:
            p.set_data(nd.array(values.randn(*p.shape)))
    return net


def train(net, trainer, contexts, epochs=2, allreduce=False):
    loss_fn = gluon.loss.L2Loss()
    for _ in range(epochs):
        for x, y in zip(X, Y):
            with autograd.record():
                losses = [
                    loss_fn(net(a), b)
                    for a, b in zip(
                        gluon.utils.split_and_load(x, contexts),
                        gluon.utils.split_and_load(y, contexts),
                    )
                ]
            autograd.backward(losses)
            if allreduce:
                trainer.allreduce_grads()
                trainer.update(8)
            else:
                trainer.step(8)
    return [p.data(contexts[0]).asnumpy() for p in net.collect_params().values()]


def trainer_of(net, optimizer="sgd", **arguments):
    params = {"learning_rate": 0.1} | ({"momentum": 0.9, "wd": 0.01} if optimizer == "sgd" else {})
    return gluon.Trainer(net.collect_params(), optimizer, params, **arguments)


def single(optimizer="sgd"):
    net = network(mx.cpu(0))
    return train(net, trainer_of(net, optimizer), [mx.cpu(0)])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"kvstore": "local"},
        {"kvstore": "device", "update_on_kvstore": False},
        {"kvstore": "teststore"},
        {"update_on_kvstore": True},
    ],
)
def test_every_store_gives_the_result_of_one_device(arguments):
    net = network(BOTH)
    trainer = trainer_of(net, **arguments)
    for a, b in zip(train(net, trainer, BOTH), single()):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    for p in net.collect_params().values():
        np.testing.assert_array_equal(*(a.asnumpy() for a in p.list_data()))
        assert p.list_ctx() == BOTH and [g.context for g in p.list_grad()] == BOTH


def test_store_object_is_used_for_one_device_too():
    net = network(mx.cpu(0))
    store = mx.kv.create("local")
    trainer = trainer_of(net, "adam", kvstore=store)
    for a, b in zip(train(net, trainer, [mx.cpu(0)]), single("adam")):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert trainer._kvstore is store
    assert trainer_of(net)._kvstore is None


def test_without_a_store_devices_diverge():
    net = network(BOTH)
    train(net, trainer_of(net, kvstore=None), BOTH)
    a, b = net[0].weight.list_data()
    assert np.abs(a.asnumpy() - b.asnumpy()).max() > 1e-3


def test_allreduce_and_update():
    net = network(BOTH)
    trainer = trainer_of(net, update_on_kvstore=False)
    for a, b in zip(train(net, trainer, BOTH, allreduce=True), single()):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    on_store = trainer_of(network(BOTH))
    for call in (on_store.allreduce_grads, lambda: on_store.update(1)):
        with pytest.raises(AssertionError, match="updated on kvstore is not supported"):
            call()


def test_compression_keeps_weights_equal_on_all_devices():
    net = network(BOTH)
    trainer = trainer_of(net, compression_params={"type": "2bit", "threshold": 0.01})
    net(nd.zeros((1, 5)))
    before = net[0].weight.data(mx.cpu(0)).asnumpy()
    train(net, trainer, BOTH)
    a, b = (w.asnumpy() for w in net[0].weight.list_data())
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - before).max() > 1e-4


def test_deferred_shapes_and_set_data_reach_the_store():
    net = nn.Dense(2)
    net.initialize(ctx=BOTH)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

    def step():
        with autograd.record():
            losses = [net(nd.ones((2, 3), ctx=c)).sum() for c in BOTH]
        autograd.backward(losses)
        trainer.step(4)

    step()
    net.weight.set_data(nd.full((2, 3), 7.0))
    step()
    for w in net.weight.list_data():
        np.testing.assert_allclose(w.asnumpy(), 6.5)


@pytest.mark.parametrize("on_store", [True, False])
def test_states_are_saved_and_loaded(on_store, tmp_path):
    straight = network(BOTH)
    expected = train(straight, trainer_of(straight, update_on_kvstore=on_store), BOTH)
    net = network(BOTH)
    first = trainer_of(net, update_on_kvstore=on_store)
    train(net, first, BOTH, epochs=1)
    first.save_states(str(tmp_path / "states"))
    second = trainer_of(net, update_on_kvstore=on_store)
    second.load_states(str(tmp_path / "states"))
    for a, b in zip(train(net, second, BOTH, epochs=1), expected):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_errors():
    net = network(BOTH)
    with pytest.raises(ValueError, match="Please set update_on_kvstore=False"):
        trainer_of(net, kvstore="teststore", update_on_kvstore=True).step(1)
    with pytest.raises(TypeError, match="kvstore must be KVStore, str or None"):
        trainer_of(net, kvstore=3).step(1)
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        trainer_of(net).step(1)


def test_running_statistics_are_per_device_and_saved_as_mean(tmp_path):
    net = network(BOTH, norm=True)
    train(net, trainer_of(net), BOTH, epochs=1)
    mean = net[2].running_mean
    a, b = (m.asnumpy() for m in mean.list_data())
    assert np.abs(a - b).max() > 1e-3
    net.save_parameters(str(tmp_path / "p"))
    saved = nd.load(str(tmp_path / "p"))["2.running_mean"].asnumpy()
    np.testing.assert_allclose(saved, (a + b) / 2, rtol=1e-6)
    net.collect_params().reset_ctx(mx.cpu(1))
    assert mean.list_ctx() == [mx.cpu(1)]
    np.testing.assert_allclose(mean.data(mx.cpu(1)).asnumpy(), saved, rtol=1e-6)
