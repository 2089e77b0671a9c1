"""Runs each workload in its own process, interleaving frameworks, and prints times and ratios.

A ratio is peer's time / plait's: above 1 plait is faster. "/ torch" is the median over the rounds
of the ratio of a round's median times, because machine speed drifts and only interleaved
measurements are comparable. "torch min" is the ratio of the shortest times of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from ...engine import files
from . import chart

HERE = Path(__file__).parent
ROW = "{:24}"


class Framework(NamedTuple):
    """One column: how its workloads are started."""

    name: str
    python: str
    script: str
    arguments: tuple[str, ...] = ()


def workload_names() -> list[str]:
    """Every workload, in the order of with_mxnet_api.py."""
    text = (HERE / "with_mxnet_api.py").read_text()
    rows = text[text.index("\nWORKLOADS = {") :].splitlines()
    return [row.split('"')[1] for row in rows if row.startswith('    "')]


def frameworks(args: argparse.Namespace) -> list[Framework]:
    found = [Framework("plait", sys.executable, "with_mxnet_api.py", (__package__.split(".")[0],))]
    if args.torch:
        found.append(Framework("torch", args.torch, "with_torch.py", ("eager",)))
        found.append(Framework("compile", args.torch, "with_torch.py", ("compile",)))
    if args.jax:
        found.append(Framework("jax", args.jax, "with_jax.py"))
    if args.onnxruntime:
        found.append(Framework("onnxrt", args.onnxruntime, "with_onnxruntime.py"))
    if args.mxnet:
        found.append(Framework("mxnet", args.mxnet, "with_mxnet_api.py", ("mxnet",)))
    return found


def measure(framework: Framework, name: str, seconds: float, threads: int) -> dict | None:
    """What timing.py prints of one run; None where the framework has no such workload or fails."""
    command = [framework.python, "-W", "ignore", str(HERE / framework.script), name, str(seconds)]
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    done = subprocess.run([*command, *framework.arguments], capture_output=True, text=True, env=env)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        error = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"{name}: {framework.name} failed: {error}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def row(name: str, columns: list[Framework], args: argparse.Namespace) -> str:
    """One line of the table: times in ms and peaks in MiB, then ratios."""
    found: list[list[dict]] = [[] for _ in columns]
    for turn in range(args.rounds):
        for framework, results in zip(columns, found):
            if results or turn == 0:
                result = measure(framework, name, args.seconds, args.threads)
                if result:
                    results.append(result)
    line = ROW.format(name)
    for results in found:
        if results:
            milliseconds = 1e3 * statistics.median(r["seconds"] for r in results)
            line += f"{milliseconds:11.4f}{results[-1]['peak_mib']:6.0f}"
        else:
            line += f"{'-':>11}{'-':>6}"
    for results in found[1:]:
        least = [min(r["least_seconds"] for r in some) for some in (results, found[0]) if some]
        line += f"{least[0] / least[1]:12.2f}" if len(least) == 2 else f"{'-':>12}"
    for results in found[1:]:
        pairs = list(zip(results, found[0]))
        ratio = [theirs["seconds"] / ours["seconds"] for theirs, ours in pairs]
        line += f"{statistics.median(ratio):10.2f}" if ratio else f"{'-':>10}"
    if found[0]:
        line += f"{1e3 * found[0][0]['first_seconds']:11.1f}"
    return line


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --torch PYTHON --jax PYTHON ... [WORKLOAD ...]`."""
    names = workload_names()
    parser = argparse.ArgumentParser(
        prog="plait bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(names)}"
    )
    for peer in ("torch", "jax", "onnxruntime", "mxnet"):
        parser.add_argument(
            f"--{peer}", metavar="PYTHON", help=f"interpreter of an environment that has {peer}"
        )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="time of one measurement")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--chart", metavar="FILE.svg", help="do not measure; draw the table of --table"
    )
    parser.add_argument(
        "--table",
        metavar="FILE",
        default="README.md",
        help="what --chart draws: a Markdown page or a table that plait bench printed",
    )
    args = parser.parse_args(argv)
    if args.chart:
        drawn = chart.draw(chart.read(Path(args.table).read_text()))
        files.write(args.chart, drawn.encode())
        print(args.chart)
        return 0
    unknown = set(args.workloads) - set(names)
    if unknown:
        parser.error(
            f"unknown workloads {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    columns = frameworks(args)
    head = ROW.format("workload") + "".join(f"{f.name + ' ms':>11}{'MiB':>6}" for f in columns)
    head += "".join(f"{f.name + ' min':>12}" for f in columns[1:])
    head += "".join(f"{'/ ' + f.name:>10}" for f in columns[1:]) + f"{'first ms':>11}"
    print(head, flush=True)
    for name in args.workloads or names:
        print(row(name, columns, args), flush=True)
    return 0
