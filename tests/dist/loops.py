"""What test_loops.py runs: whole training loops on ranks, from data to checkpoints.

Rank 0 prints a line of JSON for each loop: what it gave on each rank.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import sys
import warnings

import numpy as np
import plait as mx
from plait import autograd, dist, gluon, nd
from plait.gluon import nn
from plait.gluon.contrib.estimator import CheckpointHandler, Estimator

N, BATCH = 96, 24


def data():
    generator = np.random.default_rng(3)
    x = generator.standard_normal((N, 6)).astype("float32")
    return x, (x @ generator.standard_normal((6, 3))).argmax(1).astype("float32")


def loader(shuffle=True):
    x, y = data()
    share = gluon.data.SplitSampler(N, shuffle=shuffle)
    return gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), BATCH // dist.size(), sampler=share)


def network():
    mx.random.seed(7)
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="tanh"), nn.Dropout(0.3), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 6)))
    mx.random.seed(40 + dist.rank())  # dropout differs
    return net


def digest(arrays) -> str:
    return hashlib.sha256(b"".join(a.asnumpy().tobytes() for a in arrays)).hexdigest()


def weights(net):
    return [p.data() for _, p in sorted(net._collect_params_with_prefix().items())]


def estimator(folder: str, epochs: int) -> dict:
    """Trains an Estimator for some epochs, resuming from what is in the folder."""
    sys.stdout, real = io.StringIO(), sys.stdout
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "adam", kvstore="dist_sync")
    est = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, context=mx.cpu())
    handler = CheckpointHandler(folder, epoch_period=1, resume_from_checkpoint=True)
    est.fit(loader(), val_data=loader(False), epochs=epochs, event_handlers=[handler])
    said, sys.stdout = sys.stdout.getvalue(), real
    values = [m.get() for m in (*est.train_metrics, *est.val_metrics)]
    files = sorted(os.listdir(folder))
    return {"weights": digest(weights(net)), "values": values, "said": said, "files": files}


def checkpoint(folder: str, steps: int, until: int) -> dict:
    """Trains for some batches; saves at `until`, after which a second process resumes."""
    net = network()
    trainer = gluon.Trainer(
        net.collect_params(),
        "sgd",
        {"learning_rate": 0.1, "momentum": 0.9},
        kvstore="dist_sync",
        compression_params={"type": "2bit", "threshold": 0.01},
    )
    batches, loss = loader(), gluon.loss.SoftmaxCrossEntropyLoss()
    kept = mx.checkpoint.Checkpoint(
        os.path.join(folder, "run.ckpt"), net=net, trainer=trainer, loader=batches, done=0
    )
    resumed = kept.restore()
    while kept.done < steps:
        for x, y in batches:
            with autograd.record():
                value = loss(net(x), y)
            value.backward()
            trainer.step(BATCH)
            kept.done += 1
            if kept.done == until:
                kept.save()
                return {"resumed": resumed}
            if kept.done == steps:
                break
    draw = nd.random.uniform(shape=(4,)).asnumpy().tolist()
    return {"weights": digest(weights(net)), "resumed": resumed, "draw": draw}


def module(folder: str) -> dict:
    """Module.fit with callbacks."""
    text = io.StringIO()
    logging.basicConfig(stream=text, level=logging.INFO, format="%(message)s")
    x, y = data()
    n, r = dist.init().size, dist.rank()
    order = np.arange(N).reshape(-1, n, BATCH // n)[:, r].ravel()
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3)
    mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    mx.random.seed(5 + r)
    mod.fit(
        mx.io.NDArrayIter(x[order], y[order], BATCH // n),
        eval_data=mx.io.NDArrayIter(x[order], y[order], BATCH // n),
        eval_metric=["acc", "ce"],
        kvstore="dist_sync",
        optimizer_params={"learning_rate": 0.5},
        initializer=mx.init.Xavier(),
        num_epoch=2,
        batch_end_callback=mx.callback.Speedometer(BATCH, 1),
        epoch_end_callback=mx.callback.do_checkpoint(os.path.join(folder, "m")),
    )
    dist.barrier()
    return {"said": text.getvalue(), "files": sorted(os.listdir(folder))}


def clipped() -> dict:
    """allreduce_grads, clipping by the global norm, update; and an overflow on one rank alone."""
    net = network()
    trainer = gluon.Trainer(
        net.collect_params(), "adam", kvstore="dist_sync", update_on_kvstore=False
    )
    loss, norms = gluon.loss.SoftmaxCrossEntropyLoss(), []
    x, y = data()
    n, r = dist.size(), dist.rank()
    for step in range(4):
        part = slice(step * BATCH + r * BATCH // n, step * BATCH + (r + 1) * BATCH // n)
        with autograd.record(train_mode=False):
            value = loss(net(nd.array(x[part])), nd.array(y[part]))
        value.backward()
        trainer.allreduce_grads()
        grads = [p.grad() for p in net.collect_params().values()]
        norms.append(float(gluon.utils.clip_global_norm(grads, 3.0)))
        trainer.update(BATCH)
    kept = [w.asnumpy().ravel().tolist() for w in weights(net)]
    return {"weights": digest(weights(net)), "norms": norms, "values": sum(kept, [])}


def overflow() -> dict:
    """The loss scale after an overflow on the last rank. From here on all is in float16."""
    mx.contrib.amp.init()
    net = network()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", kvstore="dist_sync", update_on_kvstore=False
    )
    mx.contrib.amp.init_trainer(trainer)
    before, scales = digest(weights(net)), []
    for step in range(3):
        x = nd.ones((2, 6)) * (np.inf if step == 0 and dist.rank() == dist.size() - 1 else 1)
        with autograd.record():
            value = net(x).sum()
            with mx.contrib.amp.scale_loss(value, trainer) as scaled:
                scaled.backward()
        trainer.step(2)
        if step == 0:
            skipped = digest(weights(net)) == before
        scales.append(trainer._amp_loss_scaler.loss_scale)
    return {"skipped": skipped, "scales": scales, "weights": digest(weights(net))}


if __name__ == "__main__":
    warnings.simplefilter("error")
    dist.init()
    for case in sys.argv[1:]:
        name, *arguments = json.loads(case)
        found = dist.collect(globals()[name](*arguments), 0)
        if found is not None:
            print(json.dumps(found), flush=True)
