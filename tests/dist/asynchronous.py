"""What test_async.py runs on workers and servers."""

from __future__ import annotations

import sys

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd


def pulled(kv, key, shape=(2, 3)):
    out = nd.empty(shape)
    kv.pull(key, out)
    return out.asnumpy()


def sequence():
    """The numbers of MXNet 1.9.1: the first worker's values; each push counts at once."""
    kv = mx.kv.create("dist_async")
    assert (kv.rank, kv.num_workers, dist.size()) == (dist.rank(), 2, 2)
    kv.init([3, 5], [nd.ones((2, 3)) * 10 * (1 + kv.rank), nd.zeros((4,))])
    np.testing.assert_array_equal(pulled(kv, 3), np.full((2, 3), 10))
    try:
        kv.push(3, nd.ones((2, 3)))
    except mx.MXNetError as error:
        assert "fix: kv.set_optimizer" in str(error)
    kv.set_optimizer(mx.optimizer.create("test"))
    for turn in range(2):
        if kv.rank == turn:
            kv.push(3, nd.ones((2, 3)))
            np.testing.assert_array_equal(pulled(kv, 3), np.full((2, 3), 11 + turn))
        kv._barrier()
    kv.push(5, [nd.ones((4,)), nd.ones((4,))])  # of two devices
    for server in dist.servers():
        kv_requests.synchronize(server)
    kv._barrier()
    np.testing.assert_array_equal(pulled(kv, 5, (4,)), np.full(4, 4))


def split():
    """A large weight on two servers, and small ones; Adam's states of each part; a rate that a
    worker changes; against one process."""
    async_store.BIG = 1000
    generator = np.random.default_rng(2)
    shapes = [(50, 40), (7,), (3, 5)]
    first = [generator.standard_normal(s).astype("float32") for s in shapes]
    alone, optimizer = mx.kv.create("local"), mx.optimizer.create("adam", learning_rate=0.1)
    kv, other = mx.kv.create("dist_async"), mx.optimizer.create("adam", learning_rate=0.1)
    for optimizer_, store in ((optimizer, alone), (other, kv)):
        optimizer_.set_lr_mult({1: 0.5})
        store.init([0, 1, 2], [nd.array(x) for x in first])
        store.set_optimizer(optimizer_)
    assert len(kv._places[0].parts) == 2 and len(kv._places[1].parts) == 1
    for step in range(3):
        grads = [generator.standard_normal(s).astype("float32") for s in shapes]
        if kv.rank == 0:
            outs = [nd.empty(s) for s in shapes]
            kv.pushpull([0, 1, 2], [nd.array(g) for g in grads], out=outs)
            expected = [nd.empty(s) for s in shapes]
            alone.pushpull([0, 1, 2], [nd.array(g) for g in grads], out=expected)
            for got, wanted in zip(outs, expected):
                np.testing.assert_allclose(got.asnumpy(), wanted.asnumpy(), rtol=1e-6, atol=1e-7)
            for one in (optimizer, other):
                one.set_learning_rate(0.01)
                one.rescale_grad = 0.5


def compressed():
    """Two-bit pushes with error feedback: servers get -t, 0 or t."""
    kv = mx.kv.create("dist_async")
    kv.init("w", nd.zeros((4,)))
    kv.set_optimizer(mx.optimizer.create("test"))
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    if kv.rank == 0:
        for expected in ([0, 0.5, -0.5, 0.5], [0.5, 1.0, -1.0, 1.0]):
            kv.push("w", nd.array([0.3, 0.6, -0.7, 1.2]))
            np.testing.assert_array_equal(pulled(kv, "w", (4,)), expected)


def bounded():
    """A worker that is ahead waits at its pull until the other one has pushed."""
    kv = mx.kv.create("dist_async")
    kv.init("w", nd.zeros((1,)))
    kv.set_optimizer(mx.optimizer.create("test"))
    kv.set_staleness(1)
    if kv.rank == 0:
        for _ in range(2):
            kv.push("w", nd.ones((1,)))
        out = nd.empty((1,))
        kv.pull("w", out)
        dist.send(nd.ones((1,)), 1)  # only now does the other worker push
        assert out.asscalar() == 12  # it had to wait for 10
    else:
        dist.receive(nd.empty((1,)), 0).wait_to_read()
        kv.push("w", nd.ones((1,)) * 10)
    kv.set_staleness(None)


def digits():
    """Accuracy of a Trainer on servers."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype("float32"), y.astype("float32")
    train = gluon.data.ArrayDataset(x[:1500], y[:1500])
    share = gluon.data.SplitSampler(len(train))
    loader = gluon.data.DataLoader(train, 50, sampler=share)
    mx.random.seed(3 + dist.rank())
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.5}, kvstore="dist_async"
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(12):
        for a, b in loader:
            with autograd.record():
                loss = loss_of(net(a), b)
            loss.backward()
            trainer.step(a.shape[0])
    found = net(nd.array(x[1500:])).asnumpy().argmax(1)
    accuracy = float((found == y[1500:]).mean())
    assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    dist.init()
    from plait.training.kvstore import dist_async as async_store
    from plait.training.kvstore import requests as kv_requests

    for case in sys.argv[1:]:
        globals()[case]()
        dist.barrier()
        print(f"well {case}\n", end="", flush=True)  # a line in one piece
