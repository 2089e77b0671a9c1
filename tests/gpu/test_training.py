"""Training and prediction on GPUs give the CPU's numbers: blocks, devices, stores, chunks."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn

amp = mx.contrib.amp
two = pytest.mark.skipif(mx.num_gpus() < 2, reason="needs two GPUs")


def network():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.MaxPool2D(),
        nn.Dense(8, activation="tanh"),
        nn.Dropout(0.3),
        nn.Dense(3),
    )
    return net


def train(devices, hybridize, optimizer="sgd", kvstore="device", on_store=None, steps=3):
    """Losses and the sum of every parameter after some steps."""
    mx.random.seed(3)
    net = network()
    net.initialize(mx.init.Xavier(), ctx=devices)
    rng = np.random.default_rng(0)
    images, classes = rng.normal(size=(8, 2, 6, 6)).astype("float32"), np.arange(8) % 3
    net(nd.array(images[:1], ctx=devices[0]))
    for p in net.collect_params().values():
        if p.grad_req != "null":
            p.set_data(nd.array(rng.normal(size=p.shape) / 3))
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(),
        optimizer,
        {"learning_rate": 0.05, "wd": 0.01},
        kvstore=kvstore,
        update_on_kvstore=on_store,
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(steps):
        data = gluon.utils.split_and_load(images, devices)
        labels = gluon.utils.split_and_load(classes, devices)
        with autograd.record(train_mode=len(devices) == 1):  # batch statistics are a device's own
            parts = [loss_of(net(x), y) for x, y in zip(data, labels)]
        autograd.backward(parts)
        trainer.step(len(images))
        losses.append(sum(part.sum().asscalar() for part in parts))
    sums = [p.data(devices[-1]).sum().asscalar() for p in net.collect_params().values()]
    return np.array([*losses, *sums], "float64")


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_is_the_cpus(hybridize, optimizer):
    expected = train([mx.cpu()], hybridize, optimizer)
    np.testing.assert_allclose(train([mx.gpu()], hybridize, optimizer), expected, rtol=2e-4)


@two
@pytest.mark.parametrize("kvstore, on_store", [("device", True), ("device", False), ("nccl", None)])
def test_two_gpus_train_as_two_cpus(kvstore, on_store):
    expected = train([mx.cpu(0), mx.cpu(1)], True)
    found = train([mx.gpu(0), mx.gpu(1)], True, kvstore=kvstore, on_store=on_store)
    np.testing.assert_allclose(found, expected, rtol=2e-4)


@two
def test_nccl_store():
    store = mx.kv.create("nccl")
    store.init("w", nd.zeros((2, 3)))
    arrays = [nd.full((2, 3), i + 1, ctx=mx.gpu(i)) for i in range(2)]
    store.pushpull("w", arrays)
    out = nd.empty((2, 3))
    store.pull("w", out=out)
    for a in (*arrays, out):
        np.testing.assert_array_equal(a.asnumpy(), np.full((2, 3), 3))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, wd=0))
    store.pushpull("w", arrays, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.zeros((2, 3)))
    with pytest.raises(mx.MXNetError, match="must be on different GPUs"):
        store.pushpull("w", [arrays[0], arrays[0].copy()])


def test_chunks_stream_through_a_gpu():
    x = nd.random.normal(shape=(20, 5))
    w = nd.random.normal(shape=(7, 5))
    on_gpu = w.as_in_context(mx.gpu())
    y = mx.stream(
        lambda part: nd.relu(nd.FullyConnected(part, on_gpu, num_hidden=7, no_bias=True)),
        x,
        ctx=mx.gpu(),
        rows=6,
    )
    assert y.context == mx.cpu_pinned()
    expected = np.maximum(x.asnumpy() @ w.asnumpy().T, 0)
    np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-5, atol=1e-5)


def test_pinned_batches_reach_the_gpu():
    data = gluon.data.ArrayDataset(np.arange(12, dtype="float32").reshape(6, 2), np.arange(6))
    loader = gluon.data.DataLoader(data, 4, pin_memory=True)
    seen = []
    for x, label in loader:
        assert x.context == label.context == mx.cpu_pinned()
        seen.append(x.as_in_context(mx.gpu()).sum(axis=1).asnumpy())
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(1, 25, 4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("hybridize", [False, True])
def test_mixed_precision(dtype, hybridize):
    full = train([mx.gpu()], hybridize)
    with amp.autocast(dtype):
        mixed = train([mx.gpu()], hybridize)
    np.testing.assert_allclose(mixed[:3], full[:3], rtol=2e-2)
    assert (mixed != full).any()
