"""Fuzzes plait: `make fuzz`, `make fuzz ARGS="--minutes 30 --seed 7 --only files"`. Prints every
finding with the smallest script that shows it, then the counts; exit status 1 if there is one."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from . import conditions, reduce
from .worker import TARGETS, Verdict

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = {"nets": 180, "processes": 180, "sizes": 60}  # for one case; others: 30
SHARE = {"sizes": 2, "nets": 2, "processes": 2}  # of the time; others: 1
START_S = 120  # a worker imports plait, on a busy machine
_printing = threading.Lock()


class Target:
    """One target's cases, run by one worker after the other, each under conditions of its own: a
    case that ends its worker does not end the run."""

    def __init__(self, name: str, seed: int, seconds: float, n_cases: int, folder: Path):
        self.name, self.seed, self.n_cases, self.folder = name, seed, n_cases, folder
        self.end, self.counts, self.findings = time.monotonic() + seconds, Counter(), Counter()
        self.next = 0

    def run(self) -> None:
        while time.monotonic() < self.end and self.next < self.n_cases:
            self._run_worker()

    def _run_worker(self) -> None:
        errors = self.folder / f"{self.name}.stderr"
        seconds = self.end - time.monotonic()
        self.conditions, last = conditions.drawn(self.name, self.seed, self.next)
        command = [sys.executable, "-m", "tests.fuzz.worker", self.name, str(self.seed)]
        with errors.open("wb") as stderr:
            worker = subprocess.Popen(
                [*command, str(self.next), str(seconds), str(min(last, self.n_cases))],
                cwd=ROOT,
                env=self.conditions.environment(),
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            self._listen(worker, errors)
        finally:
            kill(worker)

    def _listen(self, worker, errors: Path) -> None:
        running, patience = None, START_S
        lines = reader(worker.stdout)
        while True:
            line = lines(patience)
            if not line:
                break
            message = json.loads(line)
            if "done" in message:
                self.next = message["done"]
                return
            if "begin" in message:
                running, patience = message, PATIENCE_S.get(self.name, 30)
                self.next = message["begin"] + 1
                continue
            verdict = Verdict(*message["verdict"])
            self.counts[verdict.kind] += 1
            if verdict.is_finding:
                self._found(running, verdict)
            running, patience = None, START_S
        if running is None:
            tail = errors.read_text(errors="replace")[-2000:]
            raise SystemExit(f"fuzz: the worker of {self.name} ended between cases:\n{tail}")
        hung = line is None
        if hung:
            abort(worker)
        kill(worker)
        kind = "hang" if hung else "crash"
        how = f"more than {patience} s" if hung else f"exit status {worker.returncode}"
        text = f"{running['label']}: {how}\n{errors.read_text(errors='replace')[-3000:]}"
        self.counts[kind] += 1
        self._found(running, Verdict(kind, f"{kind}: {running['label']}: {how}", text))

    def _found(self, message: dict, verdict: Verdict) -> None:
        """Prints the first finding of a cause, made small."""
        signature = f"{message['label']}: {verdict.signature}"
        self.findings[signature] += 1
        if self.findings[signature] > 1:
            return
        script = message["script"]
        patience = min(PATIENCE_S.get(self.name, 30), max(10.0, self.end - time.monotonic()))
        env = self.conditions.environment()
        alone, small = reduce.smallest(script, verdict, env, patience)
        number = message["begin" if "begin" in message else "end"]
        with _printing:
            print(f"\n---- {self.name} --seed {self.seed}, case {number}: {verdict.kind}")
            print(verdict.text.rstrip())
            print(f"---- {self.conditions} python -m tests.fuzz.worker SCRIPT")
            if not alone:
                print("# by itself this script passes: cases before it matter")
            print(f"---- smallest script\n{small.rstrip()}\n----", flush=True)


def reader(pipe):
    """A function that gives the next line: b"" at the end, None after `patience` seconds."""
    selector, rest = selectors.DefaultSelector(), b""
    selector.register(pipe, selectors.EVENT_READ)

    def line(patience: float) -> bytes | None:
        nonlocal rest
        end = time.monotonic() + patience
        while b"\n" not in rest:
            if not selector.select(max(0.0, end - time.monotonic())):
                return None
            read = os.read(pipe.fileno(), 1 << 16)
            if not read:
                return b""
            rest += read
        first, _, rest = rest.partition(b"\n")
        return first

    return line


def abort(worker: subprocess.Popen) -> None:
    """Makes a worker write where its threads are."""
    worker.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(5)


def kill(worker: subprocess.Popen) -> None:
    """Ends a worker and the processes that it started."""
    try:
        os.killpg(worker.pid, 9)
    except ProcessLookupError:
        pass
    worker.wait()
    worker.stdout.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="wall time, all targets together"
    )
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="at most, of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", choices=(*TARGETS, "broken"), help="may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    names = args.only or list(TARGETS)
    jobs = min(args.jobs, len(names))
    share = 60 * args.minutes * jobs / sum(SHARE.get(name, 1) for name in names)
    # those with the largest share first, so that all workers end together
    waiting, done = sorted(names, key=lambda name: -SHARE.get(name, 1)), []
    failures: list[BaseException] = []

    def work(folder: Path) -> None:
        try:
            while waiting:
                name = waiting.pop(0)
                seconds = share * SHARE.get(name, 1)
                target = Target(name, args.seed, seconds, args.cases, folder)
                done.append(target)
                target.run()
        except BaseException as error:
            failures.append(error)

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        threads = [threading.Thread(target=work, args=(Path(folder),)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"\nseed {args.seed}: cases of each target")
    for target in sorted(done, key=lambda t: names.index(t.name)):
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(target.counts.items()))
        print(f"  {target.name}: {target.counts.total()} ({counts})")
        for signature, n in target.findings.most_common():
            print(f"    {n} x {signature[:160]}")
    for error in failures:
        print(error, file=sys.stderr)
    return 1 if failures or any(t.findings for t in done) else 0


if __name__ == "__main__":
    sys.exit(main())
