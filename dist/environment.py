"""The rank of a process: from the variables that its launcher set, or from MPI.

>>> of_environment({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
...                 "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
Place(rank=3, size=4, local_rank=1, local_size=2)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..engine.error import InvalidValue, compose


class Place(NamedTuple):
    """The rank of a process, and the number of ranks. local: among the processes of the same
    machine; None where the launcher does not set it."""

    rank: int
    size: int
    local_rank: int | None
    local_size: int | None


# Of each launcher: its variables in the order of Place ("": it has none). srun starts ranks of
# either MPI, which sets its own variables too, so those come first.
VARIABLES = {
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # of the job step: a batch script outside srun has SLURM_PROCID and SLURM_NTASKS, and is alone
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
}


def of_environment(environ: Mapping[str, str] = os.environ) -> Place | None:
    """The place that the variables of Open MPI, MPICH or Slurm give; None: no launcher started this
    process.

    Raises InvalidValue for variables that contradict each other.
    """
    for starter, names in VARIABLES.items():
        if names[0] in environ and names[1] in environ:
            return _checked(starter, names, [_number(environ, name) for name in names])
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name) if name else None
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidValue(f"{name}={text!r}: must be a number, as the launcher sets it")
    return int(text)


def _checked(starter: str, names: tuple[str, ...], values: list[int | None]) -> Place:
    rank, size, local_rank, local_size = values
    assert rank is not None and size is not None
    if rank >= size or (local_rank or 0) >= (local_size or size):
        shown = " ".join(f"{n}={v}" for n, v in zip(names, values) if v is not None)
        raise InvalidValue(
            compose(
                f"{starter} gave this process a rank beyond the number of ranks: {shown}",
                fix="unset these variables, or start the job again",
            )
        )
    return Place(rank, size, local_rank, local_size)


def of_mpi(comm: Any) -> Place:
    """The place of this process in a communicator of mpi4py; all its ranks call this."""
    from mpi4py import MPI  # here: a process alone needs no MPI

    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    place = Place(comm.rank, comm.size, local.rank, local.size)
    local.Free()
    return place


def servers(size: int, environ: Mapping[str, str] = os.environ) -> int:
    """How many of a job's ranks, the last ones, are servers of stores: `python -m plait launch -s`.

    Raises InvalidValue where DMLC_NUM_WORKER and DMLC_NUM_SERVER do not give the number of ranks.
    """
    n = _number(environ, "DMLC_NUM_SERVER") or 0
    workers = _number(environ, "DMLC_NUM_WORKER")
    if n and (workers is None or not workers or workers + n != size):
        raise InvalidValue(
            compose(
                f"DMLC_NUM_WORKER={workers} and DMLC_NUM_SERVER={n} must add up to the number of"
                f" ranks, {size}",
                fix="python -m plait launch -n WORKERS -s SERVERS script.py",
            )
        )
    return n


def restarts(environ: Mapping[str, str] = os.environ) -> int:
    """How often `python -m plait launch --restarts` has started this job again; 0 at first."""
    return _number(environ, "PLAIT_RESTART") or 0
