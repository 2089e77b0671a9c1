"""Updater: an optimizer with the states of all weights; saved and loaded as arrays and JSON, not as
a pickle."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from ...dist import Group
from ...dist.mesh import Part, one_writes, sharing
from ...engine import files
from ...engine.error import InvalidType, InvalidValue, MXNetError
from ...ndarray import NDArray, autograd, serialization
from ...ndarray.ndarray import from_memory
from ...ndarray.saved_state import copied
from .. import lr_scheduler
from .optimizer import Optimizer, create
from .update_plan import same

FORMAT = "plait-optimizer-states-1"
META = "__meta__"


class Updater:
    """`updater(index, grad, weight)` updates a weight (or lists of them) in place; makes states
    when first needed."""

    def __init__(self, optimizer: Optimizer, replica: int | None = None):
        self.optimizer, self.replica = optimizer, replica
        self.states: dict = {}
        self.states_synced: dict = {}
        self.aggregate_updates = optimizer.aggregate_num > 0
        # a Trainer's replica has the same arrays at each step, a store may have new ones
        lasting = replica is not None and self.aggregate_updates
        self._plans: dict | None = {} if lasting else None
        self._parts_of: tuple = ((), ())  # weights, and the numbers of those of a dtype and device

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not index:
            return
        optimizer = self.optimizer
        replica = weight[0]._spec.device.device_id if self.replica is None else self.replica
        optimizer._set_current_context(replica)
        optimizer._plans = self._plans
        for i, w in zip(index, weight):
            if i not in self.states:
                with autograd.pause():
                    self.states[i] = optimizer.create_state_multi_precision(i, w)
                self.states_synced[i] = True
            elif not self.states_synced[i]:
                with autograd.pause():
                    made = optimizer.create_state_multi_precision(i, w)
                if not _alike(self.states[i], made):
                    raise MXNetError(
                        f"the state of parameter {i} that was loaded does not fit"
                        f" {type(optimizer).__name__} and a weight of shape {w.shape}\n  fix: load"
                        " what the same optimizer saved for the same parameters"
                    )
                self.states[i] = self.sync_state_context(self.states[i], w.context)
                self.states_synced[i] = True
        with autograd.pause():
            if self.aggregate_updates:
                self._update_together(index, grad, weight)
            else:
                for i, g, w in zip(index, grad, weight):
                    optimizer.update_multi_precision(i, w, g, self.states[i])

    def _update_together(self, index, grad, weight) -> None:
        """Weights of one dtype and device in one call."""
        if not same(weight, self._parts_of[0]):
            parts: dict[tuple, list[int]] = {}
            for k, w in enumerate(weight):
                parts.setdefault((w._spec.dtype, w._spec.device), []).append(k)
            self._parts_of = list(weight), list(parts.values())
        states = [self.states[i] for i in index]
        if len(self._parts_of[1]) == 1:
            self.optimizer.update_multi_precision(index, weight, grad, states)
            return
        for part in self._parts_of[1]:
            self.optimizer.update_multi_precision(
                *([of[k] for k in part] for of in (index, weight, grad, states))
            )

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """A state on another device."""
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(s, context) for s in state)
        return state

    # ---- weights that are split over ranks -------------------------------------------------------

    def _parts(self) -> dict[Any, Part]:
        """The parts that this rank has, by index."""
        found = {i: getattr(p, "_part", None) for i, p in self.optimizer.param_dict.items()}
        return {i: part for i, part in found.items() if part is not None}

    def _groups(self) -> list[Group]:
        """The ranks that share what is saved."""
        return sharing(self._parts().values())

    def _whole(self) -> dict:
        """The states of whole weights. All ranks that share them call it."""
        parts = self._parts()
        return {i: each(parts[i].whole, s) if i in parts else s for i, s in self.states.items()}

    def _loaded(self, states: dict) -> None:
        """Takes whole states; each is copied to its weight's device at its first use."""
        self.states = dict(states)
        self.states_synced = dict.fromkeys(self.states, False)
        for i, part in self._parts().items():
            if i in self.states:
                self.states[i] = each(lambda a, own=part: own.of(a).copy(), self.states[i])

    # ---- files -----------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        """The states by index, without the optimizer."""
        return {"states": copied(self._whole())}

    def load_state_dict(self, state: dict) -> None:
        """Restores the result of state_dict."""
        self._loaded(state["states"])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states as bytes; dump_optimizer: with the optimizer's hyperparameters and counts."""
        arrays: dict[str, NDArray] = {}

        def plain(state, path):
            if isinstance(state, NDArray):
                arrays[path] = state
                return path
            if isinstance(state, (tuple, list)):
                return [plain(s, f"{path}.{i}") for i, s in enumerate(state)]
            return state

        states = [[i, plain(s, str(i))] for i, s in self._whole().items()]
        meta: dict[str, Any] = {"format": FORMAT, "states": states}
        if dump_optimizer:
            meta["optimizer"] = _describe(self.optimizer)
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        return serialization.save_tobuffer({META: from_memory(text), **arrays})

    def set_states(self, states: bytes) -> bool:
        """Restores the result of get_states. Returns: was the optimizer in it? Raises MXNetError
        for anything else; pickles are never read."""
        if bytes(states[:1]) == b"\x80" or states[:4] in (b"(dp0", b"ccop"):
            raise MXNetError(
                "set_states: these are pickled states, as MXNet writes them; plait does not read"
                " pickles, because reading one can run any code\n  fix: train on without the old"
                " states, or convert them with MXNet to arrays (nd.save)"
            )

        loaded = serialization.load_frombuffer(states)
        if not isinstance(loaded, dict) or META not in loaded:
            raise MXNetError(
                "set_states: these are not optimizer states\n  fix: write them with"
                " Trainer.save_states"
            )
        arrays = loaded

        def nested(state):
            if isinstance(state, str):
                return arrays[state]
            return tuple(nested(s) for s in state) if isinstance(state, list) else state

        try:
            meta = json.loads(arrays.pop(META).asnumpy().tobytes())
            saved_format = meta["format"]
            read = {i: nested(s) for i, s in meta["states"]} if saved_format == FORMAT else {}
            if saved_format == FORMAT and "optimizer" in meta:
                _restore(self.optimizer, meta["optimizer"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise MXNetError(
                f"set_states: these optimizer states are damaged: {type(error).__name__}: {error}"
            ) from None
        if saved_format != FORMAT:
            raise MXNetError(f"set_states: format must be {FORMAT}, got {saved_format}")
        self._loaded(read)
        return "optimizer" in meta

    def save(self, fname: str | PathLike[str], dump_optimizer: bool = False) -> None:
        """Writes get_states to a file, whole or not at all. Ranks that share the states all call
        it, and the first writes."""
        content = self.get_states(dump_optimizer)
        one_writes(self._groups(), lambda: files.write(fname, content))

    def load(self, fname: str | PathLike[str], kind: str) -> None:
        """set_states from a file. what: the caller, for the error message. Raises MXNetError."""
        self.set_states(files.read(fname, kind))


def each(function: Callable[..., NDArray], *states: Any) -> Any:
    """A state whose arrays are made of those of one or more states of the same form. Optimizers of
    split weights are elementwise: all arrays of a state have the weight's shape."""
    first = states[0]
    if isinstance(first, (tuple, list)):
        return type(first)(each(function, *some) for some in zip(*states))
    return function(*states) if isinstance(first, NDArray) else first


def _alike(state, made) -> bool:
    """Does a state have the structure and shapes of a newly created one?"""
    if isinstance(made, (tuple, list)):
        same = isinstance(state, (tuple, list)) and len(state) == len(made)
        return same and all(map(_alike, state, made))
    if isinstance(made, NDArray):
        return isinstance(state, NDArray) and state.shape == made.shape
    return not isinstance(state, (NDArray, tuple, list))


def _is_plain(value) -> bool:
    return (
        value is None
        or isinstance(value, (bool, int, float, str))
        or isinstance(value, list)
        and all(map(_is_plain, value))
    )


def _plain_attributes(owner) -> dict:
    return {k: v for k, v in owner.__dict__.items() if _is_plain(v)}


def _describe(optimizer: Optimizer) -> dict:
    counts = [[device, list(c.items())] for device, c in optimizer._all_index_update_counts.items()]
    found = {
        "class": type(optimizer).__name__,
        "attributes": _plain_attributes(optimizer),
        "counts": counts,
    }
    if optimizer.lr_scheduler is not None:
        found["scheduler"] = {
            "class": type(optimizer.lr_scheduler).__name__,
            "attributes": _plain_attributes(optimizer.lr_scheduler),
        }
    return found


def described(optimizer: Optimizer) -> dict:
    """An optimizer as plain data, from which another process makes its own: `from_description`."""
    keys = [*optimizer.param_dict, *optimizer.idx2name, *optimizer.lr_mult, *optimizer.wd_mult]
    mults = {
        key: [
            optimizer._factors([key], "lr_mult", optimizer.lr_mult)[0],
            optimizer._factors([key], "wd_mult", optimizer.wd_mult)[0],
        ]
        for key in keys
    }
    return _describe(optimizer) | {"mults": list(mults.items())}


def from_description(found: dict) -> Optimizer:
    """The optimizer of `described`. Raises InvalidValue for a class that this process lacks."""
    optimizer = create(found["class"])
    scheduler = found.get("scheduler")
    if scheduler is not None:
        kind = getattr(lr_scheduler, scheduler["class"], None)
        if kind is None:
            raise InvalidValue(
                f"{scheduler['class']}: a server makes only schedules of mx.lr_scheduler\n  fix:"
                " one of them, or optimizer.set_learning_rate on the workers"
            )
        rate = optimizer.lr_scheduler = kind.__new__(kind)
        vars(rate).update(scheduler["attributes"])
    _restore(optimizer, found)
    optimizer.lr_mult = {key: lr for key, (lr, _) in found["mults"]}
    optimizer.wd_mult = {key: wd for key, (_, wd) in found["mults"]}
    return optimizer


def hyperparameters(optimizer: Optimizer) -> dict:
    """Its numbers and flags, without the number of updates."""
    return {k: v for k, v in _plain_attributes(optimizer).items() if k != "num_update"}


def set_hyperparameters(optimizer: Optimizer, changed: dict) -> None:
    """Sets some of `hyperparameters`."""
    _put(optimizer, changed.items())


def _restore(optimizer: Optimizer, saved: dict) -> None:
    if saved["class"] != type(optimizer).__name__:
        raise MXNetError(
            f"set_states: the states belong to {saved['class']}, the optimizer is "
            f"{type(optimizer).__name__}\n  fix: make the Trainer with {saved['class'].lower()!r}"
        )
    own, scheduler = saved["attributes"].items(), saved.get("scheduler") or {}
    counts = {device: {i: int(n) for i, n in pairs} for device, pairs in saved["counts"]}
    rate = optimizer.lr_scheduler
    its = scheduler["attributes"].items() if scheduler else ()
    _put(optimizer, own)
    optimizer._all_index_update_counts = counts
    optimizer._index_update_count = counts.setdefault(0, {})
    if rate is not None and scheduler.get("class") == type(rate).__name__:
        _put(rate, its)


def _put(owner, attributes) -> None:
    """Sets the plain attributes that the object has. Raises TypeError for a value of another
    kind."""
    optional = {
        name
        for base in type(owner).__mro__
        if "__init__" in vars(base)
        for name, p in inspect.signature(vars(base)["__init__"]).parameters.items()
        if p.default is None
    }
    for key, value in attributes:
        own = owner.__dict__.get(key, owner)
        if not _is_plain(own) or key == "lr_scheduler":
            continue
        fits = own is None or key in optional if value is None else _kind(value) is _kind(own)
        if not fits:
            raise TypeError(f"{key} is {own!r} here and {value!r} there")
        setattr(owner, key, value)


def _kind(value) -> type:
    """The kind of a value; None counts as a number."""
    return float if value is None or isinstance(value, (bool, int, float)) else type(value)


def get_updater(optimizer: Optimizer, replica: int | None = None) -> Updater:
    """An Updater of an optimizer. replica: which copy of the network it updates; as in MXNet the
    number of the weights' device unless given. Raises TypeError for other values."""
    if not isinstance(optimizer, Optimizer):
        raise InvalidType(
            f"optimizer must be an Optimizer, got {optimizer!r}\n"
            "  fix: mx.optimizer.create('sgd', learning_rate=0.1)"
        )
    return Updater(optimizer, replica)
