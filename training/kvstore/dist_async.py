"""The store "dist_async": servers have the weights, and update them at each push. No worker waits
for another."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from ...dist import Group, init, receive, send, servers
from ...engine import cpu, files
from ...engine.error import MissingKey
from ...ndarray import NDArray
from ...ndarray.autograd import pause
from ...ndarray.creation import empty
from ...ndarray.functions import concat
from ...ndarray.launch import copy_into
from ..optimizer.updater import described, hyperparameters
from . import async_states, requests
from .async_states import Place
from .base import STORES, StoreError
from .comm import total
from .compression import GradientCompression
from .dist import DistStore
from .kvstore import KVStore, priorities

BIG = 1_000_000  # elements: larger weights are split over all servers


class AsyncStore(DistStore):
    """Weights on servers, ranks that `python -m plait launch -s 2` starts. A push is applied at
    once by the server's optimizer; a pull gives the newest weights, with pushes of other workers.

    All workers call init and set_optimizer in the same order, with the arguments of the first
    worker being used. push and pull wait for no other worker.
    """

    takes_group = False
    sum_in_place = KVStore.sum_in_place  # over servers

    def __init__(self, handle: str = "dist_async"):
        super().__init__(handle)
        self._servers = list(servers())
        if not self._servers:
            raise StoreError(
                f"kvstore={handle!r}: this job has no servers\n  fix: python -m plait launch -n"
                " WORKERS -s SERVERS script.py"
            )
        self._places: dict[int | str, Place] = {}
        self._lists: dict[tuple, int] = {}
        self._load = dict.fromkeys(self._servers, 0)  # elements
        self._optimizer: Any = None
        self._known: dict = {}  # hyperparameters that this worker sent to the servers

    def _all(self) -> Group:
        return init()

    def __contains__(self, key: Any) -> bool:
        return key in self._places

    def _value(self, key: Any) -> Any:
        found = self._places.get(key)
        if found is None:
            raise MissingKey(f"key {key} has not been inited\n  fix: kv.init({key!r}, value)")
        return found

    # ---- values ----

    def init(self, key: Any, value: Any) -> None:
        """Stores the first worker's value of each key. Raises StoreError for a key that has one."""
        for k, arrays in self._pairs(key, value):
            if k in self._places:
                raise StoreError(
                    f"duplicate init of key {k}. Please double check if you called kv.init or"
                    " kv.broadcast with this key multiple times"
                )
            self._set(k, arrays[0])

    def _set(self, key: Any, value: NDArray) -> None:
        _dense(key, [value])
        if key not in self._places:
            self._places[key] = Place(value.shape, value._spec.dtype, self._parts(value.size))
        if self.rank == 0:
            self._send(requests.INIT, [(key, value)], [0])
            for server, *_ in self._places[key].parts:
                requests.synchronize(server)
        self._barrier()

    def _parts(self, size: int) -> list[tuple[int, int, int]]:
        """A large weight is split over all servers, if the optimizer may update its parts; another
        one goes where the fewest elements are."""
        n = len(self._servers)
        whole = self._optimizer is not None and not self._optimizer.elementwise
        chosen = (
            self._servers
            if size >= BIG and not whole
            else [min(self._load, key=lambda s: self._load[s])]
        )
        bounds = [size * i // len(chosen) for i in range(len(chosen) + 1)] if n else []
        parts = list(zip(chosen, bounds, bounds[1:]))
        for server, start, stop in parts:
            self._load[server] += stop - start
        return parts

    def push(self, key: Any, value: Any, priority: int | Sequence[int] = 0) -> None:
        """Sends the sum over this process's devices to the servers, which update at once."""
        self._push(requests.PUSH, self._pairs(key, value), priority)

    def _push(self, operation: int, pairs: list[tuple], priority: int | Sequence[int]) -> None:
        firsts = priorities(priority, len(pairs))
        for k, arrays in pairs:
            self._value(k)
            _dense(k, arrays)
        if self._optimizer is None:
            raise StoreError("dist_async: servers need an optimizer\n  fix: kv.set_optimizer")
        self._send_changes()
        with pause():
            sums = [(k, total(arrays, arrays[0].context)) for k, arrays in pairs]
            self._send(operation, sums, firsts)

    def _send(self, operation: int, values: list[tuple], firsts: Sequence[int]) -> None:
        """Values by key, or their parts, to their servers."""
        number, by_server = self._listed([k for k, _ in values])
        of = {k: (x.as_in_context(cpu()), first) for (k, x), first in zip(values, firsts)}
        for server, keys in by_server.items():
            requests.request(server, operation, number)
            for k in keys:
                x, first = of[k]
                x = self._part(k, server, x)
                if self._compression is not None and operation != requests.INIT:
                    x = self._compression.encoded((k, server), x, first)
                send(x, server, name=str(k), priority=first)

    def _part(self, key: Any, server: int, x: NDArray) -> NDArray:
        parts = self._places[key].parts
        if len(parts) == 1:
            return x
        start, stop = next((a, b) for s, a, b in parts if s == server)
        return x.reshape((-1,))[start:stop].copy()

    def _listed(self, keys: list) -> tuple[int, dict[int, list]]:
        """The number of a list of keys, and its keys on each server. Sends each server its keys
        when the list is new."""
        by_server: dict[int, list] = {}
        for k in keys:
            for server, *_ in self._places[k].parts:
                by_server.setdefault(server, []).append(k)
        number = self._lists.get(tuple(keys))
        if number is None:
            number = self._lists[tuple(keys)] = len(self._lists)
            for server, some in by_server.items():
                listed = [self._entry(k, server) for k in some]
                requests.send_json(server, {"list": number, "keys": listed})
        return number, by_server

    def _entry(self, key: Any, server: int) -> requests.Entry:
        place = self._places[key]
        if len(place.parts) == 1:
            return requests.Entry(key, place.shape, place.dtype)
        n = next(b - a for s, a, b in place.parts if s == server)
        return requests.Entry(key, (n,), place.dtype)

    def _pull(self, pairs: list[tuple]) -> None:
        self._check_targets(pairs)
        number, by_server = self._listed([k for k, _ in pairs])
        for server in by_server:
            requests.request(server, requests.PULL, number)
        self._receive(pairs, by_server)

    def _check_targets(self, pairs: list[tuple]) -> None:
        for k, outs in pairs:
            for o in outs:
                if o.shape != self._value(k).shape:
                    raise StoreError(
                        "pull: out must have the shape of the value, got"
                        f" {o.shape} for {self._value(k).shape} of key {k!r}"
                    )

    def _receive(self, pairs: list[tuple], by_server: dict[int, list]) -> None:
        """Weights, or their parts, into the arrays of pairs."""
        outs_of = dict(pairs)
        parts: dict[Any, list[NDArray]] = {}
        with pause():
            for server, keys in by_server.items():
                for k in keys:
                    entry = self._entry(k, server)
                    x = empty(entry.shape, dtype=entry.dtype)
                    parts.setdefault(k, []).append(receive(x, server, name=str(k)))
            for k, outs in outs_of.items():
                whole = parts[k][0]
                if len(parts[k]) > 1:
                    whole = concat(*parts[k], dim=0).reshape(self._places[k].shape)
                for o in outs:
                    copy_into(whole, o)

    def pushpull(
        self, key: Any, value: Any, out: Any = None, priority: int | Sequence[int] = 0
    ) -> None:
        """push and pull: out (default: value itself) becomes the newest weight."""
        pairs = self._pairs(key, value)
        targets = pairs if out is None else self._pairs(key, out)
        self._check_targets(targets)
        self._push(requests.PUSHPULL, pairs, priority)
        self._receive(targets, self._listed([k for k, _ in pairs])[1])

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int | Sequence[int] = 0, row_ids: Any = None
    ) -> None:
        """Raises StoreError: servers have dense weights."""
        raise _not_sparse(key)

    # ---- the optimizer ----

    def set_optimizer(self, optimizer: Any) -> None:
        """Servers update with the first worker's optimizer from now on. Its class is sent as a
        name, its hyperparameters as JSON; those that a worker changes later, such as learning_rate,
        are sent before its next push."""
        split = [key for key, place in self._places.items() if len(place.parts) > 1]
        if split and not optimizer.elementwise:
            raise StoreError(
                f"{type(optimizer).__name__} needs whole weights, but that of key {split[0]!r} is"
                " split over servers\n  fix: kv.set_optimizer before kv.init"
            )
        found = described(optimizer)
        self._optimizer, self._known = optimizer, hyperparameters(optimizer)
        self._configure({"optimizer": found})

    def _configure(self, found: dict) -> None:
        """Sends a setting from the first worker to the servers; the others wait until it is
        there."""
        if self.rank == 0:
            for server in self._servers:
                requests.send_json(server, found)
                requests.synchronize(server)
        self._barrier()

    def _send_changes(self) -> None:
        now = hyperparameters(self._optimizer)
        if now != self._known:
            changed = {k: v for k, v in now.items() if self._known.get(k) != v}
            self._known = now
            for server in self._servers:
                requests.send_json(server, {"changed": changed})

    def _set_updater(self, updater: Any) -> None:
        raise StoreError(
            "dist_async: an updater is a function, which cannot be sent to servers\n  fix:"
            " kv.set_optimizer"
        )

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Gradients are sent compressed; see "dist_sync"."""
        self._compression = GradientCompression(compression_params, ("2bit", "fp16"))
        self._configure({"compression": compression_params})

    def set_staleness(self, bound: int | None) -> None:
        """A worker that is more than `bound` pushes ahead of the slowest waits at its next pull.
        None (default): it never waits."""
        if bound is not None and (not isinstance(bound, int) or bound < 0):
            raise StoreError(f"set_staleness: bound must be a number from 0, or None, got {bound}")
        self._configure({"staleness": bound})

    def save_optimizer_states(
        self, fname: str | PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Gathers the servers' states and writes them as the other stores do; waits for what this
        worker has pushed. Any worker may call it, others need not."""
        contents = {server: requests.save(server, dump_optimizer) for server in self._servers}
        if not all(contents.values()):
            raise StoreError("Cannot save states: there is no optimizer\n  fix: kv.set_optimizer")
        assert self._optimizer is not None
        states = async_states.joined(contents, self._optimizer, self._places, dump_optimizer)
        files.write(fname, states)

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Gives the servers, of any number, what save_optimizer_states wrote. All workers call
        it."""
        if self._optimizer is None:
            raise StoreError("Cannot load states: there is no optimizer\n  fix: kv.set_optimizer")
        content = files.read(fname, "load_optimizer_states")
        parts = async_states.cut(content, self._optimizer, self._places, self._servers)
        self._known = hyperparameters(self._optimizer)
        if self.rank == 0:
            for server, states in parts.items():
                requests.load(server, states)
        self._barrier()


def _dense(key: Any, arrays: list[NDArray]) -> None:
    if any(a.stype != "default" for a in arrays):
        raise _not_sparse(key)


def _not_sparse(key: Any) -> StoreError:
    return StoreError(
        f"dist_async: the value of key {key!r} is sparse, servers have dense weights\n  fix:"
        " kvstore='dist_sync', or sparse_grad=False"
    )


STORES.update(dict.fromkeys(("dist_async", "dist_device_async", "dist_async_device"), AsyncStore))
