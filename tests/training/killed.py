"""Training runs that are killed at random moments and resumed: they must end as if never killed.

    python tests/training/killed.py --kills 200        # all ways of training, about 2 minutes

Each run is a process forked from this one, which has imported plait and computed nothing, so that
all runs have the same code, whoever edits it meanwhile. It writes a checkpoint after nearly every
batch; SIGKILL ends it at a random moment, the next one goes on from the file, until one comes to
the end. Its digest (weights, metrics, best value) must be the one of a run that was never killed.
Prints a line of JSON for each way.
"""

import argparse
import hashlib
import json
import logging
import os
import random
import select
import signal
import sys
import tempfile
import time

import numpy as np
import plait as mx
import plait.data.io
import plait.kernels.cpu.jit
import plait.symbol.functions  # noqa: F401  (a run would import these later)
import plait.training.model_params
import plait.training.module
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.gluon.contrib import estimator as est
from plait.graph import tiers
from plait.tools import train as training

EPOCHS, BATCH = 6, 8
RNG = np.random.RandomState(0)
X, Y = RNG.rand(40, 3, 6, 6).astype("float32"), (np.arange(40) % 4).astype("float32")


def flipped(image):
    """Augmentation with plait's, NumPy's and Python's random numbers."""
    turned = nd.image.random_flip_left_right(nd.array(image).transpose((1, 2, 0)))
    return turned.transpose((2, 0, 1)) * random.uniform(0.9, 1.1) + float(np.random.rand())


def network():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.3), nn.Dense(4))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.95)
    options = {"learning_rate": 0.01, "lr_scheduler": schedule}
    return net, gluon.Trainer(net.collect_params(), "adam", options)


def loader(n_workers):
    data = gluon.data.ArrayDataset(X, Y).transform_first(flipped)
    return gluon.data.DataLoader(data, BATCH, shuffle=True, num_workers=n_workers)


def digest(arrays, *more):
    found = hashlib.sha256(repr(more).encode())
    for name, array in sorted(arrays.items()):
        found.update(name.encode() + array.asnumpy().tobytes())
    return found.hexdigest()


def weights(net):
    return {name: p.data() for name, p in net._collect_params_with_prefix().items()}


def by_hand(folder, n_workers=0):
    net, trainer = network()
    data, accuracy = loader(n_workers), mx.metric.Accuracy()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    parts = {"net": net, "trainer": trainer, "loader": data, "metric": accuracy}
    path = os.path.join(folder, "run.ckpt")
    checkpoint = mx.checkpoint.Checkpoint(path, **parts, best=0.0, history=[])
    checkpoint.restore()
    for _ in range(data.epoch, EPOCHS):
        for x, y in data:
            with autograd.record():
                scores = net(x)
                loss = loss_of(scores, y)
            loss.backward()
            trainer.step(len(y))
            accuracy.update(y, scores)
            checkpoint.save()
        checkpoint.history.append(accuracy.get()[1])
        checkpoint.best = max(checkpoint.best, checkpoint.history[-1])
        accuracy.reset()
    return digest(weights(net), checkpoint.history, checkpoint.best)


def with_workers(folder):
    return by_hand(folder, 2)


def with_estimator(folder):
    net, trainer = network()
    trained = est.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
    trained.logger.setLevel(logging.ERROR)
    stop = est.EarlyStoppingHandler(trained.val_metrics[0], patience=99, mode="max")
    handler = est.CheckpointHandler(
        folder,
        monitor=trained.train_metrics[0],
        save_best=True,
        epoch_period=None,
        batch_period=1,
        resume_from_checkpoint=True,
    )
    val_data = gluon.data.DataLoader(gluon.data.ArrayDataset(X, Y), BATCH)
    try:
        total = EPOCHS * len(X) // BATCH
        trained.fit(loader(0), val_data, event_handlers=[handler, stop], batches=total)
    except ValueError as error:  # killed after its last checkpoint
        assert "maximum number of batch" in str(error)
        last = max(os.listdir(folder), key=lambda name: (name.count("-epoch"), numbers(name)))
        mx.checkpoint.Checkpoint(
            os.path.join(folder, last.rpartition(".")[0] + ".states"), net=net, run=trained
        ).restore()
    with open(os.path.join(folder, "model-best.params"), "rb") as file:
        best = hashlib.sha256(file.read()).hexdigest()
    return digest(weights(net), best)


