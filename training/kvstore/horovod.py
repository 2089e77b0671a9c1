"""The stores "horovod" and "byteps": gradients are summed over all processes, and every process
updates its own weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dist import Group, broadcast, local_rank
from ...engine.error import InvalidValue
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from .base import STORES, KVStoreBase, StoreError
from .comm import copy_back, priority_of
from .dist import DistStore


class Horovod(DistStore):
    """Sums over processes; holds no weights and no optimizer.

    A gradient is the sum over the devices of a process and over all processes, as with the other
    stores: `trainer.step(batch_size)` takes the size of the whole batch.

    group: the processes; default: all.
    """

    def __init__(self, handle: str = "horovod", group: Group | None = None):
        super().__init__(handle, group)

    @property
    def local_rank(self) -> int:
        """The number of this process among those of its machine."""
        return local_rank()

    def init(self, key: Any, value: Any) -> None:
        """Nothing: values are not stored."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int | Sequence[int] = 0) -> None:
        values = dict(self._pairs(key, value))
        with pause():
            for k, outs in self._pairs(key, out):
                copy_into(values[k][0], outs[0])
                broadcast(outs[0], group=self._group, name=str(k))
                for o in outs[1:]:
                    copy_into(outs[0], o)

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        pairs = self._pairs(key, value)
        for k, arrays in pairs:
            if any(a.stype != "default" for a in arrays):
                raise self._sparse(k)
        if out is None:
            self.sum_in_place(key, value, priority)
            return
        targets = dict(self._pairs(key, out))
        with pause():
            sums, firsts = self._over_devices(pairs, priority)
            for k, merged in self._over_processes(sums, firsts):
                with priority_of(firsts[k]):
                    for o in targets[k]:
                        copy_back(merged, o)

    def push(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        raise self._sparse(key)

    def _sparse(self, key) -> StoreError:
        return StoreError(
            f"kvstore {self.type!r} sums dense gradients, and has no weights to push to; key"
            f" {key!r}\n  fix: kvstore='dist_sync'"
        )

    def is_capable(self, capability: Any) -> bool:
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return False
        raise InvalidValue(f"Unknown capability: {capability}")

    def set_optimizer(self, optimizer: Any) -> None:
        raise StoreError(
            f"kvstore {self.type!r} does not update weights\n  fix: update_on_kvstore=False"
        )


class BytePS(Horovod):
    """The store "byteps": as "horovod"."""

    def __init__(self, handle: str = "byteps", group: Group | None = None):
        super().__init__(handle, group)


STORES.update(horovod=Horovod, byteps=BytePS)
