"""mx.kv: stores that sum the gradients of several devices and hold the weights."""

from . import dist, dist_async, nccl  # noqa: F401  (they fill base.STORES, as kvstore does)
from .base import KVStoreBase, create
from .horovod import BytePS, Horovod
from .kvstore import KVStore
from .kvstore_server import KVStoreServer

__all__ = ["BytePS", "Horovod", "KVStore", "KVStoreBase", "KVStoreServer", "create"]
