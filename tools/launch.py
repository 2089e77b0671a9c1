"""plait launch: starts a script as a job of several processes, with the mpiexec of mpi4py's MPI."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import IO

from ..engine.error import InvalidValue, MXNetError, compose
from . import mpiexec

END_S = 10.0  # for mpiexec to end its processes, when it is asked to
FAILED_S = 15.0  # for ranks and mpiexec to end after a rank failed; mpiexec waits for a lost host
# a line that the heartbeat printed (engine/core/heartbeat.c, dist/heartbeat.py)
FAILED = re.compile(r"(?:\[\d+\] )?plait: (rank \d+ of \d+.*)")
MORE = re.compile(r"(?:\[\d+\] )?(  (?:at|fix|cause): .*)")
LAST = re.compile(
    r"(?:\[\d+\] )?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*|plait\.[\w.]+: .*)"
)
FORWARDED = ("PLAIT_", "DMLC_", "MXNET_", "PYTHON", "OMP_")  # variables for other machines
LAUNCHERS = {  # of MXNet's tools/launch.py: what to do instead
    "slurm": "srun starts the ranks itself: srun -n 4 python train.py (docs/guide/distributed.md)",
    "sge": "ask SGE's parallel environment for slots, and start python -m plait launch -n $NSLOTS "
    "--hostfile $PE_HOSTFILE in the job's script",
    "yarn": "start the job by Slurm, by Kubernetes, or with -H (docs/guide/distributed.md)",
}
EPILOG = """Arguments of MXNet's tools/launch.py work too: -n, -s, -H FILE, --env NAME:VALUE,
--env-worker, --env-server, --launcher local|ssh|mpi. DMLC_NUM_WORKER and DMLC_NUM_SERVER are
defaults of -n and -s. A scheduler process is not needed."""


class JobFailed(MXNetError):
    """A rank failed, so the job did."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m plait launch", description=__doc__, epilog=EPILOG
    )
    add = parser.add_argument
    add("-n", "--num-workers", type=int, metavar="N", help="ranks that train")
    add("-s", "--num-servers", type=int, metavar="S", help="ranks that serve dist_async; default 0")
    add("-H", "--hosts", metavar="HOSTS", help="host1:2,host2:2: hosts, and how many ranks on each")
    add("--hostfile", metavar="FILE", help="a file with a host in each line: host1:2")
    add("--mpi", choices=("auto", "mpich", "openmpi"), default="auto", help="default: mpi4py's")
    add("--restarts", type=int, default=0, metavar="K", help="start a failed job again, K times")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of all ranks")
    add("--env-worker", action="append", default=[], metavar="NAME=VALUE", help="of workers")
    add("--env-server", action="append", default=[], metavar="NAME=VALUE", help="of servers")
    add("--threads", type=int, metavar="K", help="of each rank; default: cores / ranks on a host")
    add("--timeout", type=float, metavar="S", help="seconds after which the job is ended as failed")
    add("--bind", choices=("none", "core", "socket", "numa"), default="none", help="of each rank")
    add("--prefix", action="store_true", help="each line of output begins with its rank: [1]")
    add("--mpi-args", default="", metavar="ARGS", help="more arguments for mpiexec")
    add("--launcher", choices=("local", "ssh", "mpi", *LAUNCHERS), help=argparse.SUPPRESS)
    add("--sync-dst-dir", help=argparse.SUPPRESS)
    add("--p3", action="store_true", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, metavar="script.py ...", help="and its arguments")
    return parser