def numbers(name):
    return [int("".join(c for c in part if c.isdigit()) or 0) for part in name.split("batch")]


def with_module(folder):
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="a")
    hidden = mx.sym.Dropout(mx.sym.Activation(mx.sym.BatchNorm(hidden), act_type="relu"), p=0.3)
    out = mx.sym.FullyConnected(hidden, num_hidden=4, name="b")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(out, name="softmax"))
    data = mx.io.NDArrayIter(X.reshape(40, -1), Y, BATCH, shuffle=True)
    accuracy = mx.metric.Accuracy()
    module.fit(
        data,
        eval_metric=accuracy,
        optimizer="adam",
        num_epoch=EPOCHS,
        checkpoint=os.path.join(folder, "run.ckpt"),
        checkpoint_period=1,
    )
    arg_params, aux_params = module.get_params()
    return digest({**arg_params, **aux_params}, accuracy.get())


def on_the_command_line(folder):
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
    # no report: it takes most of the time, and comes after the last checkpoint
    options = "--data digits --model mlp --epochs 2 --resume --checkpoint-every 2 --no-report --out"
    history = training.run([*options.split(), folder])
    params = nd.load(os.path.join(folder, "mlp-digits", "model-0000.params"))
    return digest(params, [{k: v for k, v in h.items() if k != "seconds"} for h in history])


WAYS = [by_hand, with_workers, with_estimator, with_module, on_the_command_line]


class Told(logging.Handler):
    """What the compiler and the kernels warn of in a run: its bits are then others."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        if record.name.startswith(("plait.tiers", "plait.kernels")):
            self.lines.append(record.getMessage())


def run(way, folder, seconds=None):
    """The digest that a child gets; None where it was killed after so many seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            mx.seed_all(3)
            logging.disable(logging.INFO)
            logging.getLogger().addHandler(told := Told())
            found = way(folder)
            if told.lines:
                raise RuntimeError("\n".join(told.lines))
            os.write(writer, found.encode())
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    os.close(writer)
    ended = bool(select.select([reader], [], [], seconds)[0])
    if not ended:
        os.kill(child, signal.SIGKILL)
    found = os.read(reader, 99).decode()
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"{way.__name__}: a run in {folder} ended with {status}")
    return found or None


def killed(way, n_kills, rng):
    """Runs of one way until so many were killed; what there is to tell."""
    with tempfile.TemporaryDirectory() as folder:
        expected = run(way, folder)
    with tempfile.TemporaryDirectory() as folder:  # now that all kernels are compiled
        start = time.monotonic()
        again = run(way, folder)
        seconds = time.monotonic() - start
    told = {"way": way.__name__, "kills": 0, "ends": 0, "others": 0, "repeats": again == expected}
    while told["kills"] < n_kills:
        with tempfile.TemporaryDirectory() as folder:
            found = None
            while found is None:
                left = told["kills"] < n_kills
                found = run(way, folder, rng.uniform(0, seconds) if left else None)
                told["kills"] += found is None
            told["ends"] += 1
            told["others"] += found != expected
            told["left"] = [name for name in os.listdir(folder) if name.endswith(".part")]
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="of all ways together")
    parser.add_argument("--seed", type=int, default=None, help="of the moments")
    parser.add_argument("--ways", nargs="*", default=[way.__name__ for way in WAYS])
    args = parser.parse_args()
    seed = random.randrange(2**32) if args.seed is None else args.seed
    rng = random.Random(seed)
    tiers.COMPILE_US, tiers.COMPILE_US_PER_NODE = 800, 0  # the tier changes early in these runs
    chosen = [way for way in WAYS if way.__name__ in args.ways]
    good = True
    for i, way in enumerate(chosen):
        share = args.kills * (i + 1) // len(chosen) - args.kills * i // len(chosen)
        told = killed(way, share, rng)
        good = good and told["repeats"] and not told["others"] and not told.get("left")
        print(json.dumps(told | {"seed": seed}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
