"""Runs programs on several ranks, by `plait launch`, on the MPI of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# of jobs: make dist-test takes 2 and 4
RANKS = [int(n) for n in os.environ.get("DIST_RANKS", "2").split(",")]
FEW = [2, 3, 4] if len(RANKS) > 1 else [3]  # where it matters that ranks are not two


def launcher(n: int, servers: int = 0, restarts: int = 0, on=None) -> list[str]:
    """The command that starts n ranks on this machine, some of them servers; on: (Namespaces, a
    folder): on both."""
    pytest.importorskip("mpi4py", reason="MPI is not installed: pip install 'plait[mpi]'")
    words = [sys.executable, "-m", "plait", "launch", "-n", str(n - servers), "--threads", "1"]
    words += ["-s", str(servers), "--restarts", str(restarts)]
    if on:
        machines, folder = on
        words = [*machines.within(0), *words, *machines.launch_options(folder)]
    return [*words, "--"]


def run(
    n: int,
    program: str | list[str],
    within_s: float = 300,
    servers: int = 0,
    restarts: int = 0,
    on=None,
    **env: str,
):
    """(status, what all ranks printed) of a program: its text, or a script of this folder with its
    arguments, after "-m" and a module that runs scripts if need be. A job that hangs is ended."""
    words = ["-c", program] if isinstance(program, str) else list(program)
    if words[0] not in ("-c", "-m"):
        words[0] = str(HERE / words[0])
    started = launcher(n, servers, restarts, on) if n > 1 else []
    # unbuffered, a line is written in pieces, and lines of two ranks mix
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    job = subprocess.Popen(
        [*started, sys.executable, "-W", "ignore", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, "OMP_NUM_THREADS": "1", **env},
    )
    try:
        out, _ = job.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        job.terminate()  # the launcher then ends the ranks
        out, _ = job.communicate()
        raise AssertionError(f"the job ran longer than {within_s} s:\n{out}") from None
    return job.returncode, out


def succeed(n: int, program: str | list[str], **options) -> str:
    """What a program printed, which ends well on all ranks."""
    status, out = run(n, program, **options)
    assert status == 0, out
    return out
