"""A rank of plait: dist_with_plait.py WORKLOAD SECONDS, started by `plait launch`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import plait as mx
from dist_timing import LENGTH, MLP, VOCABULARY, WIDTH, WORKLOADS, measure
from plait import autograd, dist, gluon, nd
from plait.gluon import nn
from plait.gluon.model_zoo import vision

STEPS = 2  # that follow each other: the updates of one hide behind the next


class Language(gluon.HybridBlock):
    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.rnn = gluon.rnn.LSTM(WIDTH, 2, input_size=WIDTH)
            self.out = nn.Dense(VOCABULARY, flatten=False, in_units=WIDTH)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.out(self.rnn(self.embed(x)))


def made(name: str, batch: int) -> tuple[gluon.HybridBlock, nd.NDArray, nd.NDArray]:
    """A network and a batch of its data."""
    rng = np.random.default_rng(dist.rank())
    if name == "LSTM LM":
        words = rng.integers(0, VOCABULARY, (2, LENGTH, batch)).astype("float32")
        return Language(), nd.array(words[0]), nd.array(words[1])
    if name == "MLP 60 M":
        net = nn.HybridSequential()
        for n_in, n_out in zip(MLP, MLP[1:]):
            net.add(nn.Dense(n_out, in_units=n_in, activation="relu"))
        x, classes = rng.standard_normal((batch, MLP[0])), MLP[-1]
    else:
        net = vision.get_model({"ResNet-18": "resnet18_v1", "AlexNet": "alexnet"}[name])
        x, classes = rng.standard_normal((batch, 3, 224, 224)), 1000
    return net, nd.array(x), nd.array(rng.integers(0, classes, batch))


def main(name: str, seconds: float) -> None:
    world, batch = dist.init(), WORKLOADS[name]
    net, x, y = made(name, batch)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    net(x).wait_to_read()
    options = {"learning_rate": 1e-4, "momentum": 0.9}
    stores: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
        ("alone", None, {}),
        ("distributed", "dist_sync", {}),
        ("communication", "dist_sync", {"update_on_kvstore": False}),
    )
    trainers = {
        kind: gluon.Trainer(net.collect_params(), "sgd", options, kvstore=store, **how)
        for kind, store, how in stores
    }

    def step(trainer: gluon.Trainer) -> None:
        for _ in range(STEPS):
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(batch * world.size)
        nd.waitall()

    def communicate() -> None:
        for _ in range(STEPS):
            trainers["communication"].allreduce_grads()
        nd.waitall()

    step(trainers["alone"])
    mb = sum(p.data().size for p in net.collect_params().values() if p.grad_req != "null") * 4e-6
    steps = {
        "alone": lambda: step(trainers["alone"]),
        "distributed": lambda: step(trainers["distributed"]),
        "communication": communicate,
    }
    measure(world.rank, mb * STEPS, seconds, dist.barrier, steps, dist.exchange)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
