"""What `plait train` does, in order: pictures, network, loop, model folder, report."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import dist
from ...engine import files
from ...engine.error import InvalidValue, MXNetError, compose
from ...gluon.data import DataLoader, SplitSampler
from ...gluon.data.vision import ImageFolderDataset
from ...gluon.loss import SoftmaxCrossEntropyLoss
from ...gluon.trainer import Trainer
from ...ndarray.random import seed_all
from ...training import optimizer
from ...training.checkpoint import Checkpoint
from ...training.checkpoint import load as load_checkpoint
from ...training.initializer import Xavier
from ...training.kvstore.choose import spans_processes
from ...training.lr_scheduler import CosineScheduler
from ...training.metric import Accuracy
from ...training.metric import Loss as LossMetric
from .. import model_folder
from . import folder, models, named, report
from .arguments import parse
from .loop import StopRequest, evaluate, train_epoch
from .pictures import Pictures

VALIDATION_BATCH = 256
SHOWN_FILES = 5  # of those that are skipped
STOPPED_STATUS = 130  # of a program that Ctrl-C ended
# of the arguments; what is in --data counts, not where it is
DO_NOT_CHANGE_RESULTS = ("data", "out", "resume", "checkpoint_every", "report")


class Stopped(KeyboardInterrupt):
    """Ctrl-C, after the checkpoint was written."""


def main(argv: list[str]) -> int:
    """Trains as `run` does. Returns the exit status."""
    try:
        run(argv)
    except Stopped:
        return STOPPED_STATUS
    return 0


@dataclass
class Run:
    """All that one training run is made of."""

    args: argparse.Namespace
    argv: list[str]
    pictures: Pictures
    net: models.Classifier
    trainer: Trainer
    train_loader: DataLoader
    valid_loader: DataLoader
    loss: LossMetric
    accuracy: Accuracy
    checkpoint: Checkpoint
    say: Callable[..., None]

    @property
    def name(self) -> Path:
        """The model folder; beginning of the other files' names."""
        return self.args.out / f"{self.args.model}-{self.pictures.name}"


def run(argv: list[str] | None = None) -> list[dict]:
    """Trains as the arguments say. Returns the history: for each epoch its number, loss, accuracy
    in training and validation in [0, 1], and seconds.

    Raises Stopped after Ctrl-C, when the checkpoint is written.
    """
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    # what is wrong is told before all pictures are read
    models.check(args.model)
    optimizer.create(args.optimizer)
    args.out.mkdir(parents=True, exist_ok=True)
    made = make(args, argv)
    pictures = made.pictures
    made.say(
        f"{args.model} on {pictures.name}: {len(pictures.train)} training and "
        f"{len(pictures.valid)} validation pictures {'x'.join(map(str, pictures.shape))}, "
        f"{len(pictures.classes)} classes, {'hybridized' if args.hybridize else 'eager'}",
        flush=True,
    )
    if args.resume:
        restore(made.checkpoint)
    elif dist.is_main():
        set_aside(made.checkpoint)
    train_all(made)
    if dist.is_main():
        write_results(made)
    return made.checkpoint.history


def make(args: argparse.Namespace, argv: list[str]) -> Run:
    """Reads the pictures and makes what learns from them."""
    ranks = dist.init() if spans_processes(args.kvstore) else None
    say = print if dist.is_main() else _silent
    seed_all(args.seed + (0 if ranks is None else ranks.rank))
    pictures = load_pictures(args)
    report_skipped(pictures, say)
    net = make_network(args, pictures, say)
    if args.hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
    train_loader, valid_loader = make_loaders(args, pictures, ranks)
    schedule = CosineScheduler(
        args.epochs * len(train_loader), base_lr=args.lr, final_lr=args.lr / 50
    )
    trainer = Trainer(
        net.collect_params(),
        args.optimizer,
        {"learning_rate": args.lr, "lr_scheduler": schedule},
        kvstore=args.kvstore,
    )
    loss, accuracy = LossMetric(), Accuracy()
    checkpoint = Checkpoint(
        str(args.out / f"{args.model}-{pictures.name}.ckpt"),
        net=net,
        trainer=trainer,
        loader=train_loader,
        loss=loss,
        accuracy=accuracy,
        history=[],
        pictures=pictures.digest,
        arguments={k: v for k, v in vars(args).items() if k not in DO_NOT_CHANGE_RESULTS},
    )
    return Run(
        args,
        argv,
        pictures,
        net,
        trainer,
        train_loader,
        valid_loader,
        loss,
        accuracy,
        checkpoint,
        say,
    )


