"""`python -m plait bench --dist`: training on two processes beside PyTorch's DDP over gloo.

Each measurement is a job of two ranks of one thread each, on this machine or in two network
namespaces with a link of known speed. Jobs of the two frameworks take turns; a job times steps
alone, distributed and communication alone, in turns. A number is the minimum over all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ...engine import files
from ...engine.error import MXNetError
from .dist_timing import WORKLOADS
from .namespaces import Namespaces, NotAllowed

HERE = Path(__file__).parent
PORT = 29617
END_S = 20.0  # for a job to end, when it is asked to
KINDS = ("alone", "distributed", "communication")
HEAD = "| link | workload | | alone ms | (median) | distributed ms | (median) | communication ms |"
HEAD += " (median) | hidden | efficiency | processor ms | per MB |"
Job = list[tuple[list[str], dict[str, str]]]  # commands that run together, with their variables


def hidden(alone: float, distributed: float, communication: float) -> float:
    """The share of what can be hidden that is hidden: all of the shorter one at best."""
    return (alone + communication - distributed) / min(alone, communication)


def plait_job(workload: str, seconds: float, machines: Namespaces | None, folder: Path) -> Job:
    words = [sys.executable, "-m", "plait", "launch", "-n", "2", "--threads", "1"]
    if machines:
        words = [*machines.within(0), *words, *machines.launch_options(folder)]
    script = str(HERE / "dist_with_plait.py")
    slow = {"PLAIT_COMM_TIMEOUT": "600"}  # all gradients of a large model at 100 Mbit/s
    return [([*words, "--", sys.executable, "-W", "ignore", script, workload, str(seconds)], slow)]


def torch_job(python: str, workload: str, seconds: float, machines: Namespaces | None) -> Job:
    job = []
    for rank in range(2):
        within = machines.within(rank) if machines else []
        address = f"{'192.0.2.1' if machines else '127.0.0.1'}:{PORT}"
        script = str(HERE / "dist_with_torch.py")
        words = [
            *within,
            python,
            "-W",
            "ignore",
            script,
            workload,
            str(seconds),
            str(rank),
            address,
        ]
        job.append((words, {"GLOO_SOCKET_IFNAME": "eth0" if machines else "lo"}))
    return job


def run(job: Job, timeout_s: float) -> dict:
    """What rank 0 printed. Raises MXNetError if a command fails."""
    started = [
        subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        )
        for words, env in job
    ]
    try:
        ends = [process.communicate(timeout=timeout_s) for process in started]
    except subprocess.TimeoutExpired as error:
        raise MXNetError(
            f"bench: a job took more than {timeout_s:g} s\n  fix: --timeout"
        ) from error
    finally:
        for process in started:  # the launcher ends its ranks
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
    if any(process.returncode for process in started):
        raise MXNetError("bench: a job failed:\n" + "\n".join(err for _, err in ends))
    lines = [line for out, _ in ends for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[0])


def row(link: str, workload: str, name: str, results: list[dict]) -> dict:
    """A row of the table, of all rounds."""
    times = {kind: [t for r in results for t in r["times"][kind]] for kind in KINDS}
    processor = {kind: min(t for r in results for t in r["processor"][kind]) for kind in KINDS}
    alone, distributed, communication = (min(times[kind]) for kind in KINDS)
    return {
        "link": link,
        "workload": workload,
        "framework": name,
        "ms": {kind: min(times[kind]) * 1e3 for kind in KINDS},
        "median_ms": {kind: statistics.median(times[kind]) * 1e3 for kind in KINDS},
        "hidden": hidden(alone, distributed, communication),
        "efficiency": alone / distributed,
        "processor_ms": processor["distributed"] * 1e3,
        "processor_ms_per_mb": processor["communication"] * 1e3 / results[0]["mb"],
    }


def shown(r: dict) -> str:
    cells = [r["link"], r["workload"], r["framework"]]
    for kind in KINDS:
        cells += [f"{r['ms'][kind]:.0f}", f"{r['median_ms'][kind]:.0f}"]
    cells += [f"{r['hidden']:.0%}", f"{r['efficiency']:.0%}"]
    cells += [f"{r['processor_ms']:.0f}", f"{r['processor_ms_per_mb']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def compared(found: dict[str, list[dict]]) -> str:
    """How much faster plait is: each of its jobs with the one of DDP that followed it."""
    ratios = [
        min(theirs["times"]["distributed"]) / min(ours["times"]["distributed"])
        for ours, theirs in zip(found["plait"], found["DDP"])
    ]
    return f"DDP takes {statistics.median(ratios):.2f} times as long ({min(ratios):.2f} at least)"


def main(argv: list[str]) -> int:
    """The command line: `plait bench --dist --help`."""
    parser = argparse.ArgumentParser(prog="python -m plait bench --dist", description=__doc__)
    add = parser.add_argument
    add("--torch", metavar="PYTHON", help="the Python of an environment that has PyTorch")
    add("--only", action="append", choices=list(WORKLOADS), help="a workload; repeat for more")
    add("--mbit", type=int, nargs="*", default=[0, 1000, 100], help="links; 0: this machine's own")
    add("--rounds", type=int, default=3, help="jobs of each framework")
    add("--seconds", type=float, default=10, help="of a job's measurement, at least one turn")
    add("--timeout", type=float, default=900, metavar="S", help="of a job")
    add("--json", metavar="FILE", help="writes the rows to a file")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the namespaces go
    rows: list[dict] = []
    print(HEAD + "\n" + "|---|---|---|" + "---:|" * 10, flush=True)
    for mbit in args.mbit:
        link = f"{mbit} Mbit/s" if mbit else "this machine"
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            machines = None
            if mbit:
                try:
                    machines = stack.enter_context(Namespaces())
                except NotAllowed as error:
                    print(f"{link}: skipped: {error}")
                    continue
                machines.limit(mbit)
            for workload in args.only or WORKLOADS:
                found: dict[str, list[dict]] = {"plait": [], "DDP": []}
                for _ in range(args.rounds):
                    job = plait_job(workload, args.seconds, machines, folder)
                    found["plait"].append(run(job, args.timeout))
                    if args.torch:
                        job = torch_job(args.torch, workload, args.seconds, machines)
                        found["DDP"].append(run(job, args.timeout))
                for name, results in found.items():
                    if results:
                        rows.append(row(link, workload, name, results))
                        print(shown(rows[-1]), flush=True)
                if found["DDP"]:
                    print(f"| {link} | {workload} | {compared(found)} |", flush=True)
    if args.json:
        files.write(args.json, json.dumps(rows, indent=1).encode())
    return 0
