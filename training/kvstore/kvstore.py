"""KVStore: the stores of one process, "local" and "device"."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from ...engine import cpu, waitall
from ...engine._array import versions
from ...engine.error import InvalidValue, MissingKey, MXNetError
from ...ndarray import NDArray, functions
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from .. import optimizer as opt
from .base import STORES, KVStoreBase, StoreError, arrays_of, check_store
from .comm import copy_back, in_turn, priority_of, total
from .compression import GradientCompression

BUCKET_BYTES = 1 << 22  # of weights that are summed or updated in one operation


class CompressionNotSupported(MXNetError):
    """Gradient compression on a store that does not support it."""


class KVStore(KVStoreBase):
    """Weights by key. Pushed arrays of one key are summed; the sum replaces the stored value, or an
    updater computes a new value from both.

    All work on arrays is pushed to the engine: no call waits.

    >>> kv = mx.kv.create("local")
    >>> kv.init("w", nd.zeros((2,)))
    >>> kv.push("w", [nd.ones((2,), mx.cpu(0)), nd.ones((2,), mx.cpu(1))])
    >>> out = nd.empty((2,))
    >>> kv.pull("w", out=out)
    >>> out.asnumpy().tolist()
    [2.0, 2.0]
    """

    def __init__(self, handle: str = "local"):
        check_store(handle)
        kind = STORES.get(handle.lower(), KVStore)
        if not isinstance(self, kind):
            raise StoreError(
                f"{type(self).__name__}: {handle!r} is a {kind.__name__}\n  fix:"
                f" mx.kv.create({handle!r})"
            )
        self.handle = self._type = handle
        self._stored: dict = {}
        self._key_type: type | None = None
        self._updater = None
        self._compression: GradientCompression | None = None
        self._warned_of_sparse = False

    # ---- keys ------------------------------------------------------------------------------------

    def _pairs(self, key, value) -> list[tuple]:
        """[(key, its arrays)], each key once. Raises StoreError."""
        if not isinstance(key, (list, tuple)):
            if not isinstance(key, (int, str)):
                raise StoreError(f"unexpected type for keys: {type(key)}")
            self._check_type(key)
            return [(key, arrays_of(value))]
        if not isinstance(value, (list, tuple)) or len(key) != len(value):
            raise StoreError(
                f"kvstore: there must be a value for each key, got {len(key)} keys and"
                f" {len(value) if isinstance(value, (list, tuple)) else type(value).__name__}"
            )
        if len({isinstance(k, str) for k in key}) > 1:
            raise StoreError(f"inconsistent types of keys detected: {list(key)}")
        found: dict = {}
        for k, v in zip(key, value):
            ((k, arrays),) = self._pairs(k, v)
            found.setdefault(k, []).extend(arrays)
        return list(found.items())

    def _check_type(self, key) -> None:
        kind = str if isinstance(key, str) else int
        if self._key_type not in (None, kind):
            raise StoreError(
                f"Mixed key types are not allowed: this store's are {self._key_type.__name__}, got"
                f" {key!r}"
            )
        self._key_type = kind

    def _value(self, key) -> NDArray:
        found = self._stored.get(key)
        if found is None:
            raise MissingKey(f"key {key} has not been inited\n  fix: kv.init({key!r}, value)")
        return found

    def __contains__(self, key) -> bool:
        return key in self._stored

    # ---- values ----------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Stores a first value of each key. Raises StoreError for a key that has one."""
        for k, arrays in self._pairs(key, value):
            if k in self._stored:
                raise StoreError(
                    f"duplicate init of key {k}. Please double check if you called kv.init or"
                    " kv.broadcast with this key multiple times"
                )
            self._set(k, arrays[0])

    def _set(self, key, value: NDArray) -> None:
        with pause():
            self._stored[key] = value.copyto(cpu())

    def push(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        """Sums each key's arrays and stores the sum, or updates the stored value by it.

        priority: of the ready sums and updates, those with higher priority run first; a number, or
            one for each key. A key's operations run in the order they are pushed.
        """
        for first, sums in self._sums(self._pairs(key, value), priority):
            with priority_of(first):
                self._apply(sums)

    def _sums(self, pairs, priority) -> list[tuple[int, list[tuple]]]:
        """Consecutive (key, sum), some megabytes at a time, so that updates of the first weights do
        not wait for the last gradients; and the highest priority of each such list. Each sum starts
        when its arrays are ready, ahead of the other operations of a step in a device's order."""
        for k, _ in pairs:
            self._value(k)
        with pause():
            sums, firsts = self._over_devices(pairs, priority)
            sums = self._over_processes(sums, firsts)
        parts = buckets(sums, [merged._spec.nbytes for _, merged in sums])
        return [(max(firsts[k] for k, _ in part), part) for part in parts]

    def _over_devices(self, pairs, priority) -> tuple[list[tuple], dict]:
        """(key, sum over this process's devices) of all pairs, and the priority of each key."""
        sums, firsts = [], {}
        for (k, arrays), first in zip(pairs, priorities(priority, len(pairs))):
            firsts[k] = in_turn(arrays, first)
            with priority_of(firsts[k]):
                sums.append((k, self._sum(k, arrays, firsts[k])))
        return sums, firsts

    def _over_processes(
        self, sums: list[tuple], firsts: dict, in_place: bool = False
    ) -> list[tuple]:
        """Sums over all processes; firsts: the priorities of keys. in_place: they may be written
        into the arrays of `sums`."""
        return sums

    def _apply(self, sums) -> None:
        """Updates the stored values with sums."""
        with pause():
            self._update(sums)

    def _update(self, sums) -> None:
        if self._updater is None:
            for k, merged in sums:
                self._assign(k, merged)
            return
        for k, merged in sums:
            if self._stored[k].context != merged.context:
                self._stored[k] = self._stored[k].as_in_context(merged.context)
        if isinstance(self._updater, opt.Updater):  # many weights per call
            keys = [k for k, _ in sums]
            self._updater(keys, [g for _, g in sums], [self._stored[k] for k in keys])
        else:
            for k, merged in sums:
                self._updater(k, merged, self._stored[k])

    def _sum(self, key, arrays, priority: int) -> NDArray:
        if self._compression is not None:
            arrays = [self._compression.through(key, i, a, priority) for i, a in enumerate(arrays)]
        return total(arrays, cpu() if "local" in self._type else arrays[0].context)

    def _assign(self, key, merged: NDArray) -> None:
        stored = self._stored[key]
        if stored._spec is merged._spec:
            copy_back(merged, stored)
        else:
            self._stored[key] = merged.copy()

    def pull(
        self,
        key: Any,
        out: Any = None,
        priority: int | Sequence[int] = 0,
        ignore_sparse: bool = True,
    ) -> None:
        """Copies the stored value of each key into the arrays of out, on any device.

        ignore_sparse: sparse arrays of out are skipped, with a warning; row_sparse_pull writes
            them.
        """
        if out is None:
            raise StoreError("pull: out must be given")
        pairs = self._pairs(key, out)
        if ignore_sparse and any(o.stype != "default" for _, outs in pairs for o in outs):
            if not self._warned_of_sparse:
                warnings.warn(
                    "pull: sparse arrays are skipped\n  fix: kv.row_sparse_pull, or"
                    " ignore_sparse=False",
                    stacklevel=2,
                )
            self._warned_of_sparse = True
            pairs = [(k, [o for o in outs if o.stype == "default"]) for k, outs in pairs]
        self._pull(pairs)

    def _pull(self, pairs) -> None:
        write = copy_back if self._updater is None else copy_into
        for k, outs in pairs:
            stored = self._value(k)
            for o in outs:
                if o.shape != stored.shape:
                    raise StoreError(
                        f"pull: out must have the shape of the value, got {o.shape} for"
                        f" {stored.shape} of key {k!r}"
                    )
        with pause():
            for k, outs in pairs:
                for o in outs:
                    if o is not self._stored[k]:
                        write(self._stored[k], o)

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        """push and pull: without an updater, out (default: value itself) becomes the sum."""
        pairs = self._pairs(key, value)
        targets = dict(pairs if out is None else self._pairs(key, out))
        firsts = priorities(priority, len(pairs))
        jobs = [(pairs, firsts)]
        apart = pairs if out is None else [*pairs, *targets.items()]
        if self._updater is None and self.num_workers == 1 and not _share_memory(apart):
            # copying a sum back does not wait for other sums
            jobs = [([pair], [first]) for pair, first in zip(pairs, firsts)]
        for some, of_them in jobs:
            for first, sums in self._sums(some, of_them):
                with priority_of(first):
                    self._apply(sums)
                    self._pull([(k, targets.pop(k)) for k, _ in sums if k in targets])
        self._pull(list(targets.items()))

    def sum_in_place(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        """pushpull without an updater, for gradients whose sum nobody pulls later: what is stored
        is not defined afterwards."""
        self.pushpull(key, value, priority=priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int | Sequence[int] = 0) -> None:
        """init and pull."""
        self.init(key, value)
        self.pull(key, out, priority)

    def share(self, key: Any, weights: Sequence[NDArray]) -> None:
        """The arrays that a weight has for good, one on each device. A store may keep its value in
        one of them: then a pull to it copies nothing, and what else is written there counts."""

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int | Sequence[int] = 0, row_ids: Any = None
    ) -> None:
        """Copies the rows row_ids of a row_sparse value into out, the other rows become empty.

        row_ids: an NDArray of row numbers, in any order and repeated as they are; or one for each
            array of out, in lists nested as out or flat.
        """
        if out is None or row_ids is None:
            raise StoreError("row_sparse_pull: out and row_ids must be given")
        targets = [(k, o) for k, outs in self._pairs(key, out) for o in outs]
        ids = [row_ids] * len(targets)
        if isinstance(row_ids, (list, tuple)):
            ids = [
                r for rows in row_ids for r in (rows if isinstance(rows, (list, tuple)) else [rows])
            ]
        if len(ids) != len(targets):
            raise StoreError(
                f"row_sparse_pull: needs row_ids for each of {len(targets)} arrays, got {len(ids)}"
            )
        for k, o in targets:
            for stype in (self._value(k).stype, o.stype):
                if stype != "row_sparse":
                    raise StoreError(
                        "Expected row_sparse storage type for row_sparse_pull values, but detected"
                        f" storage type {stype} of key {k!r}\n  fix: kv.pull"
                    )
        with pause():
            for (k, o), rows in zip(targets, ids):
                stored = self._stored[k]
                rows = rows.as_in_context(stored.context).reshape((-1,))
                copy_into(functions._sparse_retain(stored, rows), o)

    # ---- the optimizer ---------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """push updates the stored values with an optimizer from now on."""
        self._set_updater(opt.get_updater(optimizer, 0))

    def _set_updater(self, updater) -> None:
        """updater(key, merged, stored) changes stored in place."""
        self._updater = updater

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Compresses pushed gradients to two bits: {"type": "2bit", "threshold": 0.5}.

        Raises MXNetError on "local" stores.
        """
        if "local" in self._type:
            raise CompressionNotSupported(
                "Gradient compression is not supported for this type of kvstore: got"
                f" {self._type!r}\n  fix: kv.create('device')"
            )
        self._compression = GradientCompression(compression_params)

    def is_capable(self, capability: Any) -> bool:
        """Can it do this? capability: "optimizer"."""
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return True
        raise InvalidValue(f"Unknown capability: {capability}")

    def save_optimizer_states(
        self, fname: str | PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Writes the optimizer's states as arrays and JSON; dump_optimizer: its hyperparameters
        too."""
        if self._updater is None:
            raise StoreError("Cannot save states: there is no optimizer\n  fix: kv.set_optimizer")
        self._updater.save(fname, dump_optimizer)

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Reads what save_optimizer_states wrote. Raises MXNetError for pickles."""
        if self._updater is None:
            raise StoreError("Cannot load states: there is no optimizer\n  fix: kv.set_optimizer")
        self._updater.load(fname, "load_optimizer_states")

    # ---- workers ---------------------------------------------------------------------------------

    @property
    def type(self) -> str:
        """The name it was created by, in lower case."""
        return self._type

    @property
    def rank(self) -> int:
        """0: there is one worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """1: there is one worker."""
        return 1

    def _barrier(self) -> None:
        waitall()


STORES.update(
    dict.fromkeys(
        (
            "local",
            "local_update_cpu",
            "local_allreduce_cpu",
            "local_allreduce_device",
            "device",
        ),
        KVStore,
    )
)


def _share_memory(pairs) -> bool:
    """Do arrays of different keys share memory?"""
    keys: list = []
    parts: list[NDArray] = []
    for key, arrays in pairs:
        for a in arrays:
            here = [a] if a.stype == "default" else a._parts
            keys += [key] * len(here)
            parts += here
    owner: dict[int, object] = {}
    variables = np.frombuffer(versions(parts)[0], np.uint64)[::3]  # the first field of a pl_version
    return any(owner.setdefault(v, key) != key for v, key in zip(variables.tolist(), keys))


def priorities(priority: int | Sequence[int], n: int) -> Sequence[int]:
    """One for each of n keys."""
    if not isinstance(priority, int):
        if len(priority) != n:
            raise StoreError(f"kvstore: needs a priority for each of {n} keys, got {len(priority)}")
        return priority
    return [priority] * n


def buckets(items: Sequence, n_bytes: Sequence[int]) -> Iterator[list]:
    """Items in their order, in lists of BUCKET_BYTES or a little more."""
    some, total_bytes = [], 0
    for item, more in zip(items, n_bytes):
        some.append(item)
        total_bytes += more
        if total_bytes >= BUCKET_BYTES:
            yield some
            some, total_bytes = [], 0
    if some:
        yield some
