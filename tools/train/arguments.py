"""The arguments of `plait train`, and the defaults that depend on other arguments."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ...engine.error import did_you_mean
from ..arguments import number
from .named import DATASETS, is_installed
from .pictures import AUGMENTS


def data_set(text: str) -> str:
    """The name of a data set, or a folder's path, for argparse. Raises ArgumentTypeError."""
    if text in DATASETS or os.path.isdir(text):
        return text
    near = did_you_mean(text, DATASETS)
    raise argparse.ArgumentTypeError(
        f"neither a data set ({', '.join(sorted(DATASETS))}) nor a folder: {text!r}"
        + (f"; {near}" if near else "")
    )


def file(text: str) -> str:
    """The name of a file, for argparse. Raises ArgumentTypeError where there is none."""
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return text


def parser() -> argparse.ArgumentParser:
    """The arguments of `plait train`."""
    p = argparse.ArgumentParser(
        prog="plait train",
        description="Trains an image classifier; writes a model folder and a report.",
    )
    p.add_argument(
        "--data",
        type=data_set,
        metavar="DATA",
        help=f"{', '.join(sorted(DATASETS))}, or a folder with one subfolder of pictures a class"
        " (or with these in train/ and valid/); default: fashion-mnist if it is installed, else"
        " digits",
    )
    p.add_argument(
        "--model",
        default="convnet",
        help="mlp, lenet, convnet (default), or a name of the model zoo, such as resnet18_v1",
    )
    p.add_argument(
        "--weights",
        type=file,
        metavar="FILE",
        help="begin with the weights in a .params or .safetensors file, except for a last layer"
        " with another number of classes",
    )
    p.add_argument(
        "--size",
        type=number(int, 1),
        metavar="PIXELS",
        help="height and width of the pictures that the network gets; default: of the data set; of"
        " a folder 64, or 224 for the model zoo",
    )
    p.add_argument(
        "--augment",
        choices=AUGMENTS,
        help="random changes of training pictures: shift by up to an eighth; photo: crops of at"
        " least half the area, mirrored half of the time; default: photo for folders, else none",
    )
    p.add_argument("--epochs", type=number(int, 1), help="passes over the training data")
    p.add_argument("--batch-size", type=number(int, 1), default=64, help="default: 64")
    p.add_argument("--optimizer", default="adam", help="name of an optimizer; default: adam")
    p.add_argument(
        "--lr",
        type=number(float, 1e-12),
        help="learning rate at the start, which decays along a cosine; default: 0.002, with"
        " --weights 0.0005",
    )
    p.add_argument(
        "--hybridize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the network as a graph (default) or eagerly",
    )
    p.add_argument(
        "--workers",
        type=number(int, 0),
        metavar="N",
        help="processes that read pictures; default: one a core for folders, else none",
    )
    p.add_argument(
        "--kvstore",
        default="device",
        help="dist_sync: of several ranks, each trains on its share of every batch",
    )
    p.add_argument("--seed", type=int, default=1, help="of weights, shuffling, splits; default: 1")
    p.add_argument("--out", type=Path, default=Path("out"), help="folder of results; default: out")
    p.add_argument(
        "--resume",
        action="store_true",
        help="resume exactly from the checkpoint in --out, if there is one",
    )
    p.add_argument(
        "--checkpoint-every",
        type=number(int, 1),
        metavar="BATCHES",
        help="also write the checkpoint every BATCHES batches",
    )
    p.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write report.html, which includes measuring eager against hybridized",
    )
    return p


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments, with every default filled in but those that depend on the pictures."""
    args = parser().parse_args(argv)
    if args.data is None:
        args.data = "fashion-mnist" if is_installed("fashion-mnist") else "digits"
    named = args.data in DATASETS
    if args.augment is None:
        args.augment = "none" if named else "photo"
    if args.epochs is None:
        args.epochs = DATASETS[args.data].epochs if named else 15
    if args.lr is None:
        args.lr = 2e-3 if args.weights is None else 5e-4
    return args
