"""The store "nccl": sums over the GPUs of a process by NVIDIA's library of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dist import nccl
from ...engine import num_gpus
from ...engine.error import MXNetError
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from .base import STORES, StoreError, arrays_of
from .kvstore import KVStore, buckets


def _sum_keys(keys: list[list[NDArray]]) -> None:
    """Replaces all arrays of each key by their sum. Raises StoreError unless each array of a key
    is on a GPU of its own."""
    for arrays in keys:
        devices = [a.context for a in arrays]
        if not all(d.kind.streams for d in devices) or len(set(devices)) < len(devices):
            raise StoreError(
                "kvstore 'nccl': the arrays of a key must be on different GPUs, got"
                f" {', '.join(map(str, devices))}\n  fix: kv.create('device')"
            )
        if not nccl.takes("all_reduce", arrays[0]._spec.dtype):
            raise StoreError(f"kvstore 'nccl': cannot sum arrays of dtype {arrays[0]._spec.dtype}")
    nccl.sum_over(keys)


class NcclStore(KVStore):
    """A store that sums over GPUs with NCCL. What NCCL cannot do, such as sparse arrays, works as
    in the store "device"."""

    def __init__(self, handle: str = "nccl"):
        super().__init__(handle)
        if not num_gpus():
            raise MXNetError("kvstore 'nccl': this machine has no GPU\n  fix: kv.create('device')")
        nccl.load()

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        """push and pull; without an updater the arrays of each key are summed in place."""
        pairs = self._pairs(key, value)
        targets = pairs if out is None else self._pairs(key, out)
        same = all(
            len(a) == len(b) and all(x is y for x, y in zip(a, b))
            for (_, a), (_, b) in zip(pairs, targets)
        )
        summed = [arrays for _, arrays in pairs if len(arrays) > 1]
        if (
            not same
            or self._updater is not None
            or self._compression is not None
            or any(a.stype != "default" for arrays in summed for a in arrays)
        ):
            super().pushpull(key, value, out, priority)
            return
        for k, _ in pairs:
            self._value(k)
        with pause():
            for some in buckets(summed, [arrays[0]._spec.nbytes for arrays in summed]):
                for alike in _by_devices(some):
                    _sum_keys(alike)
            for k, arrays in pairs:
                self._assign(k, arrays[0])

    def _sum(self, key, arrays, priority: int) -> NDArray:
        if len(arrays) == 1 or any(a.stype != "default" for a in arrays) or self._compression:
            return super()._sum(key, arrays, priority)
        copies = [a.copy() for a in arrays_of(arrays)]
        _sum_keys([copies])
        return copies[0]


def _by_devices(keys: list[list[NDArray]]) -> list[list[list[NDArray]]]:
    """Keys whose arrays are on the same devices, in lists."""
    found: dict[tuple, list[list[NDArray]]] = {}
    for arrays in keys:
        found.setdefault(tuple(a.context for a in arrays), []).append(arrays)
    return list(found.values())


STORES["nccl"] = NcclStore
