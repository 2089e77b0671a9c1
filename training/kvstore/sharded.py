"""The store of `Trainer(..., shard="states")`: every process updates a part of the weights, and has
the optimizer's states of that part only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...dist import Group, exchange
from ...dist.collectives import broadcast, placed
from ...dist.nccl import UPDATE
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from .. import optimizer as opt
from .base import STORES, StoreError
from .comm import priority_of
from .dist import DistStore
from .kvstore import buckets

SMALL_BYTES = 1 << 14  # weights below it are updated by all processes
ALIGNED = 16  # elements: parts begin at multiples of it, as vectors do


class ShardedStore(DistStore):
    """Sums gradients to the process that updates them, and distributes the new weights.

    A weight is cut into one part for each process; if the optimizer needs whole weights
    (`elementwise` is False), it belongs to one process. Values are not stored: keys stand for the
    arrays that `broadcast` and `pushpull` get as `out`. Gradients hold partial sums afterwards.
    """

    def __init__(self, handle: str = "dist_sync", group: Group | None = None):
        super().__init__(handle, group)
        self._lengths: dict = {}  # key -> of the parts; None: all processes update it
        self._unplaced: list = []  # keys that have no entry there yet
        self._load = [0] * self._group.size  # bytes of weights that each process updates
        self._numbers: dict = {}  # (kind, key) -> an id of the group

    # ---- parts -----------------------------------------------------------------------------------

    def _set(self, key, value: NDArray) -> None:
        if value.stype != "default":
            raise StoreError(
                f"shard='states' needs dense weights, got {value.stype} of key {key!r}"
                "\n  fix: a Trainer of its own for it, without shard"
            )
        broadcast(value, group=self._group, name=str(key))
        self._stored[key] = value
        if key not in self._lengths and key not in self._unplaced:
            self._unplaced.append(key)

    def _place(self) -> None:
        """Decides who updates what: the largest weights first, each to the process that has the
        least so far."""
        if not self._unplaced:
            return
        ranks = self._group.size
        self._unplaced.sort(key=lambda k: -self._stored[k]._spec.nbytes)
        for key in self._unplaced:
            weight = self._stored[key]
            n, n_bytes = weight.size, weight._spec.nbytes
            units = -(-n // ALIGNED)
            if ranks == 1 or n_bytes < SMALL_BYTES or units < ranks:
                self._lengths[key] = None
            elif self._updater.optimizer.elementwise:
                ends = [min(n, units * r // ranks * ALIGNED) for r in range(ranks + 1)]
                self._lengths[key] = tuple(b - a for a, b in zip(ends, ends[1:]))
            else:
                owner = self._load.index(min(self._load))
                self._load[owner] += n_bytes
                self._lengths[key] = tuple(n * (r == owner) for r in range(ranks))
        placed, self._unplaced = self._unplaced, []
        self._updater.cut(placed)

    def part(self, key: Any, array: NDArray) -> NDArray | None:
        """What this process updates of an array of the weight's shape: a view, (n,), or the array
        itself; None: nothing."""
        lengths = self._lengths[key]
        if lengths is None:
            return array
        start, n = sum(lengths[: self.rank]), lengths[self.rank]
        if n == array.size:
            return array
        return array.reshape((-1,))[start : start + n] if n else None

    def _id_of(self, kind: str, key) -> int:
        number = self._numbers.get((kind, key))
        if number is None:
            number = self._numbers[kind, key] = self._group.new_id()
        return number

    def _move(self, kind: str, key, array: NDArray, number: int | None, priority: int) -> NDArray:
        """Runs reduce_parts or gather_parts in place; returns the array, which is on the host."""
        here = placed(array, kind)
        arguments = (here.size, self._lengths[key])
        self._group.run(kind, [here], [UPDATE], arguments, "sum", str(key), number, priority)
        return here

    def gather(
        self, key: Any, array: NDArray, number: int | None = None, priority: int = 0
    ) -> None:
        """Completes an array of the weight's shape, of which each process has its part. number: of
        Group.new_id, if this is done again and again."""
        if self._lengths[key] is not None:
            here = self._move("gather_parts", key, array, number, priority)
            if here is not array:
                copy_into(here, array)

    # ---- steps -----------------------------------------------------------------------------------

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        pairs = self._pairs(key, value)
        if out is None:
            raise StoreError("shard='states': pushpull needs out, the weights")
        weights = dict(self._pairs(key, out))
        for k, _ in pairs:
            self._value(k)
            self._stored[k] = weights[k][0]
        self._place()
        with pause():
            sums, firsts = self._over_devices(pairs, priority)
            whole = dict(
                self._over_processes([s for s in sums if self._lengths[s[0]] is None], firsts)
            )
            for k, merged in sums:
                if k not in whole:
                    number = self._id_of("reduce_parts", k)
                    here = self._move("reduce_parts", k, merged, number, firsts[k])
                    mine = self.part(k, here)
                    whole[k] = None if mine is None else mine.as_in_context(merged.context)
            sizes = [merged._spec.nbytes for _, merged in sums]
            for some in buckets([k for k, _ in sums], sizes):
                with priority_of(max(firsts[k] for k in some)):
                    self._update_parts(some, whole)
                for k in some:
                    if self._lengths[k] is not None:
                        number = self._id_of("gather_parts", k)
                        self.gather(k, self._stored[k], number, firsts[k])
                    for other in weights[k][1:]:
                        copy_into(self._stored[k], other)

    def _update_parts(self, keys: list, grads: dict) -> None:
        """Updates and counts as without parts: schedules depend on the counts, in their order."""
        updater = self._updater
        if updater.aggregate_updates:  # counted together, then one update of many weights
            keys = sorted(keys, key=lambda k: grads[k] is not None)
        for mine, some in groupby(keys, lambda k: grads[k] is not None):
            own = list(some)
            if mine:
                parts = [self.part(k, self._stored[k]) for k in own]
                updater(own, [grads[k] for k in own], parts)
            else:
                updater.count(own)

    def set_optimizer(self, optimizer: Any) -> None:
        self._updater = Updater(optimizer, self)

    def state_bytes(self) -> int:
        """The memory of the optimizer's states in this process."""
        return sum(a._spec.nbytes for s in self._updater.states.values() for a in _arrays(s))