def write_results(run: Run) -> None:
    """Writes the history, the model folder and the report."""
    name, history = run.name, run.checkpoint.history
    files.write(f"{name}-history.json", json.dumps(history, indent=1).encode())
    whole = models.Probabilities(run.net)
    whole.hybridize(static_alloc=True, static_shape=True)
    whole(models.zeros(run.pictures.shape))
    pictures = run.pictures
    model_folder.write(
        name, whole, pictures.shape, pictures.classes, pictures.resize, history[-1]["valid"]
    )
    print(f"written: {name}{os.sep}, {name}.ckpt, {name}-history.json")
    print(f"predict with it: python -m plait predict {shlex.quote(str(name))} PICTURES")
    if not run.args.report:
        return
    path = run.args.out / "report.html"
    print("comparing eager and hybridized steps for the report ...", flush=True)
    files.write(str(path), report.make(run).encode())
    print(f"open {path} in a browser: all of this, with pictures")


def _silent(*_: Any, **__: Any) -> None:
    """What ranks other than the first print."""


def load_pictures(args: argparse.Namespace) -> Pictures:
    """The data set of --data, in the size of --size."""
    if args.data in named.DATASETS:
        return named.load(args.data, args.size, args.augment)
    of_zoo = args.model not in models.OWN
    size = args.size or (224 if of_zoo else 64)
    color = True if args.weights is not None and of_zoo else None
    return folder.load(args.data, size, args.augment, args.seed, color)


def report_skipped(pictures: Pictures, say: Any) -> None:
    """Says which files are left out."""
    n = len(pictures.skipped)
    if n:
        say(f"skipped {n} file{'s' * (n > 1)} that cannot be read:")
        for line in pictures.skipped[:SHOWN_FILES]:
            say(f"  {line}")
        if n > SHOWN_FILES:
            say(f"  and {n - SHOWN_FILES} more")
    if pictures.others:
        endings = ", ".join(ImageFolderDataset.extensions)
        say(f"left out what does not end in {endings}: {pictures.others}")


def make_network(args: argparse.Namespace, pictures: Pictures, say: Any) -> models.Classifier:
    """The network with its scaling, initialized, or with the weights of --weights."""
    scaling = pictures.mean, pictures.std
    if args.weights is not None and args.model not in models.OWN:
        scaling = models.IMAGENET_MEAN, models.IMAGENET_STD
    net = models.Classifier(
        models.build(args.model, pictures.shape[0], len(pictures.classes)), *scaling
    )
    net.initialize(Xavier())
    net(models.zeros(pictures.shape))  # completes the parameters
    if args.weights is not None:
        new = models.load_weights(net.net, args.weights)
        say(f"weights of {args.weights}" + (f"; new: {', '.join(new)}" if new else ""))
    return net


