"""`plait bench --np`: functions of mx.np beside NumPy, and torch if it is given, on small, middle
and large arrays; and what a call of np costs beside one of nd. A line is printed when it is known.

Times in microseconds, of one thread and of all. Frameworks take turns; times are medians over the
rounds, of each the median or the minimum of its repeats. A ratio is the peer's time / plait's,
the median over the rounds: above 1 plait is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator

from . import turns
from .arrays_with_numpy import ROWS

SIZES = "10,10000,10000000"
ROW = "{:18}{:>10}"


def workers(args: argparse.Namespace, threads: int) -> list[turns.Worker]:
    """A process for each column, plait's first."""
    package = (__package__ or "plait").split(".")[0]
    ours = turns.Script("plait", sys.executable, "arrays_with_numpy.py")
    made = [
        turns.Worker(ours, package, threads),
        turns.Worker(ours._replace(framework="numpy"), "numpy", threads),
    ]
    if args.torch:
        torch = turns.Script("torch", args.torch, "arrays_with_torch.py")
        made.append(turns.Worker(torch, "torch", threads))
    return made


def rows(columns: list[turns.Worker], args: argparse.Namespace) -> Iterator[str]:
    """The lines of the table."""
    head = ROW.format("row", "elements") + "".join([f"{c.name + ' us':>13}" for c in columns])
    yield head + "".join([f"{'/ ' + c.name:>10}" for c in columns[1:]])
    for name in [n for n in ROWS if not args.rows or n in args.rows]:
        for size in map(int, args.sizes.split(",")):
            line = json.dumps([name, size, args.seconds])
            rounds = [[c.ask(line) for c in columns] for _ in range(args.rounds)]
            yield ROW.format(name, size) + cells(rounds, int(args.minima))


def cells(rounds: list[list[list]], which: int) -> str:
    """rounds: what each column found. which: 0 medians, 1 minima."""
    failed = [error for median, error in rounds[0] if median is None]
    if failed:
        return f"  {failed[0]}"
    times = [[found[which] for found in column] for column in zip(*rounds)]
    text = "".join([f"{1e6 * statistics.median(t):13.2f}" for t in times])
    for theirs in times[1:]:
        text += f"{statistics.median([b / a for a, b in zip(times[0], theirs)]):10.2f}"
    return text


def calls(plait: turns.Worker, args: argparse.Namespace) -> Iterator[str]:
    """What calls of np cost beside those of nd."""
    yield f"{'call, 10 elements':28}{'np us':>10}{'nd us':>10}{'np / nd':>10}"
    line = json.dumps(["calls", 10, args.seconds])
    for several in zip(*[plait.ask(line) for _ in range(args.rounds)]):
        pairs = [(np[args.minima], nd[args.minima]) for _, np, nd in several]
        np, nd = [1e6 * statistics.median(t) for t in zip(*pairs)]
        ratio = statistics.median([a / b for a, b in pairs])
        yield f"{several[0][0]:28}{np:10.2f}{nd:10.2f}{ratio:10.2f}"


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
    for threads in dict.fromkeys(map(int, args.threads.split(","))):
        print(f"\n{threads} thread{'s' * (threads > 1)}")
        columns = workers(args, threads)
        try:
            for column in columns:
                column.wait_ready()
            if args.rows != ["calls"]:
                for line in rows(columns, args):
                    print(line, flush=True)
            if not args.rows or "calls" in args.rows:
                print("\n".join(["", *calls(columns[0], args)]), flush=True)
        finally:
            for column in columns:
                column.end()
    return 0
