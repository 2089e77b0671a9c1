"""`plait bench --busy`: inference beside processes that use the processor all the time.

`alone` is the mean time of a call in milliseconds; `x N` is the mean beside N busy processes / the
mean alone, medians over rounds. `worse` is plait's factor / that of ONNX Runtime: below 1 plait
loses less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from . import turns, zoo

ROWS = (
    "resnet18_v1",
    "resnet50_v1",
    "mobilenetv2_1.0",
    "squeezenet1.1",
    "densenet121",
    "transformer_infer",
    "lstm_infer",
    "mlp_infer",
)


@contextmanager
def busy(n: int) -> Iterator[None]:
    """n processes that never wait."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in made:
            process.kill()
            process.wait()


def scripts(name: str, folder: str, onnxruntime: str | None) -> list[turns.Script]:
    if name in zoo.NETWORKS:
        return zoo.scripts(name, 1, folder, {"onnxruntime": onnxruntime})
    found = [turns.Script("plait", sys.executable, "with_mxnet_api.py", (zoo.PACKAGE,))]
    if onnxruntime:
        found.append(turns.Script("onnxruntime", onnxruntime, "with_onnxruntime.py"))
    return found


def row(name: str, workers: list[turns.Worker], counts: list[int], args: argparse.Namespace) -> str:
    factors: list[dict[int, list[float]]] = [{n: [] for n in counts} for _ in workers]
    alone: list[list[float]] = [[] for _ in workers]
    for _ in range(args.rounds):
        quiet = [statistics.mean(w.times(args.seconds)) for w in workers]
        for n in counts:
            with busy(n):
                for i, worker in enumerate(workers):
                    mean = statistics.mean(worker.times(args.seconds))
                    factors[i][n].append(mean / quiet[i])
        for seen, mean in zip(alone, quiet):
            seen.append(mean)
    line = f"{name:20}"
    found = [[statistics.median(f[n]) for n in counts] for f in factors]
    for seen, each in zip(alone, found):
        line += f"{1e3 * statistics.median(seen):12.3f}" + "".join(f"{f:8.2f}" for f in each)
    for theirs in found[1:]:
        line += "".join(f"{a / b:10.2f}" for a, b in zip(found[0], theirs))
    return line


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --busy [--onnxruntime PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --busy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"default: {', '.join(ROWS)}")
    parser.add_argument("--onnxruntime", metavar="PYTHON", help="one that has onnxruntime, torch")
    parser.add_argument("--processes", default="2,8", help="numbers of busy processes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of one turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    counts = [int(n) for n in args.processes.split(",")]
    names = ["plait", *(["onnxruntime"] if args.onnxruntime else [])]
    head = f"{'row':20}"
    for name in names:
        head += f"{name:>12}" + "".join(f"{'x ' + str(n):>8}" for n in counts)
    head += "".join(f"{'worse ' + str(n):>10}" for n in counts if len(names) > 1)
    print(head, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.rows or ROWS:
            workers = turns.started(scripts(name, folder, args.onnxruntime), name, args.threads)
            print(row(name, workers, counts, args), flush=True)
            for worker in workers:
                worker.end()
    return 0
