"""The smallest script that still shows a finding: lines go as long as the finding stays. Every try
runs in a fork of this process, which has imported plait and done nothing else."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import worker

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 60  # for one finding


def outcome(script: str, patience: float) -> tuple[str, str]:
    """(kind, signature) of a script run in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        faulthandler.disable()  # a crash is what is looked for
        found = worker.run(script)
        os.write(write, json.dumps([found.kind, found.signature]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        if not select.select([pipe], [], [], patience)[0]:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hang", ""
        said = pipe.read()
    os.waitpid(pid, 0)
    kind, signature = json.loads(said) if said else ("crash", "")
    return kind, signature


def smallest(script: str, verdict: worker.Verdict, env, patience: float) -> tuple[bool, str]:
    """(does the script show it by itself?, the script with as few lines as still do)."""
    task = json.dumps([script, verdict.kind, verdict.signature, patience])
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.reduce"],
        input=task,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env,
    )
    if done.returncode:
        return False, script
    alone, small = json.loads(done.stdout.splitlines()[-1])
    return alone, small


def main() -> None:
    script, kind, signature, patience = json.load(sys.stdin)
    wanted = (kind, "" if kind in ("hang", "crash") else signature)
    end = time.monotonic() + BUDGET_S

    def same(text: str) -> bool:
        return time.monotonic() < end and outcome(text, patience) == wanted

    worker.limit()
    import plait  # noqa: F401

    with worker.quiet() as send:
        alone = same(script)
        send([alone, without_lines(script, same) if alone else script])


def without_lines(script: str, same: Callable[[str], bool]) -> str:
    """Removes ever smaller runs of lines while `same` holds."""
    lines = script.rstrip("\n").split("\n")
    size = max(1, len(lines) // 2)
    while True:
        at, changed = 0, False
        while at < len(lines):
            fewer = "\n".join(lines[:at] + lines[at + size :])
            if compiles(fewer) and same(fewer):
                lines, changed = fewer.split("\n"), True
            else:
                at += size
        if size == 1 and not changed:
            return "\n".join(lines)
        size = max(1, size // 2)


def compiles(text: str) -> bool:
    try:
        compile(text, "<case>", "exec")
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main()
