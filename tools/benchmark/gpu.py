"""`plait bench --gpu`: the workloads of GPUs, compared with torch if it has CUDA; a summary table
at the end.

Times in ms, device memory in MiB. GB/s, for memory-bound workloads: the bytes that must move; the
last lines give the fraction of the device's copy rate, measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Any

from . import table

ROW = "{:24}"


def workload_names() -> list[str]:
    """Every workload, in the order of gpu_with_plait.py."""
    text = (table.HERE / "gpu_with_plait.py").read_text()
    rows = text[text.index("\nWORKLOADS = {") :].splitlines()
    return [row.split('"')[1] for row in rows if row.startswith('    "')]


def has_cuda(python: str) -> bool:
    """Has the torch of this interpreter a GPU?"""
    test = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([python, "-W", "ignore", "-c", test], capture_output=True).returncode == 0


def frameworks(args: argparse.Namespace) -> list[table.Framework]:
    size = "tiny" if args.tiny else "full"
    package = (__package__ or "plait").split(".")[0]
    found = [table.Framework("plait", sys.executable, "gpu_with_plait.py", (package, size))]
    torch = args.torch or sys.executable
    if has_cuda(torch):
        for mode in ("eager", "compile"):
            found.append(table.Framework(mode, torch, "gpu_with_torch.py", (mode, size)))
    elif args.torch:
        raise ValueError(f"--torch {args.torch}: no torch with a GPU there")
    return found


class Figures(dict):
    """(workload, framework) -> the results of its rounds."""

    def seconds(self, name: str, framework: str) -> float | None:
        found = self.get((name, framework))
        return statistics.median(r["seconds"] for r in found) if found else None

    def ratio(self, name: str, peer: str) -> float | None:
        """The peer's time / plait's, computed for each round."""
        pairs = zip(self.get((name, peer), ()), self.get((name, "plait"), ()))
        found = [theirs["seconds"] / ours["seconds"] for theirs, ours in pairs]
        return statistics.median(found) if found else None

    def rate(self, name: str, framework: str = "plait") -> float | None:
        """Bytes a second that a workload moves."""
        seconds, found = self.seconds(name, framework), self.get((name, framework))
        return found[0]["bytes"] / seconds if seconds and found and found[0]["bytes"] else None


def measure_all(names: Any, columns: Any, args: Any) -> Figures:
    figures = Figures()
    for name in names:
        for turn in range(args.rounds):
            for c in columns:
                if turn == 0 or (name, c.name) in figures:
                    result = table.measure(c, name, args.seconds, args.threads)
                    if result:
                        figures.setdefault((name, c.name), []).append(result)
        print(line(name, columns, figures), flush=True)
    return figures


def number(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def head(columns: Any) -> str:
    peers = "".join(f"{'/ ' + c.name:>11}" for c in columns[1:])
    return ROW.format("workload") + f"{'ms':>11}{'MiB':>8}{peers}{'GB/s':>9}"


def line(name: str, columns: Any, figures: Figures) -> str:
    """plait's time and memory, the peers' times as multiples, GB/s."""
    seconds = figures.seconds(name, "plait")
    found = figures.get((name, "plait"))
    text = ROW.format(name) + number(seconds and 1e3 * seconds, 11, 4)
    text += number(found[-1]["peak_mib"] if found else None, 8, 0)
    text += "".join(number(figures.ratio(name, c.name), 11) for c in columns[1:])
    rate = figures.rate(name)
    return text + number(rate and rate / 1e9, 9, 0)


def summary(names: Any, columns: Any, figures: Figures) -> list[str]:
    """The short table: how often plait is ahead, shares of the copy rate, what copies cost."""
    lines = []
    for c in columns[1:]:
        ratios = [r for r in (figures.ratio(n, c.name) for n in names) if r is not None]
        if ratios:
            ahead, middle = sum(r > 1 for r in ratios), statistics.median(ratios)
            lines.append(
                f"ahead of torch {c.name} in {ahead} of {len(ratios)} rows, median {middle:.2f}"
            )
    best = max([r for c in columns if (r := figures.rate("copy", c.name))], default=None)
    for name in names:
        rate = figures.rate(name)
        if best and rate and name != "copy":
            lines.append(
                f"{name}: {100 * rate / best:.0f} % of the copy rate, {best / 1e9:.0f} GB/s"
            )
    for c in columns:
        parts = [figures.seconds(f"stream_{k}", c.name) for k in ("both", "copy", "compute")]
        both, copy, compute = parts
        if both and copy and compute:
            lines.append(
                f"stream, {'plait' if c is columns[0] else 'torch ' + c.name}: "
                f"{both / max(copy, compute):.2f} x the longer of copies and computation"
            )
    return lines


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --gpu [--torch PYTHON] [WORKLOAD ...]`."""
    from ...engine import gpu

    names = workload_names()
    parser = argparse.ArgumentParser(
        prog="plait bench --gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(names)}"
    )
    parser.add_argument(
        "--torch", metavar="PYTHON", help="interpreter that has torch; default: this one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of one measurement")
    parser.add_argument("--threads", type=int, default=4, help="threads on the host")
    parser.add_argument("--tiny", action="store_true", help="sizes of a test, not of a benchmark")
    args = parser.parse_args(argv)
    unknown = set(args.workloads) - set(names)
    if unknown:
        parser.error(
            f"unknown workloads {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    gpu(0).check()
    columns = frameworks(args)
    names = args.workloads or names
    print(head(columns), flush=True)
    figures = measure_all(names, columns, args)
    print(f"\n{device()}")
    print(head(columns))
    for name in names:
        print(line(name, columns, figures))
    print("\n".join(summary(names, columns, figures)))
    return 0 if all((n, "plait") in figures for n in names) else 1


def device() -> str:
    """What was measured, and when."""
    import datetime

    from ...engine import cuda

    p = cuda.properties(0)
    return (
        f"{p.name}, compute capability {p.capability[0]}.{p.capability[1]}, "
        f"{p.n_multiprocessors} multiprocessors, CUDA {p.driver // 1000}.{p.driver % 1000 // 10}, "
        f"{datetime.date.today().isoformat()}"
    )
