"""The stores "dist_sync" and "dist_device_sync": every process has the weights, gradients are
summed over all processes, and every process makes the same update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dist import Group, all_gather, all_reduce, barrier, broadcast, data_group
from ...dist.buckets import sum_together
from ...engine import cpu
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.creation import array, zeros
from ...ndarray.functions import add_n
from ...ndarray.launch import copy_into
from ...ndarray.sparse import row_sparse_array
from .base import STORES
from .comm import copy_back, in_turn, priority_of, total
from .compression import GradientCompression
from .kvstore import KVStore, priorities


class DistStore(KVStore):
    """Weights by key, in every process. A push sums over the devices of all processes.

    All processes call the same methods with the same keys in the same order. The sums have the same
    bits in all of them, so the weights stay equal without being sent.

    group: the processes; default: those along the axis "data" of the current mesh; without a mesh
        all of them.
    """

    takes_group = True

    def __init__(self, handle: str = "dist_sync", group: Group | None = None):
        super().__init__(handle)
        self._group: Group = group or self._all()
        self._ids: dict = {}  # of what is sent together: an id of the group
        self._turns: dict = {}  # key -> its turn among those that are sent

    def _all(self) -> Group:
        return data_group(f"kvstore={self._type!r}")

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._group.rank

    @property
    def num_workers(self) -> int:
        """How many processes there are."""
        return self._group.size

    def _barrier(self) -> None:
        barrier(self._group)

    def _set(self, key, value: NDArray) -> None:
        super()._set(key, value)
        stored = self._stored[key]
        if stored.stype == "default":
            broadcast(stored, group=self._group, name=str(key))
        elif self._group.size > 1:
            mine = stored if self.rank == 0 else stored[0:0]
            self._stored[key] = self._sum_rows(key, mine)

    def share(self, key: Any, weights: Sequence[NDArray]) -> None:
        stored = self._stored.get(key)
        if stored is None or len(weights) > 1 or stored is weights[0]:
            return
        if stored.stype == weights[0].stype == "default":
            with pause():
                copy_into(stored, weights[0])
            self._stored[key] = weights[0]

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Gradients are sent compressed: {"type": "2bit", "threshold": 0.5} takes a sixteenth of
        the bytes, {"type": "fp16"} half. float32 gradients only; rows of sparse gradients are not
        compressed."""
        self._compression = GradientCompression(compression_params, ("2bit", "fp16"))

    def _sum(self, key, arrays, priority: int) -> NDArray:
        return total(arrays, arrays[0].context)  # compressed later: the sum over this process

    def sum_in_place(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        pairs, firsts = self._pairs(key, value), {}
        sums: list[tuple[Any, NDArray]] = []
        with pause():
            for (k, arrays), first in zip(pairs, priorities(priority, len(pairs))):
                firsts[k] = in_turn(arrays, first)
                with priority_of(firsts[k]):
                    sums.append((k, self._sum(k, arrays, firsts[k])))
            targets = dict(pairs)
            for k, merged in self._over_processes(sums, firsts, in_place=True):
                with priority_of(firsts[k]):
                    for o in targets[k]:
                        copy_back(merged, o)

    def _over_processes(
        self, sums: list[tuple], firsts: dict, in_place: bool = False
    ) -> list[tuple]:
        """Sums over processes. Small arrays share one message, in the order in which they are
        pushed."""
        if self._compression is not None:
            return [(key, self._compressed(key, merged, firsts[key])) for key, merged in sums]
        if self._group.size == 1:
            return sums
        made = dict(sums)
        dense = [(key, merged) for key, merged in sums if merged._spec.stype == "default"]
        dense.sort(key=lambda item: self._turn(item[0]))
        keys = [key for key, _ in dense]
        summed = sum_together(
            [merged for _, merged in dense],
            self._group,
            names=[str(key) for key in keys],
            priorities=[firsts[key] for key in keys],
            number=lambda some: self._number(tuple(keys[i] for i in some)),
            in_place=in_place,
        )
        made.update(zip(keys, summed))
        for key, merged in sums:
            if merged._spec.stype != "default":
                made[key] = self._sum_rows(key, merged)
        return list(made.items())

    def _turn(self, key) -> int:
        """Its place in the first step, which was the same on all ranks: GPUs need it to be."""
        return self._turns.setdefault(key, len(self._turns))

    def _compressed(self, key, merged: NDArray, priority: int) -> NDArray:
        """The sum over processes of compressed gradients; float16 values are added in float16."""
        if merged.stype != "default":
            return self._sum_rows(key, merged) if self._group.size > 1 else merged
        compression, group, number = self._compression, self._group, self._number((key,))
        assert compression is not None
        sent = compression.encoded(key, merged.as_in_context(cpu()), priority)
        options: Any = {"group": group, "name": str(key), "key": number, "priority": priority}
        exchange = all_reduce if compression.kind == "fp16" else all_gather
        arrived = compression.decoded(exchange(sent, **options), merged.shape, priority)
        return arrived.as_in_context(merged.context)

    def _number(self, keys: tuple) -> int:
        """The id of what is sent together."""
        number = self._ids.get(keys)
        if number is None:
            number = self._ids[keys] = self._group.new_id()
        return number

    def _sum_rows(self, key, merged: NDArray) -> NDArray:
        """The sum of row_sparse values. Each process may have other rows, so the row numbers are
        gathered first, which waits."""
        group, shape = self._group, merged.shape
        data, rows = merged._parts
        counts = all_gather(array([rows.shape[0]], dtype="int64"), group=group, name=f"{key} rows")
        lengths = [int(n) for n in counts.asnumpy()]
        longest = max(lengths)
        if longest == 0:
            return merged

        def everywhere(x: NDArray) -> NDArray:
            padded = zeros((longest, *x.shape[1:]), dtype=x.dtype)
            if x.shape[0]:
                padded[: x.shape[0]] = x.as_in_context(cpu())
            whole = all_gather(padded, group=group, name=str(key))
            return whole.reshape((group.size, longest, *x.shape[1:]))

        values, numbers = everywhere(data), everywhere(rows)
        parts = [
            row_sparse_array((values[r, :n], numbers[r, :n]), shape=shape, dtype=merged.dtype)
            for r, n in enumerate(lengths)
            if n
        ]
        summed = parts[0] if len(parts) == 1 else add_n(*parts)
        return summed.as_in_context(merged.context)


STORES.update(
    dict.fromkeys(
        ("dist", "dist_sync", "dist_device_sync", "dist_sync_device", "dist_device"), DistStore
    )
)