class Updater(opt.Updater):
    """Updates parts of weights. What is saved are whole states, which all processes gather: any
    number of processes can load them, and so can a Trainer without shard, as the class has the same
    name."""

    def __init__(self, optimizer: Any, store: ShardedStore):
        super().__init__(optimizer, 0)
        self._store = store
        self._known: dict = {}  # indices that have a state in some process, in order

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        self._known.update(dict.fromkeys(index))
        super().__call__(index, grad, weight)

    def count(self, indices: list) -> None:
        """Counts updates that other processes make."""
        self._known.update(dict.fromkeys(indices))
        self.optimizer._set_current_context(0)
        for i in indices:
            self.optimizer._update_count(i)

    def _groups(self) -> list[Group]:
        return list(dict.fromkeys([self._store._group, *super()._groups()]))

    def _whole(self) -> dict:
        own, self.states = self.states, self._gathered_states()
        try:
            return super()._whole()
        finally:
            self.states = own

    def _gathered_states(self) -> dict:
        """The states of the weights of this process, of which all have parts."""
        store, made = self._store, {}
        store._place()
        with pause():
            for i in sorted(self._known):
                own, lengths = self.states.get(i), store._lengths[i]
                if lengths is None:
                    made[i] = own
                    continue
                like = self.optimizer.create_state_multi_precision(i, store._stored[i])
                made[i] = self._gathered(i, own, like, _owner(lengths))
        return made

    def _gathered(self, index, own, like, owner: int | None) -> Any:
        if isinstance(like, (tuple, list)):
            parts = own if own is not None else [None] * len(like)
            return type(like)(self._gathered(index, o, s, owner) for o, s in zip(parts, like))
        if isinstance(like, NDArray):
            mine = self._store.part(index, like)
            if mine is not None and own is not None:
                copy_into(own, mine)
            self._store.gather(index, like)
            return like
        if like is None:
            return None
        return own if owner is None else exchange(own, owner, group=self._store._group)

    def _cut(self, index, state) -> Any:
        """This process's part of a whole state."""
        if isinstance(state, (tuple, list)):
            return type(state)(self._cut(index, s) for s in state)
        if isinstance(state, NDArray) and state.shape == self._store._stored[index].shape:
            mine = self._store.part(index, state)
            return None if mine is None else mine.copy()
        return state

    def cut(self, indices: Any) -> None:
        """Keeps this process's part of whole states that were loaded."""
        store = self._store
        with pause():
            for i in [i for i in indices if i in self.states]:
                lengths = store._lengths.get(i)  # not yet for a weight whose shape is unknown
                if lengths and lengths[store.rank]:
                    self.states[i] = self._cut(i, self.states[i])
                elif lengths:
                    del self.states[i], self.states_synced[i]

    def _loaded(self, states: dict) -> None:
        super()._loaded(states)
        self._known = dict.fromkeys(self.states)
        self._store._place()
        self.cut(list(self.states))


def _owner(lengths: Sequence[int]) -> int | None:
    """The process that a whole weight belongs to; None: it is cut."""
    return lengths.index(sum(lengths)) if sum(lengths) in lengths else None


def _arrays(state: Any) -> list[NDArray]:
    if isinstance(state, (tuple, list)):
        return [a for s in state for a in _arrays(s)]
    return [state] if isinstance(state, NDArray) else []


def make_sharded(kvstore: Any, shard: Any, update_on_kvstore: Any, compression: Any) -> Any:
    """The store of a Trainer with `shard`. Raises StoreError for what cannot be sharded."""
    if shard != "states":
        raise StoreError(f"shard must be None or 'states', got {shard!r}")
    if not isinstance(kvstore, str) or STORES.get(kvstore.lower()) is not DistStore:
        known = ", ".join(repr(n) for n, made in STORES.items() if made is DistStore)
        raise StoreError(f"shard='states' needs kvstore to be of {known}, got {kvstore!r}")
    if update_on_kvstore is False:
        raise StoreError(
            "shard='states': the store updates the weights, got update_on_kvstore=False"
            "\n  fix: leave update_on_kvstore out"
        )
    if compression:
        raise StoreError(
            f"shard='states': gradients cannot be compressed, got compression_params={compression}"
            "\n  fix: one of both"
        )
    return ShardedStore(kvstore.lower())
