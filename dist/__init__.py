"""Many processes: ranks, groups, and collectives on NDArrays as engine operations (`mx.dist`).

>>> import plait as mx
>>> from plait import dist
>>> dist.init().size  # in a process that no launcher started
1
>>> dist.all_reduce(mx.nd.array([1.0, 2.0])).asnumpy().tolist()
[1.0, 2.0]
"""

from .collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    collect,
    receive,
    reduce_scatter,
    send,
)
from .group import Group
from .mesh import Mesh, current_mesh, data_group, mesh, shard, sum_gradients
from .partition import Partition, Stage, partition
from .pipeline import Pipeline, pipeline
from .placed import Placed
from .world import (
    exchange,
    init,
    is_initialized,
    is_main,
    local_rank,
    local_size,
    new_group,
    rank,
    servers,
    size,
)

__all__ = [
    "Group",
    "Mesh",
    "Partition",
    "Pipeline",
    "Placed",
    "Stage",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "collect",
    "current_mesh",
    "data_group",
    "exchange",
    "init",
    "is_initialized",
    "is_main",
    "local_rank",
    "local_size",
    "mesh",
    "new_group",
    "partition",
    "pipeline",
    "rank",
    "receive",
    "reduce_scatter",
    "send",
    "servers",
    "shard",
    "size",
    "sum_gradients",
]
