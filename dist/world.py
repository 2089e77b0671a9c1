"""The world: all ranks of a job, over MPI."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from typing import Any

from ..engine import at_end, ffi, hooks, lib, raise_last
from ..engine.error import InvalidType, InvalidValue, MXNetError
from . import environment, heartbeat
from .group import Group

_groups: dict[tuple[int, ...], Group] = {}  # by their ranks: those made first
# Open MPI 5.0.11 writes a long message past the end of a receive that is too small where it reads
# the sender's memory itself (smsc) or lets it write (put). Ranks that run different code send such.
_OPEN_MPI = {"OMPI_MCA_smsc": "^cma,xpmem,knem", "OMPI_MCA_btl_tcp_flags": "send,inplace"}
_state: dict[str, Any] = {}  # "world", "messages": Groups, "MPI": mpi4py's module, "place": Place


def init() -> Group:
    """Joins the ranks of this job, once; later calls change nothing. A process that no launcher
    (mpiexec, srun, `python -m plait launch`) started is a world of one rank, and needs no MPI.

    In a job with servers (`python -m plait launch -s 2`) the world is its workers. A server does
    not return from here: it serves until the workers end.

    Returns: the group of all ranks. Raises MXNetError where mpi4py or an MPI library is missing.
    """
    if "world" not in _state:
        if environment.of_environment() is None:
            _state.update(world=Group(0, [0]), place=environment.Place(0, 1, 0, 1))
            _groups[0,] = _state["world"]
        else:
            _join()
            if _state["serves"]:
                hooks.get("server of stores")()
                raise SystemExit(0)
    return _state["world"]


def _join() -> None:
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # only where all ranks end well
        for name, value in _OPEN_MPI.items():
            os.environ.setdefault(name, value)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MXNetError(
            f"dist.init: MPI cannot be used: {error}\n  fix: pip install 'plait[mpi]', or mpi4py"
            " with your cluster's MPI"
        ) from error
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise MXNetError(
            "dist.init: MPI was initialised for one thread\n  fix: mx.dist.init() before other"
            " code starts MPI, or MPI_THREAD_SERIALIZED there"
        )
    everyone = MPI.COMM_WORLD
    largest = everyone.Get_attr(MPI.TAG_UB)
    handles = MPI._handleof(MPI.BYTE), MPI._handleof(MPI.REQUEST_NULL), MPI._sizeof(MPI.Request)
    if lib.pl_mpi_open(MPI.__file__.encode(), *handles, largest, MPI.ERR_TRUNCATE):
        raise_last()
    _state.update(MPI=MPI, place=environment.of_mpi(everyone), whole=True)
    n = everyone.size - environment.servers(everyone.size)
    serves = everyone.rank >= n
    alike = everyone.Split(int(serves), everyone.rank)
    made = [
        make_group(alike, range(n, everyone.size) if serves else range(n)),
        make_group(everyone.Dup(), range(everyone.size)),
    ]
    heartbeat.start(everyone.rank, everyone.size, everyone.bcast, _abandon)
    lib.pl_heartbeat_watch(ffi.addressof(lib, "pl_comm_rank_left"))
    at_end.append(_finalize)
    _state.update(world=made[0], messages=made[1], serves=serves, servers=range(n, everyone.size))
    if n < everyone.size and not serves:
        atexit.register(hooks.get("leave servers"))


def _abandon() -> None:
    _state["whole"] = False


def _finalize(error: BaseException | None) -> None:
    """MPI waits for all ranks, so only where all ended well."""
    if _state["whole"]:
        _state["MPI"].Finalize()


def make_group(communicator: Any, ranks: Iterable[int]) -> Group:
    """A group of an mpi4py communicator that nothing else uses. ranks: of its members, in the
    world."""
    handle = _state["MPI"]._handleof(communicator)
    made = Group(communicator.rank, list(ranks), communicator, handle)
    _groups.setdefault(made.ranks, made)
    return made


def group_of(ranks: tuple[int, ...]) -> Group:
    """The group of these ranks that was made first. Raises InvalidValue where there is none."""
    init()
    if ranks not in _groups:
        raise InvalidValue(
            f"dist: no group of ranks {list(ranks)} was made in this process\n  fix: make the same"
            " groups (mx.dist.mesh, mx.dist.new_group) as the program that made the graph"
        )
    return _groups[ranks]


def messages() -> Group:
    """All ranks, servers among them, for messages between two of them."""
    init()
    return _state.get("messages") or _state["world"]


def servers() -> range:
    """The ranks of servers, which follow those of the workers; for `dist.send` and `receive`."""
    init()
    return _state.get("servers", range(0))


def is_initialized() -> bool:
    """Was `init` called?"""
    return "world" in _state


def is_main() -> bool:
    """Is this rank 0, which writes files and logs, or a process that has not joined a job? Does not
    join one."""
    return not is_initialized() or _state["world"].rank == 0


def rank() -> int:
    """The number of this process, from 0."""
    return init().rank


def size() -> int:
    """The number of processes."""
    return init().size


def local_rank() -> int:
    """The number of this process among those of its machine, from 0: the number of its GPU."""
    init()
    return _state["place"].local_rank


def local_size() -> int:
    """The number of processes on this machine."""
    init()
    return _state["place"].local_size


def new_group(ranks: Iterable[int]) -> Group | None:
    """A group of some ranks; every rank of the world calls this with the same ranks, in the same
    order of calls. Returns None on ranks that are not among them."""
    world, wanted = init(), sorted({int(r) for r in ranks})
    if not wanted or wanted[0] < 0 or wanted[-1] >= world.size:
        raise InvalidType(f"new_group: ranks must be of 0 to {world.size - 1}, got {list(ranks)}")
    if world.size == 1:
        return Group(0, [0])
    communicator = world.communicator.Split(
        0 if world.rank in wanted else _state["MPI"].UNDEFINED, world.rank
    )
    return make_group(communicator, wanted) if world.rank in wanted else None


def own_group(ranks: Iterable[int]) -> Group:
    """The group of ranks that this rank is in, where all ranks are divided into such groups; all of
    them call this, in the same order of calls."""
    world, wanted = init(), list(ranks)
    if len(wanted) == 1:
        return _groups.setdefault(tuple(wanted), Group(0, wanted))
    return make_group(world.communicator.Split(wanted[0], world.rank), wanted)


def exchange(value: Any, root: int = 0, *, group: Group | None = None) -> Any:
    """The value of root, a Python object, on all ranks of a group. Waits for them."""
    group = group or init()
    return value if group.size == 1 else group.communicator.bcast(value, root)
