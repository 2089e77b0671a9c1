"""Ranks, process sets and collectives under Horovod's names.

A collective returns at once; the engine runs it. A name is for errors and the profiler; what has a
higher priority is sent first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import dist
from ....engine import cuda, waitall
from ....engine.error import InvalidValue
from ....ndarray import NDArray, functions
from ....ndarray.autograd import pause
from ....ndarray.creation import array, zeros

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "grouped_allreduce_",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
]

Average, Sum, Min, Max, Product = "mean", "sum", "min", "max", "prod"
Adasum = "adasum"


class NotInitialized(InvalidValue):
    """Horovod is used before hvd.init()."""


class ProcessSet:
    """Some ranks, in ascending order. `init(process_sets=[...])` or `add_process_set` activates it,
    on all ranks in the same order."""

    process_set_id: int | None = None

    def __init__(self, ranks: Sequence[int]):
        self.ranks = sorted(ranks)
        self.group: dist.Group | None = None

    def __repr__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def included(self) -> bool:
        """Is this rank one of them?"""
        return rank() in self.ranks

    def rank(self) -> int:
        """The number of this rank among them."""
        return _group(self).rank

    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)


global_process_set = ProcessSet([])
_sets: list[ProcessSet] = []  # the active ones; empty before init and after shutdown
_local_ranks: list[int] = []  # of all ranks


def init(comm: Any = None, process_sets: Sequence[ProcessSet] | None = None) -> None:
    """Joins the ranks of this job. comm: None, or all ranks."""
    world = dist.init()
    if isinstance(comm, (list, tuple)) and sorted(comm) != list(world.ranks):
        raise InvalidValue(
            f"hvd.init: comm must be all ranks {list(world.ranks)}, got {comm}"
            "\n  fix: process_sets=[hvd.ProcessSet(ranks)]"
        )
    if _sets:
        return
    global_process_set.ranks, global_process_set.group = list(world.ranks), world
    global_process_set.process_set_id = 0
    _sets.append(global_process_set)
    here = dist.all_gather(array([dist.local_rank()], dtype="int32"), name="local ranks")
    _local_ranks[:] = here.asnumpy().tolist()
    for wanted in process_sets or ():
        add_process_set(wanted)


def shutdown() -> None:
    """Waits for what this rank has started. MPI ends with the process."""
    waitall()
    _sets.clear()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Activates a process set; all ranks call it in the same order."""
    _need()
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    made.group = dist.new_group(made.ranks)
    made.process_set_id = max(s.process_set_id or 0 for s in _sets) + 1
    _sets.append(made)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. False for the set of all ranks, or one that is not active."""
    if process_set is global_process_set or process_set not in _sets:
        return False
    waitall()
    _sets.remove(process_set)
    process_set.process_set_id = process_set.group = None
    return True


def _need() -> None:
    if not _sets:
        raise NotInitialized("Horovod has not been initialized\n  fix: hvd.init()")


def _group(process_set: ProcessSet) -> dist.Group:
    _need()
    if process_set not in _sets:
        raise InvalidValue(f"{process_set} is not active\n  fix: hvd.add_process_set(process_set)")
    if process_set.group is None:
        raise InvalidValue(f"rank {rank()} is not in {process_set}")
    return process_set.group


# ---- where this process stands -------------------------------------------------------------------


def is_initialized() -> bool:
    """Was init called, and shutdown not?"""
    return bool(_sets)


def rank() -> int:
    """The number of this process, from 0."""
    _need()
    return dist.rank()


def size() -> int:
    """The number of processes."""
    _need()
    return dist.size()


def local_rank() -> int:
    """The number of this process among those of its machine."""
    _need()
    return dist.local_rank()


def local_size() -> int:
    """The number of processes on this machine."""
    _need()
    return dist.local_size()


def cross_rank() -> int:
    """The number of this process's machine, among those that have a process of its local rank."""
    return _local_ranks[: rank()].count(local_rank())


