"""What test_ranks.py runs on several ranks and on one: the same training, on the same batches. A
rank takes its share of each batch; one process takes all. Rank 0 saves the weights of each case,
and prints their digests."""

from __future__ import annotations

import hashlib
import itertools
import sys

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.compat.horovod import mxnet as hvd
from plait.gluon import nn

STEPS, BATCH = 12, 24
OPTIMIZER = ("adam", {"learning_rate": 0.02})


def lenet(sparse):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(), nn.Flatten(), nn.Dense(10))
    return net, (1, 12, 12)


class Lstm(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.rnn = gluon.rnn.LSTM(8, layout="NTC", input_size=6)
            self.out = nn.Dense(10, in_units=8)

    def hybrid_forward(self, F, x):
        return self.out(F.slice_axis(self.rnn(x), axis=1, begin=-1, end=None))


class Words(gluon.HybridBlock):
    def __init__(self, sparse):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.embed = nn.Embedding(50, 6, sparse_grad=sparse)
            self.out = nn.Dense(10, in_units=24)

    def hybrid_forward(self, F, x):
        return self.out(F.flatten(self.embed(x)))


MODELS = {
    "lenet": lenet,
    "lstm": lambda sparse: (Lstm(), (5, 6)),
    "embedding": lambda sparse: (Words(sparse), (4,)),
}


def batches(shape):
    """This rank's share of each batch."""
    rank, n = dist.rank(), dist.size()
    generator = np.random.default_rng(5)
    for _ in range(STEPS):
        x = generator.standard_normal((BATCH, *shape)).astype("float32")
        if len(shape) == 1:
            x = generator.integers(0, 50, (BATCH, *shape)).astype("float32")
        y = generator.integers(0, 10, BATCH).astype("float32")
        share = slice(rank * BATCH // n, (rank + 1) * BATCH // n)
        yield nd.array(x[share]), nd.array(y[share])


def network(model: str, sparse: bool):
    mx.random.seed(11 + dist.rank())  # the first values are those of rank 0
    net, shape = MODELS[model](sparse)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net, shape


def train_blocks(net, shape, trainer, batch: int) -> list:
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches(shape):
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(batch)
    return [p.data() for _, p in sorted(net._collect_params_with_prefix().items())]


def by_trainer(model: str) -> list:
    net, shape = network(model, True)
    trainer = gluon.Trainer(net.collect_params(), *OPTIMIZER, kvstore="dist_sync")
    return train_blocks(net, shape, trainer, BATCH)


def by_horovod(model: str) -> list:
    """Its gradients are dense, and step takes the batch of one rank."""
    net, shape = network(model, False)
    hvd.init()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(net.collect_params(), *OPTIMIZER)
    return train_blocks(net, shape, trainer, BATCH // dist.size())


def by_module(model: str) -> list:
    net, shape = network(model, True)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net(mx.sym.var("data")), name="softmax"))
    n = BATCH // dist.size()
    module.bind([("data", (n, *shape))], [("softmax_label", (n,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer("dist_sync", *OPTIMIZER)
    for x, y in batches(shape):
        module.forward_backward(mx.io.DataBatch([x], [y]))
        module.update()
    return [a for _, a in sorted(module.get_params()[0].items())]


def main(folder: str) -> None:
    for train, model in itertools.product((by_trainer, by_module, by_horovod), MODELS):
        case = f"{train.__name__}-{model}"
        values = [w.asnumpy() for w in train(model)]
        digest = hashlib.sha256(b"".join(v.tobytes() for v in values)).hexdigest()
        every = dist.collect(digest)
        assert every == [digest] * dist.size(), f"{case}: ranks have different weights"
        if dist.rank() == 0:
            np.savez(f"{folder}/{case}", *values)
            print(f"digest {case} {digest}", flush=True)


if __name__ == "__main__":
    dist.init()
    main(sys.argv[1])
