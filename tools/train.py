"""A complete training loop, run by `python -m plait train` and docs/examples/train_digits.py.

Data and model are selected by name; progress is shown without waiting for the engine at every step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import dist
from ..engine import files, waitall
from ..engine.error import InvalidValue, MXNetError, compose
from ..gluon import nn
from ..gluon.data import ArrayDataset, DataLoader, SplitSampler
from ..gluon.data.vision import MNIST, Digits, FashionMNIST
from ..gluon.loss import SoftmaxCrossEntropyLoss
from ..gluon.model_zoo import vision as zoo
from ..gluon.trainer import Trainer
from ..ndarray import autograd
from ..ndarray import functions as nd
from ..ndarray.random import seed_all
from ..symbol import viz
from ..training.checkpoint import Checkpoint
from ..training.checkpoint import load as load_checkpoint
from ..training.initializer import Xavier
from ..training.kvstore.choose import spans_processes
from ..training.lr_scheduler import CosineScheduler
from ..training.metric import Accuracy
from ..training.metric import Loss as LossMetric
from ..training.metric.over_ranks import over_ranks
from ..training.progress import Progress

TRAIN_SAMPLE = 10_000  # the maximum number of training images for the accuracy after an epoch
DATASETS: dict[str, Callable[..., Any]] = {
    "digits": Digits,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
}


# ---- data and models -----------------------------------------------------------------------------


def positive(text: str) -> int:
    """A whole number above 0, for argparse. Raises ValueError."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def load_images(name: str, train: bool) -> ArrayDataset:
    """A named data set as (image, label): images float32 (1, H, W) in [0, 1], labels float32."""
    dataset = DATASETS[name](train=train)
    images = dataset._data.astype(np.float32).transpose(0, 3, 1, 2) / 255
    return ArrayDataset(images, dataset._label.astype(np.float32))


def mlp(classes: int = 10) -> nn.HybridSequential:
    """Two hidden layers: 128 and 64 units."""
    net = nn.HybridSequential()
    net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net


