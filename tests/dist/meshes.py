"""What test_mesh.py runs on ranks: training by a Trainer over a mesh, files of weights and states,
an Estimator. One process has the mesh 1 x 1."""

from __future__ import annotations

import os
import sys

import numpy as np
import plait as mx
from parallel import SPLITS, Layer
from plait import autograd, dist, gluon, nd
from plait.gluon.contrib.estimator import CheckpointHandler, Estimator
from plait.gluon.data import ArrayDataset, DataLoader, SplitSampler

BATCH, STEPS = 8, 8
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.02, "momentum": 0.9},
    "adam": {"learning_rate": 0.01, "epsilon": 1e-2},
}


def network(seed: int):
    mx.random.seed(seed)
    net = Layer()
    dist.shard(net, {**SPLITS, "words_weight": ("model", None)})
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def made(sizes: str, optimizer: str, shard: str):
    n_data, n_model = map(int, sizes.split("x"))
    mesh = dist.mesh(data=n_data, model=n_model)
    net = network(5 + dist.rank())  # the first values are those of rank 0
    trainer = gluon.Trainer(
        net.collect_params(),
        optimizer,
        OPTIMIZERS[optimizer],
        kvstore="dist_sync",
        shard=None if shard == "none" else shard,
    )
    return mesh, net, trainer


def train(mesh, net, trainer, steps) -> None:
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    generator = np.random.default_rng(7)
    ranks = mesh.group("data")
    n = BATCH // ranks.size
    share = slice(ranks.rank * n, (ranks.rank + 1) * n)
    for step in range(STEPS):
        x = nd.array(generator.integers(0, 12, (BATCH, 6))[share])
        y = nd.array(generator.integers(0, 5, BATCH)[share])
        if step in steps:
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(BATCH)


def whole(mesh, net) -> dict[str, np.ndarray]:
    """The weights; copies of them must have the same bits."""
    found = {}
    for name, p in net.collect_params().items():
        for group in (mesh.group("data"), *([] if p._part else [dist.init()])):
            rows = dist.all_gather(p.data().reshape((1, -1)), group=group).asnumpy()
            assert (rows == rows[0]).all(), f"{name}: ranks have different bits"
        found[name] = p._reduce().asnumpy()
    return found


def begin(sizes: str, optimizer: str, shard: str, folder: str) -> None:
    """All steps; files of weights and states after the first half."""
    mesh, net, trainer = made(sizes, optimizer, shard)
    train(mesh, net, trainer, range(STEPS // 2))
    assert trainer._n_summed == mesh.group("data").size
    net.save_parameters(f"{folder}/weights")
    trainer.save_states(f"{folder}/states")
    train(mesh, net, trainer, range(STEPS // 2, STEPS))
    finish(mesh, net, folder)


def resume(sizes: str, optimizer: str, shard: str, folder: str, source: str) -> None:
    """The second half, from files that another mesh wrote."""
    mesh, net, trainer = made(sizes, optimizer, shard)
    net.load_parameters(f"{source}/weights")
    trainer.load_states(f"{source}/states")
    train(mesh, net, trainer, range(STEPS // 2, STEPS))
    finish(mesh, net, folder)


def finish(mesh, net, folder: str) -> None:
    found = whole(mesh, net)
    if dist.rank() == 0:
        np.savez(f"{folder}/result", **found)


def checkpoint(folder: str) -> None:
    """A Checkpoint of a mesh goes on exactly, and holds whole weights."""
    mesh, net, trainer = made("2x2", "adam", "states")
    train(mesh, net, trainer, range(3))
    saved = mx.checkpoint.Checkpoint(f"{folder}/run", net=net, trainer=trainer)
    saved.save()
    train(mesh, net, trainer, range(3, STEPS))
    expected = whole(mesh, net)
    again = network(50 + dist.rank())
    other = gluon.Trainer(
        again.collect_params(), "adam", OPTIMIZERS["adam"], kvstore="dist_sync", shard="states"
    )
    assert mx.checkpoint.Checkpoint(f"{folder}/run", net=again, trainer=other).restore()
    train(mesh, again, other, range(3, STEPS))
    for name, value in whole(mesh, again).items():
        assert (value == expected[name]).all(), name


def estimator(folder: str) -> None:
    """Rank 0 writes what all ranks have gathered; shares are those of data ranks."""
    mesh = dist.mesh(data=2, model=2)
    net = network(5)
    generator = np.random.default_rng(7)
    data = ArrayDataset(
        nd.array(generator.integers(0, 12, (16, 6))), nd.array(generator.integers(0, 5, 16))
    )
    sampler = SplitSampler(16)
    shares = dist.collect(list(SplitSampler(16)), group=dist.init())
    assert shares[0] == shares[1] and shares[2] == shares[3], "model ranks have the same data"
    assert sorted(shares[0] + shares[2]) == list(range(16))
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="dist_sync"
    )
    est = Estimator(
        net,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        train_metrics=mx.metric.Accuracy(),
        trainer=trainer,
    )
    handler = CheckpointHandler(folder, "net", epoch_period=1)
    est.fit(DataLoader(data, 4, sampler=sampler), epochs=2, event_handlers=[handler])
    values = dist.collect(est.train_metrics[0].get()[1])
    assert len(set(values)) == 1, "metrics are those of all ranks"
    assert est.train_metrics[0].num_inst == 16, "each sample counts once"
    name = next(n for n in sorted(os.listdir(folder)) if n.endswith("batch4.params"))
    other = Layer()
    other.load_parameters(f"{folder}/{name}")
    for p, q in zip(net.collect_params().values(), other.collect_params().values()):
        assert (p._reduce().asnumpy() == q.data().asnumpy()).all(), p.name
    assert whole(mesh, net)


def mistakes() -> None:
    """What stores and optimizers say that do not fit a mesh."""

    def told(text: str, function) -> None:
        try:
            function()
        except mx.MXNetError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")

    world = dist.init()
    dist.mesh(rows=2, model=-1)
    told("needs the axis 'data' of the mesh, whose axes are rows", lambda: mx.kv.create("dist"))
    told("SplitSampler needs the axis 'data'", lambda: SplitSampler(16))
    dist.mesh(data=1, model=-1)
    net = network(1)
    params = net.collect_params()
    whole_world = mx.kv.create("dist_sync", group=world)
    assert (whole_world.num_workers, mx.kv.create("dist_sync").num_workers) == (world.size, 1)
    told(
        "sums gradients over ranks that have different parts of",
        lambda: gluon.Trainer(params, "sgd", kvstore=whole_world),
    )
    for name in ("lamb", "lars", "sgld"):
        told("needs whole weights, but", lambda name=name: gluon.Trainer(params, name))
    told("kvstore='device' takes no group", lambda: mx.kv.create("device", group=world))


if __name__ == "__main__":
    dist.init()
    globals()[sys.argv[1]](*sys.argv[2:])
    nd.waitall()
    if dist.rank() == 0:
        print("done", flush=True)
