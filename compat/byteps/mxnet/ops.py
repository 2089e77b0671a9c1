"""Ranks and push_pull under BytePS' names."""

from __future__ import annotations

from typing import Any

from ....ndarray import NDArray
from ...horovod.mxnet import mpi_ops
from ...horovod.mxnet.mpi_ops import (
    allreduce_,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__all__ = [
    "byteps_declare_tensor",
    "byteps_push_pull",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "resume",
    "shutdown",
    "size",
    "suspend",
]


def init(lazy: bool = True) -> None:
    """Joins the ranks of this job. lazy is ignored."""
    mpi_ops.init()


def suspend() -> None:
    """Ends the use of BytePS until `resume`."""
    shutdown()


def resume(num_workers: int, num_servers: int, global_rank: int | None = None) -> None:
    """Continues after `suspend`, with the same processes."""
    mpi_ops.init()


def byteps_declare_tensor(name: Any, **kwargs: Any) -> None:
    """Does nothing: tensors are matched by the order of the calls."""


def byteps_push_pull(
    tensor: NDArray,
    version: int = 0,
    priority: int = 0,
    name: Any = None,
    is_average: bool = True,
    **kwargs: Any,
) -> NDArray:
    """The average (is_average=False: the sum) over all ranks, in place. Returns the array."""
    return allreduce_(tensor, average=is_average, name=name, priority=priority)


push_pull = byteps_push_pull
