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


SHAPES = [(50, 40), (7,), (3, 5)]


def adam(rate=0.1):
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
    return mx.optimizer.create("adam", learning_rate=rate, lr_scheduler=scheduler, wd=0.01)


def store_of(name, values, optimizer):
    kv = mx.kv.create(name)
    kv.init([0, 1, 2], [nd.array(x) for x in values])
    kv.set_optimizer(optimizer)
    return kv


def pushed(kv, steps):
    """The weights after some of six pushes."""
    generator, outs = np.random.default_rng(2), [nd.empty(s) for s in SHAPES]
    for step in range(6):
        grads = [nd.array(generator.standard_normal(s)) for s in SHAPES]
        if step in steps:
            kv.pushpull([0, 1, 2], grads, out=outs)
    return [o.asnumpy() for o in outs]


def near(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


FIRST = [np.random.default_rng(1).standard_normal(s).astype("float32") for s in SHAPES]


def states(folder):
    """Half of the pushes, states in a file, the other half: as in a store of one process, which
    reads the file too."""
    async_store.BIG = 1000
    kv, alone = store_of("dist_async", FIRST, adam()), store_of("local", FIRST, adam())
    if kv.rank == 0:
        near(pushed(kv, range(3)), pushed(alone, range(3)))
        kv.save_optimizer_states(f"{folder}/states", dump_optimizer=True)
        middle = [nd.empty(s) for s in SHAPES]
        kv.pull([0, 1, 2], middle)
        np.savez(f"{folder}/weights", *[x.asnumpy() for x in middle])
        expected = pushed(alone, range(3, 6))
        near(pushed(kv, range(3, 6)), expected)
        again = store_of("local", [x.asnumpy() for x in middle], adam(0.7))
        again.load_optimizer_states(f"{folder}/states")
        near(pushed(again, range(3, 6)), expected)
    kv._barrier()


def resumed(folder):
    """The other half, in a job with another number of servers."""
    async_store.BIG = 1000
    saved = np.load(f"{folder}/weights.npz")
    kv = store_of("dist_async", [saved[name] for name in saved], adam(0.7))
    kv.load_optimizer_states(f"{folder}/states")
    assert kv._optimizer.learning_rate == 0.05, "workers have the loaded rate"
    alone = store_of("local", FIRST, adam())
    pushed(alone, range(3))
    if kv.rank == 0:
        near(pushed(kv, range(3, 6)), pushed(alone, range(3, 6)))
    kv._barrier()


def trainers(folder):
    """Trainer and Module write and read the states of servers."""

    def of_trainer(store, values):
        net = gluon.nn.Dense(3, in_units=4, prefix="a_")
        net.initialize()
        for p, x in zip(net.collect_params().values(), values):
            p.set_data(nd.array(x))
        trainer = gluon.Trainer(net.collect_params(), adam(), kvstore=store)
        trainer._init_kvstore()

        def step():
            with autograd.record():
                loss = (net(nd.ones((2, 4))) ** 2).sum()
            loss.backward()
            trainer.step(2)
            return [p.data().asnumpy() for p in net.collect_params().values()]

        return step, trainer.save_states, trainer.load_states

    def of_module(store, values):
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="a")
        module = mx.mod.Module(
            mx.sym.LinearRegressionOutput(net, mx.sym.var("l")), label_names=["l"]
        )
        module.bind([("data", (2, 4))], [("l", (2, 3))])
        names = ["a_weight", "a_bias"]
        module.init_params(arg_params={n: nd.array(x) for n, x in zip(names, values)})
        module.init_optimizer(store, adam())

        def step():
            batch = mx.io.DataBatch([nd.ones((2, 4))], [nd.zeros((2, 3))])
            module.forward_backward(batch)
            module.update()
            found = module.get_params()[0]
            return [found[n].asnumpy() for n in names]

        return step, module.save_optimizer_states, module.load_optimizer_states

    generator = np.random.default_rng(4)
    first = [generator.standard_normal(s) for s in ((3, 4), (3,))]
    for kind in (of_trainer, of_module):
        halves = {}
        for store in (None, "dist_async"):
            file = f"{folder}/{kind.__name__}-{store}"
            if store is None:
                file += f"-{dist.rank()}"
            step, save, _ = kind(store, first)
            works = store is None or dist.rank() == 0  # one worker, so that the order is known
            if works:
                halves[store, 1] = [step() for _ in range(3)][-1]
                save(file)
            dist.barrier()
            step, _, load = kind(store, halves[None, 1])
            load(file)
            if works:
                halves[store, 2] = [step() for _ in range(3)][-1]
            dist.barrier()
        if dist.rank() == 0:
            for half in (1, 2):
                near(halves["dist_async", half], halves[None, half])


def mistakes(folder):
    """What wrong files and optimizers are told."""

    def told(text, function):
        try:
            function()
        except mx.MXNetError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")

    async_store.BIG = 1000
    kv = mx.kv.create("dist_async")
    told("there is no optimizer", lambda: kv.load_optimizer_states(f"{folder}/none"))
    if kv.rank == 0:
        told("there is no optimizer", lambda: kv.save_optimizer_states(f"{folder}/none"))
    kv._barrier()
    kv.init("w", nd.zeros((40, 30)))
    told("LAMB needs whole weights", lambda: kv.set_optimizer(mx.optimizer.create("lamb")))
    kv.set_optimizer(mx.optimizer.create("sgd", momentum=0.9))
    other = mx.kv.create("local")
    other.init("v", nd.zeros((3,)))
    other.set_optimizer(mx.optimizer.create("sgd", momentum=0.9))
    other.push("v", nd.ones((3,)))
    file = f"{folder}/other-{kv.rank}"
    other.save_optimizer_states(file)
    told("the states are of key 'v'", lambda: kv.load_optimizer_states(file))
    whole = mx.kv.create("dist_async")
    whole.set_optimizer(mx.optimizer.create("lamb"))
    whole.init("w", nd.zeros((40, 30)))
    assert len(whole._places["w"].parts) == 1


if __name__ == "__main__":
    dist.init()
    from plait.training.kvstore import dist_async as async_store
    from plait.training.kvstore import requests as kv_requests

    for case in sys.argv[1:]:  # "name" or "name=folder"
        name, *folder = case.split("=", 1)
        globals()[name](*folder)
        dist.barrier()
        print("well", name, flush=True)
