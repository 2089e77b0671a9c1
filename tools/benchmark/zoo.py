"""`plait bench --zoo`: inference with the vision networks, beside ONNX Runtime and torch.

Peers run the same layers, made from plait's symbol. The frameworks take turns. Times are the
medians of all calls in milliseconds, then the fastest ones; a ratio is the peer's time / plait's:
above 1 plait is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from ...gluon.model_zoo import vision
from ...symbol import var
from . import turns

NETWORKS = (  # each family of the zoo
    "alexnet",
    "vgg11",
    "vgg11_bn",
    "squeezenet1.0",
    "squeezenet1.1",
    "densenet121",
    "inceptionv3",
    "mobilenet1.0",
    "mobilenet0.25",
    "mobilenetv2_1.0",
    "mobilenetv2_0.25",
    "resnet18_v1",
    "resnet50_v1",
    "resnet18_v2",
    "resnet50_v2",
)
PACKAGE = (__package__ or "plait").split(".")[0]
ROW = "{:18}{:>6}"


def size(network: str) -> int:
    """The height and width of its pictures."""
    return 299 if network.startswith("inception") else 224


def scripts(
    network: str, batch: int, folder: str, peers: dict[str, str | None]
) -> list[turns.Script]:
    """plait's, then those of the peers that have an interpreter."""
    shape = (str(batch), str(size(network)))
    found = [turns.Script("plait", sys.executable, "zoo_with_plait.py", (PACKAGE, *shape))]
    file = Path(folder, f"{network}-symbol.json")
    if not file.exists():
        vision.get_model(network)(var("data")).save(str(file))
    for name, python in peers.items():
        if python:
            found.append(turns.Script(name, python, "zoo_with_torch.py", (name, *shape, str(file))))
    return found


def row(network: str, batch: int, workers: list[turns.Worker], rounds: int, seconds: float) -> str:
    times: list[list[float]] = [[] for _ in workers]
    for _ in range(rounds):
        for worker, found in zip(workers, times):
            found += worker.times(seconds)
    line = ROW.format(network, batch)
    for which in statistics.median, min:
        each = [which(found) for found in times]
        line += "".join(f"{1e3 * t:18.3f}" for t in each)
        line += "".join(f"{t / each[0]:14.2f}" for t in each[1:])
    return line


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --zoo [--onnxruntime PYTHON] [--torch PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --zoo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: of each family")
    parser.add_argument("--onnxruntime", metavar="PYTHON", help="one that has onnxruntime, torch")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.5, help="time of one turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    peers = {"onnxruntime": args.onnxruntime, "torch": args.torch}
    names = ["plait", *(name for name, python in peers.items() if python)]
    head = ROW.format("network", "batch")
    for which in "ms", "least":
        head += "".join(f"{name + ' ' + which:>18}" for name in names)
        head += "".join(f"{'/ ' + name:>14}" for name in names[1:])
    print(head, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for network in args.networks or NETWORKS:
            for batch in map(int, args.batches.split(",")):
                workers = turns.started(
                    scripts(network, batch, folder, peers), network, args.threads
                )
                print(row(network, batch, workers, args.rounds, args.seconds), flush=True)
                for worker in workers:
                    worker.end()
    return 0
