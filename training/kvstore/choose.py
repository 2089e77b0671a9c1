"""Which store a Trainer or a Module uses, and whether the store updates the weights."""

from __future__ import annotations

import math
from typing import Any

from ...dist import Group
from ...engine.error import InvalidType
from .base import STORES, KVStoreBase, check_store, create
from .dist import DistStore
from .dist_async import AsyncStore

BIG = 1 << 24  # elements; larger weights are updated faster on their devices than on cpu(0)
update_on_store = True  # MXNET_UPDATE_ON_KVSTORE in compatibility mode


def spans_processes(kvstore: Any) -> bool:
    """Does a store, or the one that a name makes, sum over processes?"""
    made = STORES.get(kvstore.lower()) if isinstance(kvstore, str) else type(kvstore)
    return isinstance(made, type) and issubclass(made, DistStore)


def ranks_of(store: Any) -> Group | None:
    """The group of ranks that a store sums over; None: it does not."""
    return store._group if isinstance(store, DistStore) else None


def n_summed(store: Any) -> int:
    """How many processes' gradients one update of a store has."""
    ranks = None if isinstance(store, AsyncStore) else ranks_of(store)
    return 1 if ranks is None else ranks.size


def choose_store(
    kvstore: Any, num_device: int, arg_params: dict
) -> tuple[KVStoreBase | None, bool]:
    """(store or None, does it update the weights).

    Args:
        kvstore: a store, a name ("local", "device", a registered one) or None. A name makes no
            store for a single device.
        arg_params: names -> NDArrays.
    """
    check_store(kvstore)
    on_store = update_on_store
    if kvstore is None:
        return None, False
    if isinstance(kvstore, KVStoreBase):
        store = kvstore
    else:
        if num_device == 1 and not spans_processes(kvstore):
            return None, False
        store = create(kvstore)
        if "nccl" in kvstore:  # every device already has the sums
            on_store = False
        if kvstore == "local" and any(math.prod(a.shape) > BIG for a in arg_params.values()):
            on_store = False
    return store, on_store and store.is_capable("optimizer")


def choose_sparse_store(kvstore: Any) -> tuple[KVStoreBase, bool]:
    """(store, True): row_sparse weights live on a store, which updates them."""
    if isinstance(kvstore, KVStoreBase):
        return kvstore, True
    if isinstance(kvstore, str):
        return create(kvstore), True
    raise InvalidType(
        f"Cannot create '{kvstore}' KVStore with row_sparse parameters. The type must be KVStore or"
        " str."
    )
