"""`plait bench --np`: functions of mx.np beside NumPy, and torch if it is given, on small, middle
and large arrays; and what a call of np costs beside one of nd.

Times in microseconds, of one thread and of all. Frameworks take turns; times are medians over the
rounds, of each the median or the minimum of its repeats. A ratio is the peer's time / plait's,
the median over the rounds: above 1 plait is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from . import table

SIZES = "10,10000,10000000"
ROW = "{:18}{:>10}"
Found = dict[str, Any]


def frameworks(args: argparse.Namespace) -> list[table.Framework]:
    package = (__package__ or "plait").split(".")[0]
    found = [
        table.Framework("plait", sys.executable, "arrays_with_numpy.py", (package,)),
        table.Framework("numpy", sys.executable, "arrays_with_numpy.py", ("numpy",)),
    ]
    if args.torch:
        found.append(table.Framework("torch", args.torch, "arrays_with_torch.py", ("torch",)))
    return found


def measure(framework: table.Framework, threads: int, args: argparse.Namespace) -> Found:
    """What one process prints. Raises RuntimeError where it fails."""
    script = str(table.HERE / framework.script)
    given = [*framework.arguments, str(args.seconds), args.sizes, *args.rows]
    n = str(threads)
    env = dict(os.environ, OMP_NUM_THREADS=n, MKL_NUM_THREADS=n, OPENBLAS_NUM_THREADS=n)
    command = [framework.python, "-W", "ignore", script, *given]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"{framework.name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def lines(columns: list[table.Framework], rounds: list[list[Found]], which: int) -> list[str]:
    """The table. which: 0 medians, 1 minima."""
    peers = columns[1:]
    head = ROW.format("row", "elements") + "".join(f"{c.name + ' us':>13}" for c in columns)
    made = [head + "".join(f"{'/ ' + c.name:>10}" for c in peers)]
    for name, sizes in rounds[0][0].items():
        for size in sizes if name != "calls" else ():
            times = [[r[k][name][size][which] for r in rounds] for k in range(len(columns))]
            text = ROW.format(name, size)
            text += "".join(f"{1e6 * statistics.median(t):13.2f}" for t in times)
            for theirs in times[1:]:
                ratio = statistics.median([b / a for a, b in zip(times[0], theirs)])
                text += f"{ratio:10.2f}"
            made.append(text)
    return made


def calls(rounds: list[list[Found]], which: int) -> list[str]:
    """What calls of np cost beside those of nd."""
    made = [f"{'call, 10 elements':28}{'np us':>10}{'nd us':>10}{'np / nd':>10}"]
    for name in rounds[0][0].get("calls", ()):
        pairs = [[t[which] for t in r[0]["calls"][name]] for r in rounds]
        np, nd = (statistics.median(t) for t in zip(*pairs))
        ratio = statistics.median([a / b for a, b in pairs])
        made.append(f"{name:28}{1e6 * np:10.2f}{1e6 * nd:10.2f}{ratio:10.2f}")
    return made if len(made) > 1 else []


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --np [--torch PYTHON] [ROW ...]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --np",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all; calls: np beside nd")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="time of one measurement")
    parser.add_argument("--sizes", default=SIZES, help="numbers of elements")
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}", help="of each table")
    parser.add_argument("--minima", action="store_true", help="of the repeats, not their median")
    args = parser.parse_args(argv)
    columns = frameworks(args)
    for threads in dict.fromkeys(map(int, args.threads.split(","))):
        rounds = [[measure(c, threads, args) for c in columns] for _ in range(args.rounds)]
        print(f"\n{threads} thread{'s' * (threads > 1)}")
        print("\n".join(lines(columns, rounds, int(args.minima))))
        print("\n".join(["", *calls(rounds, int(args.minima))]), flush=True)
    return 0
