"""What test_training.py runs on several ranks and on one: the same training, on the same batches. A
rank takes its share of each batch; one process takes all. Prints the weights' digest and sum."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn

STEPS, BATCH = 12, 24


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(), nn.Flatten(), nn.Dense(10))
    return net, (1, 12, 12)


def lstm():
    class Model(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.rnn = gluon.rnn.LSTM(8, layout="NTC", input_size=6)
                self.out = nn.Dense(10, in_units=8)

        def hybrid_forward(self, F, x):
            return self.out(F.slice_axis(self.rnn(x), axis=1, begin=-1, end=None))

    return Model(), (5, 6)


def embedding():
    class Model(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.embed = nn.Embedding(50, 6, sparse_grad=True)
                self.out = nn.Dense(10, in_units=24)

        def hybrid_forward(self, F, x):
            return self.out(F.flatten(self.embed(x)))

    return Model(), (4,)


MODELS = {"lenet": lenet, "lstm": lstm, "embedding": embedding}


def batches(shape, rank: int, n: int):
    generator = np.random.default_rng(5)
    for _ in range(STEPS):
        x = generator.standard_normal((BATCH, *shape)).astype("float32")
        if len(shape) == 1:
            x = generator.integers(0, 50, (BATCH, *shape)).astype("float32")
        y = generator.integers(0, 10, BATCH).astype("float32")
        share = slice(rank * BATCH // n, (rank + 1) * BATCH // n)
        yield nd.array(x[share]), nd.array(y[share])


def train_gluon(model: str, store: str, **options):
    mx.random.seed(dist.rank())  # the first values are those of rank 0
    if dist.rank() == 0:
        mx.random.seed(11)
    net, shape = MODELS[model]()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(
        net.collect_params(), "adam", {"learning_rate": 0.02}, kvstore=store, **options
    )
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches(shape, dist.rank(), dist.size()):
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(BATCH)
    return [p.data() for _, p in sorted(net._collect_params_with_prefix().items())]


def train_module(store: str):
    mx.random.seed(11 if dist.rank() == 0 else dist.rank())
    data = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(data, num_hidden=16, name="a")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=10, name="b")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    module = mx.mod.Module(net)
    n = BATCH // dist.size()
    module.bind([("data", (n, 8))], [("softmax_label", (n,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(store, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for x, y in batches((8, 1), dist.rank(), dist.size()):
        module.forward_backward(mx.io.DataBatch([x.reshape((n, 8))], [y]))
        module.update()
    return [a for _, a in sorted(module.get_params()[0].items())]


def main(case: str) -> None:
    model, store, options = json.loads(case)
    weights = train_module(store) if model == "module" else train_gluon(model, store, **options)
    values = [w.asnumpy() for w in weights]
    digest = hashlib.sha256(b"".join(v.tobytes() for v in values)).hexdigest()
    total = [float(np.abs(v.astype("float64")).sum()) for v in values]
    if dist.rank() == 0:
        np.savez(sys.argv[2], *values)
    every = dist.all_gather(nd.array(np.frombuffer(bytes.fromhex(digest), "uint8"), dtype="uint8"))
    rows = every.asnumpy().reshape(dist.size(), -1)
    assert (rows == rows[0]).all(), "ranks have different weights"
    if dist.rank() == 0:
        print(digest, total, flush=True)


if __name__ == "__main__":
    dist.init()
    main(sys.argv[1])
