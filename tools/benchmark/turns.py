"""Processes of several frameworks that measure workloads in turns."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Script(NamedTuple):
    """A framework's script, which prints "ready", then a list for each line that it reads, as
    timing.serve does."""

    framework: str
    python: str
    file: str
    arguments: tuple[str, ...] = ()


class Worker:
    """One workload in a process of its own, warm; it runs only when it is asked."""

    def __init__(self, script: Script, workload: str, threads: int):
        self.name = script.framework
        n = str(threads)
        env = dict(os.environ, OMP_NUM_THREADS=n, MKL_NUM_THREADS=n, OPENBLAS_NUM_THREADS=n)
        command = [script.python, "-W", "ignore", str(HERE / script.file), workload, "0"]
        self.process = subprocess.Popen(
            [*command, *script.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def wait_ready(self) -> None:
        """Until it has compiled. Raises RuntimeError where the process fails."""
        self._read("ready")

    def times(self, seconds: float) -> list[float]:
        """Seconds of each call."""
        return self.ask(seconds)

    def ask(self, line: Any) -> Any:
        """The list that the process prints for a line."""
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)
        return json.loads(self._read("["))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _read(self, start: str) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        _, errors = self.process.communicate()
        raise RuntimeError(f"{self.name} failed: {(errors.strip().splitlines() or ['?'])[-1]}")


def started(scripts: list[Script], workload: str, threads: int) -> list[Worker]:
    """A worker for each script, all ready."""
    workers = [Worker(script, workload, threads) for script in scripts]
    try:
        for worker in workers:
            worker.wait_ready()
    except RuntimeError:
        for worker in workers:
            worker.end()
        raise
    return workers
