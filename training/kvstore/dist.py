"""The stores "dist_sync" and "dist_device_sync": every process has the weights, gradients are
summed over all processes, and every process makes the same update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dist import Group, all_gather, all_reduce, barrier, broadcast, init
from ...dist.schedules import SLICE_BYTES
from ...engine import cpu
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.creation import array, zeros
from ...ndarray.functions import add_n
from ...ndarray.launch import copy_into
from ...ndarray.sparse import row_sparse_array
from .base import STORES
from .comm import total
from .compression import GradientCompression
from .kvstore import KVStore

SMALL_BYTES = 1 << 16  # gradients below it are sent together


class DistStore(KVStore):
    """Weights by key, in every process. A push sums over the devices of all processes.

    All processes call the same methods with the same keys in the same order. The sums have the same
    bits in all of them, so the weights stay equal without being sent.
    """

    def __init__(self, handle: str = "dist_sync"):
        super().__init__(handle)
        self._group: Group = init()
        self._ids: dict = {}  # of what is sent together: an id of the group
        self._turns: dict = {}  # key -> its turn among those that are sent

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

    def _over_processes(self, sums: list[tuple], firsts: dict) -> list[tuple]:
        """Sums over processes. Small arrays share one message, in the order in which they are
        pushed."""
        if self._compression is not None:
            return [(key, self._compressed(key, merged, firsts[key])) for key, merged in sums]
        if self._group.size == 1:
            return sums
        made: dict = {}
        together: list[int] = []
        n_bytes = 0
        # that of the first step, which was the same on all ranks: GPUs need it to be
        for i in sorted(range(len(sums)), key=lambda i: self._turn(sums[i][0])):
            merged = sums[i][1]
            s = merged._spec
            if s.stype != "default":
                made[i] = self._sum_rows(sums[i][0], merged)
            elif s.nbytes >= SMALL_BYTES:
                made[i] = self._reduce([i], sums, firsts)[0]
            else:
                if together and (
                    n_bytes + s.nbytes > SLICE_BYTES or sums[together[0]][1].dtype != merged.dtype
                ):
                    made.update(zip(together, self._reduce(together, sums, firsts)))
                    together, n_bytes = [], 0
                together.append(i)
                n_bytes += s.nbytes
        if together:
            made.update(zip(together, self._reduce(together, sums, firsts)))
        return [(key, made[i]) for i, (key, _) in enumerate(sums)]

    def _turn(self, key) -> int:
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

    def _reduce(self, some: list[int], sums: list[tuple], firsts: dict) -> list[NDArray]:
        keys = tuple(sums[i][0] for i in some)
        arrays = [sums[i][1] for i in some]
        return all_reduce(
            arrays,
            group=self._group,
            name=", ".join(map(str, keys[:3])) + (" ..." if len(keys) > 3 else ""),
            key=self._number(keys),
            priority=max(firsts[k] for k in keys),
        )

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