def cross_size() -> int:
    """How many machines have a process of this local rank."""
    _need()
    return _local_ranks.count(local_rank())


def is_homogeneous() -> bool:
    """Does each machine have the same number of processes?"""
    _need()
    return all(_local_ranks.count(r) == _local_ranks.count(0) for r in set(_local_ranks))


def mpi_threads_supported() -> bool:
    """May several threads call MPI? Always: only the core's thread does."""
    _need()
    return True


def _yes() -> bool:
    return True


def _no(verbose: bool = False) -> bool:
    return False


mpi_enabled = mpi_built = _yes
gloo_enabled = gloo_built = ddl_built = ccl_built = cuda_built = rocm_built = _no


def nccl_built() -> int:
    """1: arrays of GPUs travel over NCCL, which is installed; else 0."""
    return int(cuda.count() > 0 and cuda.find("nccl") is not None)


# ---- collectives ---------------------------------------------------------------------------------


def _operation(op: str | None, average: bool | None) -> str:
    if op is not None and average is not None:
        raise InvalidValue("allreduce: op and average cannot be given both\n  fix: op=hvd.Sum")
    if op == Adasum:
        raise InvalidValue("allreduce: Adasum is not supported\n  fix: op=hvd.Average")
    return op or (Sum if average is False else Average)


def _name(name: Any) -> str:
    return "" if name is None else str(name)


def _reduced(tensors, in_place, op, average, name, priority, before, after, process_set):
    group, op = _group(process_set), _operation(op, average)
    with pause():
        sent = list(tensors)
        if before != 1.0:
            for i, t in enumerate(sent):
                sent[i] = t.__imul__(before) if in_place else t * before
        made = dist.all_reduce(
            sent,
            op,
            out=sent if in_place or before != 1.0 else None,
            group=group,
            name=_name(name),
            priority=priority,
        )
        if after != 1.0:
            for t in made:
                t *= after
    return made


def allreduce(
    tensor: NDArray,
    average: bool | None = None,
    name: Any = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: str | None = None,
) -> NDArray:
    """The average (average=False: the sum) over all ranks; a new array."""
    factors = prescale_factor, postscale_factor
    return _reduced([tensor], False, op, average, name, priority, *factors, process_set)[0]


def allreduce_(
    tensor: NDArray,
    average: bool | None = None,
    name: Any = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: str | None = None,
) -> NDArray:
    """allreduce in place. Returns the array."""
    factors = prescale_factor, postscale_factor
    return _reduced([tensor], True, op, average, name, priority, *factors, process_set)[0]


def grouped_allreduce(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: Any = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: str | None = None,
) -> list[NDArray]:
    """allreduce of arrays of one dtype, which travel together."""
    factors = prescale_factor, postscale_factor
    return _reduced(tensors, False, op, average, name, priority, *factors, process_set)


def grouped_allreduce_(
    tensors: Sequence[NDArray],
    average: bool | None = None,
    name: Any = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: str | None = None,
) -> list[NDArray]:
    """grouped_allreduce in place. Returns the arrays."""
    factors = prescale_factor, postscale_factor
    return _reduced(tensors, True, op, average, name, priority, *factors, process_set)


