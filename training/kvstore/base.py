"""KVStoreBase: the interface that a Trainer uses; the registry of stores; `create`; a store for
tests."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar

from ...dist import Group
from ...engine.error import InvalidType, InvalidValue, MissingMethod
from ...engine.profiler import set_kvstore_handle
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from .comm import copy_back, total


class StoreError(InvalidValue):
    """Invalid use of a store."""


class KVStoreBase:
    """Base of stores: a subclass that is registered can be made by `create` and given to a Trainer.

    Keys are all int or all str; a key's value has one NDArray for each device.
    """

    OPTIMIZER = "optimizer"
    _updater: Any  # of a store that updates its weights
    takes_group: ClassVar[bool] = False  # may `create` give it a group of processes?
    kv_registry: ClassVar[dict[str, type]] = {}

    def broadcast(self, key: Any, value: Any, out: Any, priority: int | Sequence[int] = 0) -> None:
        """Copies value of the first worker into every array of out."""
        raise self._missing("broadcast")

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        """Sums value's arrays, over all workers, and writes the sum into out (default: into
        value).

        priority: of the ready operations, those with higher priority run first; one for all keys,
            or one for each.
        """
        raise self._missing("pushpull")

    def init(self, key: Any, value: Any) -> None:
        """Gives a key its first value."""
        raise self._missing("init")

    def push(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        """Sums value's arrays into the key's value, or updates it by the sum."""
        raise self._missing("push")

    def pull(
        self,
        key: Any,
        out: Any = None,
        priority: int | Sequence[int] = 0,
        ignore_sparse: bool = True,
    ) -> None:
        """Copies the key's value into every array of out."""
        raise self._missing("pull")

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int | Sequence[int] = 0, row_ids: Any = None
    ) -> None:
        """Copies rows of a row_sparse value into out."""
        raise self._missing("row_sparse_pull")

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """From now on gradients are compressed before they are summed."""
        raise self._missing("set_gradient_compression")

    def set_optimizer(self, optimizer: Any) -> None:
        """From now on the store updates its weights itself."""
        raise self._missing("set_optimizer")

    def is_capable(self, capability: Any) -> bool:
        """Can it do this? capability: KVStoreBase.OPTIMIZER."""
        raise self._missing("is_capable")

    def save_optimizer_states(
        self, fname: str | PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Writes the states of the store's optimizer; dump_optimizer: its hyperparameters too."""
        raise self._missing("save_optimizer_states")

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Reads what save_optimizer_states wrote."""
        raise self._missing("load_optimizer_states")

    @property
    def type(self) -> str:
        """The name it was created by."""
        raise self._missing("type")

    @property
    def rank(self) -> int:
        """The number of this worker, from 0."""
        raise self._missing("rank")

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        raise self._missing("num_workers")

    def _missing(self, method: str) -> MissingMethod:
        return MissingMethod(f"{type(self).__name__} does not define {method}")

    @staticmethod
    def register(klass: Any) -> Any:
        """A decorator: `create` makes this class by its name, any case."""
        if not isinstance(klass, type):
            raise InvalidType(f"KVStoreBase.register: needs a class, got {klass!r}")
        name = klass.__name__.lower()
        if name in KVStoreBase.kv_registry:
            old = KVStoreBase.kv_registry[name]
            warnings.warn(
                f"WARNING: New kvstore {klass.__module__}.{klass.__name__} is overriding existing"
                f" kvstore {old.__module__}.{old.__name__}",
                stacklevel=2,
            )
        KVStoreBase.kv_registry[name] = klass
        return klass


def arrays_of(value: Any) -> list[NDArray]:
    """The arrays of one key. Raises StoreError."""
    arrays = list(value) if isinstance(value, (list, tuple)) else [value]
    for a in arrays:
        if not isinstance(a, NDArray):
            raise StoreError(f"kvstore: a value must be NDArrays, got {type(a).__name__}")
    return arrays


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store that only sums: for tests of what uses stores."""

    __test__ = False  # pytest takes it for tests

    def broadcast(self, key: Any, value: Any, out: Any, priority: int | Sequence[int] = 0) -> None:
        with pause():
            for o in arrays_of(out):
                copy_into(arrays_of(value)[0], o)

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        arrays = arrays_of(value)
        if out is None and isinstance(value, NDArray):
            return
        with pause():
            summed = total(arrays, arrays[0].context)
            for o in arrays if out is None else arrays_of(out):
                copy_back(summed, o)

    @staticmethod
    def is_capable(capability: Any) -> bool:
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return False
        raise InvalidValue(f"Unknown capability: {capability}")

    type = "teststore"
    rank = 0
    num_workers = 1


STORES: dict[str, Any] = {}  # name -> class; kvstore.py and nccl.py fill it


def state_of(store: KVStoreBase) -> tuple[Any, dict]:
    """(updater, weights by key) of a store that updates weights: what a checkpoint keeps. Raises
    StoreError for one that does not show them."""
    updater, stored = getattr(store, "_updater", None), getattr(store, "_stored", None)
    if updater is None or stored is None:
        lacking = "_updater" if updater is None else "_stored"
        raise StoreError(
            f"{type(store).__name__} updates the weights and has no {lacking!r}, so a checkpoint"
            " cannot keep its state\n  fix: Trainer(..., update_on_kvstore=False), or set _updater"
            " (mx.optimizer.get_updater(optimizer)) in set_optimizer and _stored (weights by key)"
        )
    return updater, stored


def check_store(kvstore: Any) -> None:
    """Raises InvalidValue for an unknown name, InvalidType for a value that is not a store, a name
    or None."""
    if kvstore is None or isinstance(kvstore, KVStoreBase):
        return
    if not isinstance(kvstore, str):
        raise InvalidType(f"kvstore must be KVStore, str or None, got {type(kvstore).__name__}")
    name = kvstore.lower()
    if name in STORES or name in KVStoreBase.kv_registry:
        return
    raise InvalidValue(
        f"kvstore={kvstore!r}: unknown store\n  fix: one of"
        f" {', '.join([*STORES, *KVStoreBase.kv_registry])}; or register a class with"
        " KVStoreBase.register"
    )


def create(name: str = "local", group: Group | None = None) -> KVStoreBase:
    """A store: "local" sums on cpu(0), "device" on the device of the first value, "nccl" over GPUs
    by NVIDIA's library, "dist_sync" over all processes of a job (`python -m plait launch`),
    "dist_async" on servers of one; or a registered class by its name.

    group: the processes that "dist_sync" sums over; default: those along the axis "data" of the
        current mesh (`mx.dist.mesh`), without a mesh all of them.
    Raises InvalidValue for any other name, and for "dist_async" in a job without servers;
    MXNetError for "nccl" without GPUs.
    """
    if not isinstance(name, str):
        raise InvalidType(f"name must be a string, got {type(name).__name__}")
    check_store(name)
    found = KVStoreBase.kv_registry.get(name.lower())
    kind = found or STORES[name.lower()]
    if group is not None and not getattr(kind, "takes_group", False):
        known = ", ".join(repr(n) for n, made in STORES.items() if made.takes_group)
        raise InvalidValue(f"kvstore={name!r} takes no group\n  fix: one of {known}")
    if found is not None:
        return found()
    made = kind(name.lower()) if group is None else kind(name.lower(), group)
    set_kvstore_handle(made.handle)
    return made
