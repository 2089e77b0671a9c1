"""Trains five small networks for 60 steps each and prints, as JSON, a hash of what each became and
the call from which its programs ran at tier 1. test_repeatable.py runs it in many processes."""

import hashlib
import json

import numpy as np
import plait as mx
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.graph import tiers

STEPS = 60
# Small networks take long to reach the call at which their tier changes: here some wait for the
# compiler.
tiers.calls_meanwhile = lambda n_nodes, call_us: 20


def digest(arrays):
    joined = b"".join(a.asnumpy().tobytes() for a in arrays)
    return hashlib.sha256(joined).hexdigest()


def images(n=16):
    rng = np.random.RandomState(0)
    return nd.array(rng.rand(n, 8, 16, 16)), nd.array(rng.randint(0, 10, n))


def flat(n=64):
    rng = np.random.RandomState(1)
    return nd.array(rng.rand(n, 128)), nd.array(rng.randint(0, 10, n))


def text(n=8, length=7):
    rng = np.random.RandomState(2)
    return nd.array(rng.randint(0, 50, (n, length))), nd.array(rng.randint(0, 50, (n, length)))


def perceptron():
    return nn.Dense(64, activation="relu"), nn.Dropout(0.3), nn.Dense(10)


def convolutional():
    return (
        nn.Conv2D(32, 3, padding=1),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(32, 3, padding=1, groups=32),  # its gradient of weights is summed in parts
        nn.Conv2D(64, 1, activation="relu"),
        nn.MaxPool2D(),
        nn.Dropout(0.2),
        nn.Dense(10),
    )


def recurrent():
    return (
        nn.Embedding(50, 32),
        gluon.rnn.LSTM(40, 2, layout="NTC", dropout=0.2),
        nn.Dense(50, flatten=False),
    )


def gluon_run(layers, data, optimizer, hybrid):
    """(hash of the parameters, the calls at which programs changed their tier)."""
    mx.seed_all(7)
    net = nn.HybridSequential() if hybrid else nn.Sequential()
    net.add(*layers())
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if hybrid:
        net.hybridize()
        loss_of.hybridize()
    x, y = data()
    settings = {"learning_rate": 0.01} | ({"momentum": 0.9} if optimizer == "sgd" else {})
    trainer = gluon.Trainer(net.collect_params(), optimizer, settings)
    losses = []
    for _ in range(STEPS):
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(len(x))
        losses.append(loss.mean())
    outs = [net(x) for _ in range(STEPS)]  # prediction changes its tier too
    params = [p.data() for p in net.collect_params().values()]
    changes = [r.change_at for r in net.hybrid_report().rows if r.tier] if hybrid else []
    return digest([*params, *losses, *outs]), changes


def module_run():
    mx.seed_all(7)
    x, y = flat()
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64)
    net = mx.sym.Dropout(mx.sym.Activation(net, act_type="tanh"), p=0.2)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=10), name="softmax")
    module = mx.mod.Module(net)
    batch = mx.io.DataBatch([x], [y])
    module.bind([("data", x.shape)], [("softmax_label", y.shape)])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
    outs = []
    for _ in range(STEPS):
        module.forward(batch, is_train=True)
        module.backward()
        module.update()
        outs.append(module.get_outputs()[0].copy())
    params, _ = module.get_params()
    return digest([*(params[k] for k in sorted(params)), *outs]), []


RUNS = {
    "mlp": lambda: gluon_run(perceptron, flat, "adam", True),
    "conv": lambda: gluon_run(convolutional, images, "sgd", True),
    "lstm": lambda: gluon_run(recurrent, text, "adam", True),
    "eager": lambda: gluon_run(convolutional, images, "adam", False),
    "module": module_run,
}

if __name__ == "__main__":
    print(json.dumps({name: run() for name, run in RUNS.items()}))