def lenet(image_size: int, classes: int = 10) -> nn.HybridSequential:
    """LeNet (LeCun et al. 1998) with ReLU and max pooling; 3x3 filters for images under 16 pixels,
    else 5x5."""
    kernel, pad = (3, 1) if image_size < 16 else (5, 0)
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(20, kernel, padding=pad, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(50, kernel, padding=pad, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Dense(500, activation="relu"),
        nn.Dense(classes),
    )
    return net


def build(name: str, image_size: int, classes: int = 10) -> Any:
    """A network by name: mlp, lenet, or one of the model zoo."""
    if name == "mlp":
        return mlp(classes)
    if name == "lenet":
        return lenet(image_size, classes)
    return zoo.get_model(name, classes=classes)


# ---- the loop ------------------------------------------------------------------------------------


def train_epoch(
    net: Any,
    loader: Any,
    trainer: Any,
    loss_of: Any,
    label: str = "",
    mean: Any = None,
    after_batch: Any = None,
) -> float:
    """One pass over the data, or the rest of a resumed pass. Returns the mean loss
    (dimensionless).

    mean: the metric that computes it. after_batch: called with the number of completed batches. Of
    several ranks the mean is over all.
    """
    progress, mean = Progress(len(loader), label), LossMetric() if mean is None else mean
    if not loader.given:
        mean.reset()
    ranks, n_summed = trainer._ranks, trainer._n_summed
    for x, y in loader:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(x.shape[0] * n_summed)
        mean.update(None, loss)
        progress.step(loss)
        if after_batch is not None:
            after_batch(loader.given)
    progress.close()
    with over_ranks(mean, ranks):
        return mean.get()[1]


def evaluate(net: Any, loader: Any, batches: int | None = None, ranks: Any = None) -> float:
    """Accuracy in [0, 1] over all batches or the first `batches`. ranks: over those of all of
    them."""
    metric = Accuracy()
    for x, y in itertools.islice(loader, batches):
        metric.update([y], [net(x)])
    with over_ranks(metric, ranks):
        return metric.get()[1]


def seconds_per_epoch(net: Any, loader: Any, loss_of: Any, batches: int = 30) -> dict[str, float]:
    """Time of an epoch eager and hybridized (s), from a few batches of each; the weights are not
    changed."""
    sample = [batch for batch, _ in zip(loader, range(batches))]
    times = {}
    for mode, active in (("eager", False), ("hybridized", True)):
        net.hybridize(active, static_alloc=active, static_shape=active)
        loss_of.hybridize(active)
        for _ in range(2):  # the first round plans and compiles
            waitall()
            start = time.perf_counter()
            for x, y in sample:
                with autograd.record():
                    loss = loss_of(net(x), y)
                loss.backward()
            waitall()
        times[mode] = (time.perf_counter() - start) / len(sample) * len(loader)
    return times


def save_curve(history: list[dict], path: Path) -> bool:
    """The loss and accuracy curves as an image (PNG or SVG by the suffix). Returns False where
    matplotlib is absent."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = [h["epoch"] for h in history]
    figure, left = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    left.plot(epochs, [h["loss"] for h in history], "o-", color="tab:blue", label="training loss")
    left.set(xlabel="epoch", ylabel="training loss")
    right = left.twinx()
    right.plot(
        epochs,
        [100 * h["valid"] for h in history],
        "s-",
        color="tab:orange",
        label="validation accuracy",
    )
    right.set(ylabel="validation accuracy (%)")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path)
    pyplot.close(figure)
    return True


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="plait train",
        description="Trains an image classifier.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument("--data", choices=sorted(DATASETS), default="digits", help="data set")
    p.add_argument("--model", default="lenet", help="mlp, lenet, or a name of the model zoo")
    p.add_argument("--epochs", type=positive, default=15, help="passes over the training data")
    p.add_argument("--batch-size", type=positive, default=64, help="batch size")
    p.add_argument(
        "--kvstore",
        default="device",
        help="dist_sync: of several ranks, each trains on its share of every batch",
    )
    p.add_argument("--optimizer", default="adam", help="name of an optimizer")
    p.add_argument(
        "--lr",
        type=float,
        default=2e-3,
        help="learning rate at the start; it decays along a cosine",
    )
    p.add_argument(
        "--hybridize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the network as a cached graph",
    )
    p.add_argument("--seed", type=int, default=1, help="seed of weights and shuffling")
    p.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for checkpoint, graph and curve"
    )
    p.add_argument(
        "--resume",
        action="store_true",
        help="resume exactly from the checkpoint in --out, if there is one",
    )
    p.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="BATCHES",
        help="also write the checkpoint every BATCHES batches",
    )
    return p


def restore(checkpoint: Checkpoint) -> None:
    """Continues from the checkpoint. Raises InvalidValue if it was made with other arguments."""
    if not os.path.exists(checkpoint.path):
        return
    now = checkpoint.arguments
    then = load_checkpoint(checkpoint.path)["values"].get("arguments")
    if now != then:
        saved = then or {}
        other = [f"with --{k} {v}" for k, v in saved.items() if now.get(k) != v]
        other += [f"without --{k}" for k in now if k not in saved]
        raise InvalidValue(
            compose(
                f"--resume: {checkpoint.path} was written by a run {', '.join(other)}",
                fix="use the arguments of that run, or another --out",
            )
        )
    checkpoint.restore()


def main(argv: list[str]) -> int:
    """Trains as `run` does. Returns the exit status."""
    run(argv)
    return 0


def _silent(*_: Any, **__: Any) -> None:
    """What ranks other than the first print."""


def run(argv: list[str] | None = None) -> list[dict]:
    """Trains as the arguments say; writes checkpoint, graph and curve to --out. Returns the history
    by epoch."""
    args = parser().parse_args(argv)
    ranks = dist.init() if spans_processes(args.kvstore) else None
    seed_all(args.seed + (0 if ranks is None else ranks.rank))
    train, valid = load_images(args.data, True), load_images(args.data, False)
    image = train[0][0]
    net = build(args.model, image.shape[-1])
    net.initialize(Xavier())
    if args.hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    loss_of = SoftmaxCrossEntropyLoss()
    loss_of.hybridize(args.hybridize)
    if ranks is None or ranks.size == 1:
        train_loader = DataLoader(train, args.batch_size, shuffle=True, last_batch="keep")
    else:
        share = SplitSampler(len(train), seed=args.seed)
        train_loader = DataLoader(train, max(1, args.batch_size // ranks.size), sampler=share)
    schedule = CosineScheduler(
        args.epochs * len(train_loader), base_lr=args.lr, final_lr=args.lr / 50
    )
    trainer = Trainer(
        net.collect_params(),
        args.optimizer,
        {"learning_rate": args.lr, "lr_scheduler": schedule},
        kvstore=args.kvstore,
    )
    valid_loader = DataLoader(valid, 256)
    say = print if dist.is_main() else _silent
    say(
        f"{args.model} on {args.data}: {len(train)} training and {len(valid)} validation images "
        f"{'x'.join(map(str, image.shape))}, {'hybridized' if args.hybridize else 'eager'}",
        flush=True,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    name = args.out / f"{args.model}-{args.data}"
    mean, without = LossMetric(), ("out", "resume", "checkpoint_every")
    checkpoint = Checkpoint(
        f"{name}.ckpt",
        net=net,
        trainer=trainer,
        loader=train_loader,
        loss=mean,
        history=[],
        arguments={k: v for k, v in vars(args).items() if k not in without},
    )
    if args.resume:
        restore(checkpoint)
    history, every = checkpoint.history, args.checkpoint_every

    def save_sometimes(done: int) -> None:
        if every and done % every == 0:
            checkpoint.save()

    for epoch in range(len(history) + 1, args.epochs + 1):
        start = time.perf_counter()
        label = f"epoch {epoch}/{args.epochs}"
        loss = train_epoch(net, train_loader, trainer, loss_of, label, mean, save_sometimes)
        seconds = time.perf_counter() - start
        history.append(
            {
                "epoch": epoch,
                "loss": loss,
                "train": evaluate(net, train_loader, TRAIN_SAMPLE // args.batch_size, ranks),
                "valid": evaluate(net, valid_loader),
                "seconds": seconds,
            }
        )
        say(
            f"epoch {epoch:3d}  loss {loss:.4f}  train {history[-1]['train']:.2%}  "
            f"validation {history[-1]['valid']:.2%}  {seconds:.2f} s",
            flush=True,
        )
        checkpoint.save()
    if not dist.is_main():
        return history
    net.hybridize(static_alloc=True, static_shape=True)
    net(nd.array(image[None]))
    net.export(str(name), epoch=args.epochs)
    written = [f"{name}.ckpt", f"{name}-symbol.json", f"-{args.epochs:04d}.params", "-history.json"]
    files.write(f"{name}-history.json", json.dumps(history, indent=1).encode())
    try:
        viz.plot_network(f"{name}-symbol.json", shape={"data": (1, *image.shape)}).render(
            str(name), format="svg", cleanup=True
        )
        written.append(".svg")
    except MXNetError as error:  # graphviz is not installed: the graph remains as text
        print(error)
    if save_curve(history, Path(f"{name}-curve.png")):
        written.append("-curve.png")
    else:
        print("no curve: matplotlib is not installed\n  fix: pip install 'plait[examples]'")
    times = seconds_per_epoch(net, train_loader, loss_of)
    print(
        f"seconds per epoch, forward and backward: eager {times['eager']:.2f}, hybridized"
        f" {times['hybridized']:.2f}"
    )
    print("written:", ", ".join(written))
    return history