def main(argv: list[str]) -> int:
    """Starts a job and waits for its end. Returns 0; raises JobFailed with why it failed."""
    parser = _parser()
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if os.environ.get("DMLC_ROLE") == "scheduler":
        print("plait launch: DMLC_ROLE=scheduler: this process is not needed, and ends now")
        return 0
    if not command:
        parser.error("the script is missing: python -m plait launch -n 4 train.py")
    _explain(args)
    n_workers, n_servers = _ranks(args)
    on = _hosts(args, n_workers + n_servers)
    parts = _parts(args, n_workers, n_servers, on)
    program = _program(command)
    words = mpiexec.command(
        mpiexec.find(args.mpi),
        program,
        parts,
        on,
        args.bind,
        args.mpi_args.split(),
        args.prefix,
    )
    for attempt in range(args.restarts + 1):
        try:
            return _Run(words, attempt, args.timeout).wait()
        except JobFailed as error:
            if attempt == args.restarts:
                raise
            said = f"plait launch: {error}\nplait launch: restart {attempt + 1} of {args.restarts}"
            print(said, file=sys.stderr, flush=True)
    raise AssertionError("unreachable")


# ---- what is asked for ----


def _explain(args: argparse.Namespace) -> None:
    """Refuses arguments of MXNet's launcher that this one lacks, and says what to do instead."""
    if args.launcher in LAUNCHERS:
        rule = f"--launcher {args.launcher}: this launcher starts jobs by mpiexec"
        raise InvalidValue(compose(rule, fix=LAUNCHERS[args.launcher]))
    if args.sync_dst_dir:
        raise InvalidValue(
            compose(
                f"--sync-dst-dir {args.sync_dst_dir}: files are not copied to other hosts",
                fix="use a folder that all hosts share, or rsync before",
            )
        )
    if args.launcher == "local" and (args.hosts or args.hostfile):
        raise InvalidValue("--launcher local runs on this machine: it takes no -H or --hostfile")
    for name, least in (("restarts", 0), ("threads", 1), ("timeout", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise InvalidValue(f"--{name} must be at least {least}, got {value}")


def _ranks(args: argparse.Namespace) -> tuple[int, int]:
    """How many workers and servers."""
    n = args.num_workers if args.num_workers is not None else _dmlc("DMLC_NUM_WORKER")
    servers = args.num_servers if args.num_servers is not None else _dmlc("DMLC_NUM_SERVER")
    if n is None or n < 1:
        raise InvalidValue(f"-n: must be at least 1 worker, got {'nothing' if n is None else n}")
    if (servers or 0) < 0:
        raise InvalidValue(f"-s: must be at least 0 servers, got {servers}")
    return n, servers or 0


def _dmlc(name: str) -> int | None:
    text = os.environ.get(name, "")
    if text and not text.isdigit():
        raise InvalidValue(f"{name}={text}: must be a number of processes")
    return int(text) if text else None


def _hosts(args: argparse.Namespace, n_ranks: int) -> list[tuple[str, int]]:
    """The hosts, with room for all ranks. -H may name a file, as MXNet's does."""
    if args.hosts and args.hostfile:
        raise InvalidValue("-H and --hostfile: only one of the two")
    file = args.hostfile or (args.hosts if args.hosts and os.path.isfile(args.hosts) else None)
    if not file and not args.hosts:
        return []
    on = mpiexec.read_hosts(file) if file else mpiexec.hosts(args.hosts)
    if all(n == 1 for _, n in on):  # no numbers: as even as possible
        each, more = divmod(n_ranks, len(on))
        on = [(host, each + (i < more)) for i, (host, _) in enumerate(on)]
        return [(host, n) for host, n in on if n]
    capacity = sum(n for _, n in on)
    if capacity < n_ranks:
        raise InvalidValue(
            f"-H: the hosts have room for {capacity} ranks, and the job has {n_ranks}: "
            + ",".join(f"{host}:{n}" for host, n in on)
        )
    return on


def _program(command: list[str]) -> list[str]:
    """train.py runs on this Python; another program, as of MXNet's launcher, runs as it is."""
    if not command[0].endswith(".py"):
        return command
    if not os.path.isfile(command[0]):
        raise InvalidValue(f"{command[0]}: there is no such script in {os.getcwd()}")
    return [sys.executable, *command]


def _assigned(option: str, words: list[str]) -> dict[str, str]:
    """NAME=VALUE, or MXNet's NAME:VALUE."""
    found = {}
    for word in words:
        parts = re.fullmatch(r"([A-Za-z_]\w*)[=:](.*)", word, re.DOTALL)
        if not parts:
            raise InvalidValue(f"{option}: must be NAME=VALUE, got {word!r}")
        found[parts[1]] = parts[2]
    return found


def _parts(
    args: argparse.Namespace, n_workers: int, n_servers: int, on: list[tuple[str, int]]
) -> list[mpiexec.Part]:
    """Workers, then servers, with their variables."""
    everywhere = {"DMLC_NUM_WORKER": str(n_workers), "DMLC_NUM_SERVER": str(n_servers)}
    if on:  # this machine's variables reach ranks on it by themselves
        everywhere |= {k: v for k, v in os.environ.items() if k.startswith(FORWARDED)}
    if args.threads or "OMP_NUM_THREADS" not in os.environ:
        busiest = max((n for _, n in on), default=n_workers + n_servers)
        threads = args.threads or max(len(os.sched_getaffinity(0)) // busiest, 1)
        everywhere["OMP_NUM_THREADS"] = str(threads)
    everywhere |= _assigned("--env", args.env)
    roles = (
        (n_workers, "worker", _assigned("--env-worker", args.env_worker)),
        (n_servers, "server", _assigned("--env-server", args.env_server)),
    )
    return [mpiexec.Part(n, {**everywhere, "DMLC_ROLE": r, **own}) for n, r, own in roles if n]


# ---- one run of the job ----


class _Run:
    """mpiexec in a session of its own, so that Ctrl-C reaches it once, from here."""

    def __init__(self, words: list[str], attempt: int, timeout_s: float | None):
        self.timeout_s = timeout_s
        self.failure: list[str] = []  # what the heartbeat printed: a line and its details
        self.last = ""  # the last line of the first traceback
        self.signal = 0
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PLAIT_RESTART": str(attempt)},
        )
        assert self.process.stderr is not None
        self.reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)

    def wait(self) -> int:
        """0, or the status of a job that was interrupted; raises JobFailed for one that failed."""
        before = {s: signal.signal(s, self._interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.reader.start()
            timed_out = self._timed_out()
            status = self.process.wait()
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
        self.reader.join(END_S)
        if self.signal:
            print(f"plait launch: ended by signal {self.signal}", file=sys.stderr)
            return 128 + self.signal
        if timed_out:
            raise JobFailed(
                f"the job ran longer than --timeout {self.timeout_s:g} s, and was ended"
            )
        if status:
            raise JobFailed(self._why(status))
        return 0

    def _timed_out(self) -> bool:
        try:
            self.process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self._end()
            return True
        return False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.signal:  # again: at once
            self._kill(signal.SIGKILL)
        self.signal = number
        self._kill(signal.SIGINT)
        later = threading.Timer(END_S, self._kill, (signal.SIGKILL,))
        later.daemon = True
        later.start()

    def _kill(self, number: int) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def _end(self) -> None:
        """Asks mpiexec to end its processes, and ends it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                return
            self._kill(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)

    def _read(self, stream: IO[bytes]) -> None:
        """Copies what ranks write to stderr, and remembers the lines that explain a failure."""
        rest = b""
        with stream:
            while chunk := os.read(stream.fileno(), 65536):
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.buffer.write(chunk)
                    sys.stderr.flush()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._note(line.decode(errors="replace").rstrip())

    def _note(self, line: str) -> None:
        if found := FAILED.fullmatch(line):
            if not self.failure:
                self.failure = [found[1]]
                later = threading.Timer(FAILED_S, self._end)
                later.daemon = True
                later.start()
            self.following = len(self.failure) == 1
        elif found := MORE.fullmatch(line):
            if self.failure and self.following:
                self.failure.append(found[1])
        else:
            self.following = False
            if found := LAST.fullmatch(line):
                self.last = self.last or found[1]

    following = False

    def _why(self, status: int) -> str:
        if self.failure:
            return "\n".join(self.failure)
        why = f", perhaps by {self.last}" if self.last else ""
        rule = f"a rank ended without success{why}: mpiexec's status is {status}"
        return compose(rule, fix="read what the ranks wrote before")