def allgather(
    tensor: NDArray,
    name: Any = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """All ranks' arrays, one after the other along axis 0, whose lengths may differ. Waits for the
    lengths."""
    group = _group(process_set)
    with pause():
        mine = array([tensor.shape[0]], dtype="int64")
        counts = dist.all_gather(mine, group=group, name=f"{_name(name)} lengths")
        lengths = [int(n) for n in counts.asnumpy()]
        sent = _padded(tensor, max(lengths))
        whole = dist.all_gather(sent, group=group, name=_name(name), priority=priority)
        if len(set(lengths)) == 1:
            return whole
        n = max(lengths)
        parts = [whole[r * n : r * n + k] for r, k in enumerate(lengths) if k]
        return functions.concat(*parts, dim=0) if parts else tensor.copy()


def _padded(tensor: NDArray, n: int) -> NDArray:
    if tensor.shape[0] == n:
        return tensor
    made = zeros((n, *tensor.shape[1:]), ctx=tensor.context, dtype=tensor.dtype)
    if tensor.shape[0]:
        made[: tensor.shape[0]] = tensor
    return made


def broadcast(
    tensor: NDArray,
    root_rank: int,
    name: Any = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """root_rank's array; a new one."""
    return broadcast_(tensor.copy(), root_rank, name, priority, process_set)


def broadcast_(
    tensor: NDArray,
    root_rank: int,
    name: Any = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> NDArray:
    """broadcast in place. root_rank: its number among all ranks. Returns the array."""
    group = _group(process_set)
    if root_rank not in group.ranks:
        raise InvalidValue(f"broadcast: root_rank must be of {list(group.ranks)}, got {root_rank}")
    root = group.ranks.index(root_rank)
    return dist.broadcast(tensor, root, group=group, name=_name(name), priority=priority)


def alltoall(
    tensor: NDArray,
    splits: Any = None,
    name: Any = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a part of axis 0 to each rank and gathers theirs. splits: the lengths of the parts
    (default: equal ones); then also returns the lengths received, and waits for them."""
    group = _group(process_set)
    if splits is None:
        return dist.all_to_all(tensor, group=group, name=_name(name), priority=priority)
    lengths = np.asarray(splits.asnumpy() if isinstance(splits, NDArray) else splits, np.int64)
    if lengths.shape != (group.size,) or lengths.sum() != tensor.shape[0] or (lengths < 0).any():
        raise InvalidValue(
            f"alltoall: splits must be {group.size} lengths whose sum is {tensor.shape[0]}, got"
            f" {lengths.tolist()}"
        )
    with pause():
        mine = array(lengths, dtype="int64")
        table = dist.all_gather(mine, group=group, name=f"{_name(name)} splits").asnumpy()
        table = table.reshape(group.size, group.size)
        longest = max(1, int(table.max()))
        starts = np.cumsum(lengths) - lengths
        sent = zeros(
            (group.size * longest, *tensor.shape[1:]), ctx=tensor.context, dtype=tensor.dtype
        )
        for r, (start, n) in enumerate(zip(starts.tolist(), lengths.tolist())):
            if n:
                sent[r * longest : r * longest + n] = tensor[start : start + n]
        whole = dist.all_to_all(sent, group=group, name=_name(name), priority=priority)
        got = table[:, group.rank].tolist()
        parts = [whole[r * longest : r * longest + n] for r, n in enumerate(got) if n]
        made = functions.concat(*parts, dim=0) if parts else tensor[0:0].copy()
        return made, array(got, dtype="int32")


def reducescatter(
    tensor: NDArray,
    op: str = Average,
    name: Any = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> NDArray:
    """This rank's part, along axis 0, of the average over all ranks; the first ranks have one row
    more where axis 0 is not divisible."""
    group, op = _group(process_set), _operation(op, None)
    n, more = divmod(tensor.shape[0], group.size)
    with pause():
        sent = tensor if prescale_factor == 1.0 else tensor * prescale_factor
        if more:
            whole = dist.all_reduce(sent, op, group=group, name=_name(name), priority=priority)
            start = group.rank * n + min(group.rank, more)
            made = whole[start : start + n + (group.rank < more)].copy()
        else:
            made = dist.reduce_scatter(sent, op, group=group, name=_name(name), priority=priority)
        if postscale_factor != 1.0:
            made *= postscale_factor
    return made


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank is here."""
    dist.barrier(_group(process_set))


# ---- Python objects ------------------------------------------------------------------------------


def broadcast_object(obj: Any, root_rank: int = 0, name: Any = None) -> Any:
    """root_rank's object, on all ranks. Waits."""
    _need()
    return dist.exchange(obj, root_rank)


def allgather_object(obj: Any, name: Any = None) -> list:
    """All ranks' objects, in the order of ranks. Waits."""
    return [dist.exchange(obj, r) for r in range(size())]
