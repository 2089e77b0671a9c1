"""`plait bench --precision`: products and convolutions of float32, 16-bit floats and int8 beside
torch's and ONNX Runtime's.

Times in milliseconds, medians over the rounds, of each the median or the minimum of its repeats;
frameworks take turns. `x float32` is our time in float32 / that of the row, taken in turns in one
process; `/ torch` is the peer's time / plait's: above 1 plait is faster. ONNX Runtime and torch
give the sums of int8 products as int32, plait as int8.
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

DTYPES = "float32,bfloat16,float16,int8"
Found = dict[str, Any]


def frameworks(args: argparse.Namespace) -> list[table.Framework]:
    package = (__package__ or "plait").split(".")[0]
    found = [table.Framework("plait", sys.executable, "precision_with_plait.py", (package,))]
    peers = {"torch": args.torch, "onnxruntime": args.onnxruntime}
    for name, python in peers.items():
        if python:
            found.append(table.Framework(name, python, f"precision_with_{name}.py", (name,)))
    return found


def measure(framework: table.Framework, threads: int, args: argparse.Namespace) -> Found:
    """What one process prints. Raises RuntimeError where it fails."""
    script = str(table.HERE / framework.script)
    given = [*framework.arguments, str(args.seconds), args.sizes, *args.rows]
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    command = [framework.python, "-W", "ignore", script, *given]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"{framework.name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def lines(columns: list[table.Framework], rounds: list[list[Found]], which: int) -> list[str]:
    """The table. which: 0 medians, 1 minima."""
    names = [c.name for c in columns]
    made = [
        f"{'row':18}{'dtype':>10}"
        + "".join(f"{n + ' ms':>16}" for n in names)
        + f"{'x float32':>12}"
        + "".join(f"{'/ ' + n:>15}" for n in names[1:])
    ]
    for row, dtypes in rounds[0][0].items():
        for dtype in dtypes:
            times = [
                [r[k][row].get(dtype, [None] * 2)[which] for r in rounds] for k in range(len(names))
            ]
            text = f"{row:18}{dtype:>10}"
            for t in times:
                text += f"{'-':>16}" if None in t else f"{1e3 * statistics.median(t):16.4f}"
            own = [r[0][row] for r in rounds]
            gain = [o["float32"][which] / o[dtype][which] for o in own if "float32" in o]
            text += f"{statistics.median(gain):12.2f}" if gain else f"{'-':>12}"
            for t in times[1:]:
                ratio = (
                    "-"
                    if None in t
                    else f"{statistics.median([b / a for a, b in zip(times[0], t)]):.2f}"
                )
                text += f"{ratio:>15}"
            made.append(text)
    return made


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --precision [--torch PYTHON] [--onnxruntime PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --precision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--onnxruntime", metavar="PYTHON", help="one that has onnxruntime and onnx")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="time of one measurement")
    parser.add_argument("--dtypes", dest="sizes", default=DTYPES)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--minima", action="store_true", help="of the repeats, not their median")
    args = parser.parse_args(argv)
    columns = frameworks(args)
    rounds = [[measure(c, args.threads, args) for c in columns] for _ in range(args.rounds)]
    print("\n".join(lines(columns, rounds, int(args.minima))), flush=True)
    return 0
