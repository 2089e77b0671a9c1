"""What test_sharded.py runs on ranks: training with sharded states beside the same without, bit for
bit; memory of states; files of states."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn

BATCH = 24
OPTIMIZERS = {
    "sgd": {"momentum": 0.9},
    "nag": {"momentum": 0.9},
    "adam": {},
    "adamax": {},
    "nadam": {},
    "adagrad": {},
    "adadelta": {},
    "rmsprop": {"centered": True},
    "ftrl": {},
    "ftml": {},
    "dcasgd": {"momentum": 0.9},
    "signum": {},
    "lamb": {},  # whole weights
    "lars": {"momentum": 0.9},
    "lbsgd": {"momentum": 0.9},
}


def network(dtype="float32", normalized=True):
    mx.random.seed(3)
    net = nn.HybridSequential(prefix="net_")  # the same names each time: they order parameters
    with net.name_scope():
        net.add(nn.Dense(67, in_units=101, activation="tanh"))
        if normalized:  # each rank by its own share of a batch
            net.add(nn.BatchNorm(in_channels=67))
        net.add(nn.Dense(301, in_units=67, activation="tanh"), nn.Dense(128, activation="tanh"))
        net.add(nn.Dense(5))
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    return net


def batches(n, dtype="float32"):
    generator = np.random.default_rng(5)
    for _ in range(n):
        x = generator.standard_normal((BATCH, 101)).astype(dtype)
        y = generator.standard_normal((BATCH, 5)).astype(dtype)
        share = slice(dist.rank() * BATCH // dist.size(), (dist.rank() + 1) * BATCH // dist.size())
        yield nd.array(x[share], dtype=dtype), nd.array(y[share], dtype=dtype)


def trainer_of(net, optimizer, shard, **options):
    params = net.collect_params()
    for i, name in enumerate(sorted(params)):
        params[name].lr_mult, params[name].wd_mult = 1.0 + i / 10, i / 3
    options = {"learning_rate": 0.01, "wd": 0.01, **OPTIMIZERS[optimizer], **options}
    options["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
    return gluon.Trainer(params, optimizer, options, kvstore="dist_sync", shard=shard)


def train(net, trainer, data):
    loss = gluon.loss.L2Loss()
    for x, y in data:
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(BATCH)


def weights(net):
    found = sorted(net._collect_params_with_prefix().items())
    return [p.data().asnumpy() for name, p in found if "running" not in name]


def equal(a, b):
    return [x.tobytes() for x in a] == [y.tobytes() for y in b]


def state_bytes(trainer):
    """Of what the updater holds."""

    def size(state):
        if isinstance(state, (tuple, list)):
            return sum(map(size, state))
        return 0 if state is None else state.size * np.dtype(state.dtype).itemsize

    return sum(size(s) for s in trainer._kvstore._updater.states.values())


def compare(folder):
    """Each optimizer, sharded and not, and from a file of states in the middle of the training."""
    ratios = {}
    for name, dtype, options in [
        *((name, "float32", {}) for name in OPTIMIZERS),
        ("sgd", "float16", {"multi_precision": True}),
        ("adam", "float16", {"multi_precision": True}),
        ("lamb", "float16", {"multi_precision": True}),
    ]:
        label = f"{name} {dtype}"
        results, bytes_of = {}, {}
        for shard in (None, "states"):
            net = network(dtype)
            trainer = trainer_of(net, name, shard, **options)
            data = list(batches(6, dtype))
            train(net, trainer, data[:3])
            file = f"{folder}/{name}-{dtype}-{shard}"
            trainer.save_states(file)
            state = trainer.state_dict()
            middle = weights(net)
            train(net, trainer, data[3:])
            results[shard], bytes_of[shard] = weights(net), state_bytes(trainer)
            if name != "lbsgd":  # the sums of gradients in it are not among its states
                continued(middle, trainer, name, options, dtype, file, state, data, results[shard])
        assert equal(results[None], results["states"]), f"{label}: sharded weights differ"
        ratios[label] = bytes_of["states"] / bytes_of[None] if bytes_of[None] else 0
    return ratios


def continued(middle, trainer, name, options, dtype, file, state, data, wanted):
    """A new trainer of the other kind goes on from the file, one of the same kind from the dict."""
    sharded = "states" if trainer._sharded else None
    for shard, load in (
        (None if sharded else "states", lambda t: t.load_states(file)),
        (sharded, lambda t: t.load_state_dict(state)),
    ):
        net = network(dtype)
        net(data[0][0])  # shapes
        found = sorted(net._collect_params_with_prefix().items())
        kept = [p for n, p in found if "running" not in n]
        for p, value in zip(kept, middle):
            p.set_data(nd.array(value, dtype=value.dtype))
        again = trainer_of(net, name, shard, **options)
        load(again)
        train(net, again, data[3:])
        assert equal(weights(net), wanted), f"{name} {dtype}: {sharded} -> {shard} differs"


def write(folder):
    """Three steps, then the states and the weights in files."""
    net = network(normalized=False)
    trainer = trainer_of(net, "adam", "states")
    train(net, trainer, batches(3))
    trainer.save_states(f"{folder}/states")
    if dist.rank() == 0:
        net.save_parameters(f"{folder}/weights")


def read(folder):
    """Three more steps, on another number of ranks."""
    net = network(normalized=False)
    net.load_parameters(f"{folder}/weights")
    trainer = trainer_of(net, "adam", "states")
    trainer.load_states(f"{folder}/states")
    train(net, trainer, list(batches(6))[3:])
    if dist.rank() == 0:
        np.savez(f"{folder}/result-{dist.size()}", *weights(net))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dist.init()
    done = {"compare": compare, "write": write, "read": read}[sys.argv[1]](sys.argv[2])
    every = dist.exchange(done)
    if dist.rank() == 0:
        print(json.dumps(every), flush=True)
