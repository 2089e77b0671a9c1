"""Runs programs on several ranks, by the mpiexec of this environment (MPICH or Open MPI)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MPIEXEC = Path(sys.executable).parent / "mpiexec"


def mpiexec(n: int) -> list[str]:
    """The command that starts n ranks on this machine."""
    pytest.importorskip("mpi4py", reason="MPI is not installed: pip install 'plait[mpi]'")
    if not MPIEXEC.exists():
        pytest.skip("MPI is not installed: pip install 'plait[mpi]'")
    words = [str(MPIEXEC), "-n", str(n)]
    version = subprocess.run([words[0], "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout:
        words += ["--allow-run-as-root", "--oversubscribe"]
    return words


def run(n: int, program: str | list[str], within_s: float = 120, **env: str):
    """(status, what all ranks printed) of a program: its text, or a script of this folder with its
    arguments, after "-m" and a module that runs scripts if need be."""
    words = ["-c", program] if isinstance(program, str) else list(program)
    if words[0] not in ("-c", "-m"):
        words[0] = str(HERE / words[0])
    started = mpiexec(n) if n > 1 else []
    done = subprocess.run(
        [*started, sys.executable, "-W", "ignore", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        check=False,
    )
    return done.returncode, done.stdout


def succeed(n: int, program: str | list[str], **options) -> str:
    """What a program printed, which ends well on all ranks."""
    status, out = run(n, program, **options)
    assert status == 0, out
    return out
