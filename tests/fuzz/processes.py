"""Processes that end or divide while work is in flight: forks, Ctrl-C, killed workers of a
DataLoader, exits, exceptions in callbacks. Each is a program of its own that must end in time with
the right status, and say nothing that only a fault says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# ---- what scripts call ---------------------------------------------------------------------------

PATIENCE_S = 90
DEADLINE_S = 30  # of a program that has lost a worker: its own patience is 600
START = """\
import glob, os, signal, sys, threading, time
import numpy as np
import plait as mx
from tests.fuzz import conditions; conditions.apply()
from plait import autograd, engine, gluon, nd
from plait.gluon import nn
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
"""
FAULTS = ("Fatal Python error", "Segmentation", "AddressSanitizer", "terminate called", "corrupt")


class Program:
    """The text of a program, line by line."""

    def __init__(self):
        self.text = START

    def line(self, text: str) -> None:
        self.text += text + "\n"

    def ends(self, *statuses: int, within: float = PATIENCE_S) -> None:
        """Runs it. Raises AssertionError if it takes more than `within` seconds, ends with another
        status, or reports a fault."""
        with tempfile.TemporaryFile() as output:  # a pipe would wait for what it started, too
            child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", self.text],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
            status = None
            try:
                status = child.wait(within)
            except subprocess.TimeoutExpired:
                # faulthandler, where it is on, shows where it stands
                child.send_signal(signal.SIGABRT)
                child.wait(10)
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            output.seek(0)
            out = output.read().decode(errors="replace")
        assert status is not None, f"it hangs:\n{out[-2000:]}"
        assert status in statuses, (
            f"exit status {status}, expected one of {statuses}:\n{out[-2000:]}"
        )
        assert not any(f in out for f in FAULTS), f"it reports a fault:\n{out[-2000:]}"


# ---- cases ---------------------------------------------------------------------------------------

INTERRUPTED = (130, -signal.SIGINT)
IN_FLIGHT = (
    "x = nd.ones(({n}, {n})); y = nd.dot(x, x)",
    "for _ in range({m}): y = nd.dot(nd.ones(({n}, {n})), nd.ones(({n}, {n})))",
    "v = engine.Var(); [engine.push(lambda: time.sleep(0.001), writes=[v]) for _ in range({m})]",
    "v = engine.Var(); [engine.push(lambda: None, writes=[v], lane='io') for _ in range({m})]",
    "net = nn.Dense({m}); net.initialize(); net.hybridize()\n"
    "for _ in range(5): net(nd.ones((4, {n})))",
    "z = nd.ones(({n},)).as_in_context(mx.cpu(1)) * 2",
    "w = nd.ones(({n},)); w.attach_grad()\nwith autograd.record(): l = (w * w).sum()\nl.backward()",
    "r = nd.random.uniform(shape=({n}, {n}))",
    "threading.Thread(target=lambda: [nd.ones((3,)) + 1 for _ in range({m})], daemon=True).start()",
)
CHECK = "assert (nd.ones(({n},)) + 1).asnumpy().sum() == 2 * {n}"
LOADER = (
    "loader = gluon.data.DataLoader(gluon.data.ArrayDataset(nd.arange(40)), batch_size={b}, "
    "num_workers={w}, timeout=600)"
)


def script(rng: random.Random, *_) -> tuple[str, str]:
    kinds = (fork, leave, interrupt, killed_worker, killed_worker, callback, pool)
    label, body, statuses = rng.choice(kinds)(rng)
    lines = ["from tests.fuzz.processes import Program", "", "p = Program()"]
    lines += [f"p.line({text!r})" for text in body]
    within = f", within={DEADLINE_S}" if label == "killed worker" else ""
    return label, "\n".join([*lines, f"p.ends({', '.join(map(str, statuses))}{within})", ""])


def fill(rng, text: str) -> str:
    return text.format(n=rng.choice((1, 3, 64, 300)), m=rng.choice((1, 5, 50, 300)), b=3, w=2)


def in_flight(rng) -> list[str]:
    return [fill(rng, rng.choice(IN_FLIGHT)) for _ in range(rng.randint(1, 4))]


def fork(rng):
    child = [fill(rng, rng.choice(IN_FLIGHT[:2] + IN_FLIGHT[4:6])), fill(rng, CHECK)]
    return (
        "fork",
        [
            *in_flight(rng),
            "child = os.fork()",
            *child,
            "nd.waitall()",
            "if child == 0: os._exit(7)",
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7",
        ],
        (0,),
    )


def leave(rng):
    how = rng.choice(("", "sys.exit(3)", "raise ValueError('of the user')", "os._exit(4)"))
    status = {"": 0, "sys.exit(3)": 3, "os._exit(4)": 4}.get(how, 1)
    return "exit", [*in_flight(rng), how or "pass"], (status,)


def interrupt(rng):
    after = rng.choice((0.0, 0.001, 0.01, 0.05, 0.2, 0.5))
    work = rng.choice(
        (
            "while True: nd.dot(x, x).wait_to_read()",
            "while True: x = x * 1.0001",
            "while True: net(x); nd.waitall()",
            "v = engine.Var()\n"
            "while True: engine.push(lambda: time.sleep(0.5), writes=[v]); engine.wait_for_var(v)",
            "while True:\n    for batch in loader: time.sleep(0.05)",
        )
    )
    return (
        "Ctrl-C",
        [
            "x = nd.ones((100, 100))",
            "net = nn.Dense(100); net.initialize(); net.hybridize()",
            fill(rng, LOADER),
            f"threading.Timer({after}, os.kill, (os.getpid(), signal.SIGINT)).start()",
            work,
        ],
        INTERRUPTED,
    )


def killed_worker(rng):
    """A worker dies: inside the dataset, or killed from outside, between batches or at any moment.
    The loop ends with an error that says so, or has had all it needs; the next epoch is whole."""
    n, batch, workers = 40, rng.randint(1, 7), rng.randint(1, 3)
    how = rng.choice(("inside", "between", "timer"))
    death = "os.kill(os.getpid(), signal.SIGKILL)" if rng.random() < 0.7 else "os._exit(3)"
    kill = f"os.kill(pid, signal.SIG{rng.choice(('KILL', 'KILL', 'TERM', 'SEGV'))})"
    # what a worker has started outlives it, and holds its end of the pipe
    child = rng.random() < 0.4
    lines = [
        "class Data:",
        "    fatal = -1",
        f"    def __len__(self): return {n}",
        "    def __getitem__(self, i):",
        *(["        if not self.started: start(self)"] if child else []),
        f"        if i == self.fatal: {death}",
        f"        time.sleep({rng.choice((0.001, 0.01))})",
        "        return np.full(3, i, 'float32')",
        "    started = False",
        "def start(data):",
        "    data.started = True",
        "    if os.fork() == 0: time.sleep(1000)",
        "data = Data()",
        *([f"data.fatal = {rng.randrange(n)}"] if how == "inside" else []),
    ]
    loader = [
        f"loader = gluon.data.DataLoader(data, batch_size={batch}, num_workers={workers}, "
        f"timeout=600, prefetch={rng.randint(1, 6)})",
        "def children():",
        "    me = os.getpid()",
        "    found = []",
        "    for pid in map(int, open(f'/proc/{me}/task/{me}/children').read().split()):",
        "        if b'resource_tracker' not in open(f'/proc/{pid}/cmdline', 'rb').read():",
        "            found.append(pid)",
        "    return found",
        f"def kill():\n    for pid in children()[:{rng.choice((1, 9))}]: {kill}",
    ]
    if how == "timer":
        after = rng.uniform(0, 0.3)
        loader.append(f"threading.Timer({after:.3f}, kill).start()")
    step = f"\n        if len(seen) == {rng.randint(1, n // batch)}: kill()" * (how == "between")
    loop = [
        "seen = []",
        "try:\n    for batch in loader:\n        seen.append(batch)" + step,
        "except mx.MXNetError as error:\n    assert 'died' in str(error), error\nelse:\n"
        + (
            "    raise SystemExit('no error')"
            if how == "inside"
            else "    assert sum(map(len, seen)) == 40"
        ),
    ]
    again = [
        "data.fatal = -1",
        "time.sleep(0.4)",  # the timer's time is over
        f"loader = gluon.data.DataLoader(data, batch_size={batch}, num_workers={workers}, "
        "timeout=600)",
        "seen = [i for batch in loader for i in batch.asnumpy()[:, 0].tolist()]",
        f"assert seen == list(range({n})), seen",
        "del loader",
    ]
    whole = ["\n".join(lines), "\n".join(loader), "\n".join(loop), *again, fill(rng, CHECK)]
    return "killed worker", whole, (0,)


def callback(rng):
    error = rng.choice(("ValueError('x')", "KeyboardInterrupt()", "SystemExit(3)", "MemoryError()"))
    lane = rng.choice(("cpu", "io"))
    return (
        "callback",
        [
            "v, u = engine.Var(), engine.Var()",
            "def fails(): raise " + error,
            *in_flight(rng),
            f"engine.push(fails, writes=[v], lane={lane!r})",
            "engine.push(lambda: None, reads=[v], writes=[u])",
            "try: engine.wait_for_var(u); raise SystemExit('it was not raised')\n"
            "except (mx.MXNetError, KeyboardInterrupt, SystemExit) as e: "
            "assert 'not raised' not in str(e)",
            "try: nd.waitall()\nexcept (mx.MXNetError, KeyboardInterrupt, SystemExit): pass",
            fill(rng, CHECK),
        ],
        (0,),
    )


def pool(rng):
    context = rng.choice(("fork", "fork", "spawn"))
    if context == "spawn":  # a program given by -c cannot be imported again
        work = "import functools, operator; work = functools.partial(operator.mul, 3)"
    else:
        work = (
            "def work(i):\n"
            "    return int((own(nd.ones((2, 3)) * i) * 0 + 3 * i).asnumpy().reshape(-1)[0])"
        )
    return (
        "pool",
        [
            "import multiprocessing",
            "own = nn.Dense(2); own.initialize(); own.hybridize(); own(nd.ones((2, 3)))",
            *in_flight(rng),
            work,
            f"with multiprocessing.get_context({context!r}).Pool(2) as workers: "
            "assert workers.map(work, range(6)) == [0, 3, 6, 9, 12, 15]",
        ],
        (0,),
    )
