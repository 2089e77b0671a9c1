"""`byteps.mxnet`: push_pull, DistributedTrainer, DistributedOptimizer, broadcast_parameters."""

from __future__ import annotations

from typing import Any

from ....engine.error import InvalidValue
from ....training.kvstore import BytePS
from ....training.optimizer import Optimizer
from ...horovod import mxnet as horovod
from ...horovod.mxnet import broadcast_parameters
from . import ops
from .ops import *

__all__ = ["DistributedOptimizer", "DistributedTrainer", "broadcast_parameters"]
__all__ += ops.__all__


class DistributedOptimizer(horovod.DistributedOptimizer):
    """An optimizer whose gradients are averages over all ranks."""

    def __new__(cls, optimizer: Optimizer):
        return super().__new__(cls, optimizer)


class DistributedTrainer(horovod.DistributedTrainer):
    """A Trainer whose gradients are averages over all ranks: `step(batch_size)` takes the batch
    size of one rank.

    root_rank: all ranks start with its values. compression_params: must be None.
    """

    _store_class = BytePS

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        root_rank: int = 0,
        compression_params: dict[str, Any] | None = None,
    ):
        if compression_params:
            raise InvalidValue(
                f"byteps: compression_params={compression_params!r} is not supported"
                "\n  fix: leave it out, or gluon.Trainer(..., kvstore='dist_sync',"
                " compression_params={'type': '2bit'})"
            )
        if root_rank:
            named = params if hasattr(params, "items") else {p.name: p for p in params}
            broadcast_parameters(dict(named.items()), root_rank)
        super().__init__(params, optimizer, optimizer_params)
