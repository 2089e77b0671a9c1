"""`plait bench --onnx FILE`: an ONNX file in plait, beside ONNX Runtime.

Each has a process; they run in turns, from NumPy arrays to NumPy arrays. A row has the median over
the rounds of each round's median, then of its minimum, in milliseconds. A ratio is the peer's time
/ plait's, medians over the rounds: above 1 plait is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROW = "{:16}{:>12}{:>12}{:>9}{:>9}{:>12}"


class Peer:
    """A process that runs the network when it is asked."""

    def __init__(self, name: str, python: str, script: str, given: list[str], threads: int):
        self.name = name
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        command = [python, "-W", "ignore", str(HERE / script), *given]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def turn(self) -> list[float]:
        """Seconds of each call. Raises RuntimeError where the process ends."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        while line and not line.startswith("["):
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self.process.communicate()


def inputs_of(
    file: str, shapes: dict[str, list[int]], values: dict[str, list[int]]
) -> dict[str, Any]:
    """Numbers for each input; unknown dimensions are 1. values: a number, or the lowest and what is
    above all."""
    from ...compat.onnx import load
    from ...kernels.spec import NUMPY_DTYPES

    made, random = {}, np.random.default_rng(0)
    for i in load(file).inputs:
        known = [n if isinstance(n, int) else 1 for n in i.shape or ()]
        shape, dtype = shapes.get(i.name, known), NUMPY_DTYPES[i.dtype or "float32"]
        if dtype.kind == "f" and i.name not in values:
            made[i.name] = random.random(shape).astype(dtype)
        else:
            low, *high = values.get(i.name, [0, 2])
            made[i.name] = random.integers(low, (high or [low + 1])[0], shape).astype(dtype)
    return made


def rows(args: argparse.Namespace) -> list[str]:
    """The lines of one file."""
    shapes = dict(_pair(s) for s in args.shape)
    values = dict(map(_pair, args.value))
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/inputs.npz"
        np.savez(data, **inputs_of(args.file, shapes, values))
        names = [("plait", sys.executable, "onnx_with_plait.py")]
        if args.onnxruntime:
            names.append(("ONNX Runtime", args.onnxruntime, "onnx_with_onnxruntime.py"))
        peers = [
            Peer(*given, [args.file, data, f"{folder}/{i}.npz"], args.threads)
            for i, given in enumerate(names)
        ]
        for peer in peers:
            for _ in range(2):  # compiles
                peer.turn()
        rounds = [[peer.turn() for peer in peers] for _ in range(args.rounds)]
        found = [_arrays(f"{folder}/{i}.npz") for i in range(len(peers))]
    for peer in peers:
        peer.end()
    made, middle = [], statistics.median
    for i, peer in enumerate(peers):
        away = max(float(np.abs(a - b).max(initial=0)) for a, b in zip(found[0], found[i]))
        cells = [
            f"{1e3 * middle([middle(r[i]) for r in rounds]):.3f}",
            f"{1e3 * middle([min(r[i]) for r in rounds]):.3f}",
            f"{middle([middle(r[i]) / middle(r[0]) for r in rounds]):.2f}",
            f"{middle([min(r[i]) / min(r[0]) for r in rounds]):.2f}",
            f"{away:.1e}",
        ]
        made.append(ROW.format(peer.name, *cells))
    return made


def _arrays(file: str) -> list[Any]:
    with np.load(file) as found:
        return [found[name].astype(np.float64) for name in sorted(found.files, key=int)]


def _pair(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.rpartition("=")
    return name, [int(n) for n in sizes.split(",") if n]


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --onnx FILE [--onnxruntime PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --onnx",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file")
    parser.add_argument("--onnxruntime", metavar="PYTHON", help="interpreter that has onnxruntime")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1,3,224,224")
    parser.add_argument("--value", action="append", default=[], metavar="INPUT=LOW,HIGH")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    print(ROW.format("", "ms", "fastest", "ratio", "fastest", "differs by"), flush=True)
    print("\n".join(rows(args)), flush=True)
    return 0