def make_loaders(
    args: argparse.Namespace, pictures: Pictures, ranks: Any
) -> tuple[DataLoader, DataLoader]:
    """Batches for training, of several ranks this one's share, and for validation."""
    workers = pictures.workers if args.workers is None else args.workers
    if ranks is None or ranks.size == 1:
        train = DataLoader(
            pictures.train, args.batch_size, shuffle=True, last_batch="keep", num_workers=workers
        )
    else:
        share = SplitSampler(len(pictures.train), seed=args.seed)
        each = max(1, args.batch_size // ranks.size)
        train = DataLoader(pictures.train, each, sampler=share, num_workers=workers)
    return train, DataLoader(pictures.valid, VALIDATION_BATCH, num_workers=workers)


def restore(checkpoint: Checkpoint) -> None:
    """Continues from the checkpoint. Raises InvalidValue if it was made with other arguments or
    pictures."""
    if not os.path.exists(checkpoint.path):
        return
    saved = load_checkpoint(checkpoint.path)["values"]
    now, then = checkpoint.arguments, saved.get("arguments") or {}
    other = [option(k, then.get(k)) for k in {**now, **then} if now.get(k) != then.get(k)]
    if saved.get("pictures") != checkpoint.pictures:
        other.append("other pictures in --data")
    if other:
        raise InvalidValue(
            compose(
                f"--resume: {checkpoint.path} was written by a run with {', '.join(other)}",
                fix="use the arguments and pictures of that run, or another --out",
            )
        )
    checkpoint.restore()


def set_aside(checkpoint: Checkpoint) -> None:
    """Gives the checkpoint of a run that was not finished another name: this run will write one."""
    try:
        saved = load_checkpoint(checkpoint.path)["values"]
        unfinished = len(saved["history"]) < saved["arguments"]["epochs"]
    except (MXNetError, LookupError):  # there is none, or none that could be resumed
        return
    if unfinished:
        old = f"{checkpoint.path}.old"
        os.replace(checkpoint.path, old)
        print(f"without --resume: {checkpoint.path}, of an unfinished run, is now {old}")


def option(name: str, value: Any) -> str:
    """An argument as it is typed."""
    typed = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{typed}"
    return f"no --{typed}" if value is None else f"--{typed} {value}"


def train_all(run: Run) -> None:
    """The epochs that are left; writes the checkpoint after each, and when Ctrl-C or SIGTERM asks
    to stop. Raises Stopped then."""
    args, checkpoint, n_ranks = run.args, run.checkpoint, dist.size()
    history, every = checkpoint.history, args.checkpoint_every
    loss_of = SoftmaxCrossEntropyLoss()
    loss_of.hybridize(args.hybridize)
    stop = StopRequest(alone=n_ranks == 1)

    def after_batch(done: int) -> bool:
        if stop.asked or (every and done % every == 0):
            checkpoint.save()
        return stop.asked

    with stop:
        for epoch in range(len(history) + 1, args.epochs + 1):
            start, before = time.perf_counter(), run.train_loader.given * args.batch_size
            means = train_epoch(
                run.net,
                run.train_loader,
                run.trainer,
                loss_of,
                f"epoch {epoch}/{args.epochs}",
                run.loss,
                run.accuracy,
                after_batch,
            )
            if means is None:
                raise stopped(run)
            seconds = time.perf_counter() - start
            valid = evaluate(run.net, run.valid_loader)
            row = {"epoch": epoch, "loss": means[0], "train": means[1], "valid": valid}
            history.append({**row, "seconds": seconds})
            checkpoint.save()
            rate = (len(run.pictures.train) - before) / seconds
            run.say(
                f"epoch {epoch:{len(str(args.epochs))}d}/{args.epochs}  loss {means[0]:.4f}  "
                f"train {means[1]:.2%}  validation {valid:.2%}  {rate:,.0f} pictures/s  "
                f"{seconds:.1f} s",
                flush=True,
            )
            if stop.asked and epoch < args.epochs:
                raise stopped(run)


def stopped(run: Run) -> Stopped:
    """Says how to go on."""
    again = [a for a in run.argv if a != "--resume"] + ["--resume"]
    run.say(f"\nstopped; {run.checkpoint.path} has everything. To go on:")
    run.say(f"  {shlex.join(['python', '-m', 'plait', 'train', *again])}", flush=True)
    return Stopped()
