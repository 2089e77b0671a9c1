"""Trainer: applies an optimizer to parameters after backward; sums gradients over devices."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

import numpy as np

from ..dist import Group, broadcast, init
from ..engine import files, layers
from ..engine.error import InvalidValue
from ..ndarray.autograd import rank_gradients
from ..ndarray.saved_state import CHECKPOINT, StateError, copied, merged, parse, states_of
from ..training import optimizer as opt
from ..training.checkpoint import Checkpoint
from ..training.kvstore import KVStore, KVStoreBase
from ..training.kvstore.base import check_store, state_of
from ..training.kvstore.choose import (
    choose_sparse_store,
    choose_store,
    n_summed,
    ranks_of,
    spans_processes,
)
from ..training.kvstore.dist_async import AsyncStore
from ..training.kvstore.sharded import make_sharded
from ..training.optimizer import Optimizer
from ..training.optimizer.update_plan import same
from . import shard as shards
from .parameter import Parameter
from .parameter_dict import ParameterDict


class TrainerError(InvalidValue):
    """Invalid arguments or use of a Trainer."""


class _Ready:
    """What a step updates, for the steps after it while the parameters have the same arrays.

    jobs: of each device the numbers of parameters, their gradients and weights. variables: of all
    weights. A parameter that is initialized again or gets another grad_req has new lists.
    """

    __slots__ = ("data", "grads", "jobs", "params", "variables")

    def __init__(self, params: list[Parameter], jobs: list[tuple[list, list, list]]):
        self.params, self.jobs = params, jobs
        self.data, self.grads = [p._arrays for p in params], [p._grad for p in params]
        self.variables = [w._tape for _, _, weights in jobs for w in weights]

    def serves(self) -> bool:
        return (
            same([p._arrays for p in self.params], self.data)
            and same([p._grad for p in self.params], self.grads)
            and same([w._tape for _, _, ws in self.jobs for w in ws], self.variables)
        )


class Trainer:
    """Updates parameters with an optimizer.

    Args:
        params: ParameterDict (net.collect_params()), dict or list of Parameters.
        optimizer: name or Optimizer. optimizer_params: its arguments, e.g. {"learning_rate": 0.1,
            "momentum": 0.9}.
        kvstore: a store, or the name of one, that sums the gradients of several devices. None: each
            device uses its own gradient. With one device a name creates no store. "dist_sync" sums
            over the axis "data" of the current mesh (`mx.dist.mesh`), without a mesh over all
            ranks.
        compression_params: {"type": "2bit", "threshold": 0.5} compresses gradients to two bits.
        update_on_kvstore: True: the store updates the weights and the devices copy them (default
            with a store). False: each device updates its own.
        shard: "states", with kvstore="dist_sync": each process has the optimizer's states of a part
            of the weights, and updates that. All processes call save_states and state_dict.

    >>> net, loss_fn = gluon.nn.Dense(2), gluon.loss.L2Loss()
    >>> net.initialize()
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    >>> with autograd.record():
    ...     loss = loss_fn(net(nd.ones((4, 3))), nd.ones((4, 2)))
    >>> loss.backward()
    >>> trainer.step(4)
    """

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        kvstore: Any = "device",
        compression_params: dict[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
        shard: str | None = None,
    ):
        if isinstance(params, (dict, ParameterDict)):
            params = [params[key] for key in sorted(params.keys())]
        if not isinstance(params, (list, tuple)):
            raise TrainerError(
                f"First argument must be a list or dict of Parameters, got {type(params)}."
            )
        for p in params:
            if not isinstance(p, Parameter):
                raise TrainerError(
                    f"First argument must be a list or dict of Parameters, got list of {type(p)}."
                )
        self._params: list[Parameter] = list(params)
        self._ready: _Ready | None = None
        self._rules: list[Any] = []  # see follow
        self._param2idx = {p.name: i for i, p in enumerate(self._params)}
        check_store(kvstore)
        self._sharded = shard is not None
        if self._sharded:
            kvstore = make_sharded(kvstore, shard, update_on_kvstore, compression_params)
        self._compression_params = compression_params
        self._scale = float((optimizer_params or {}).get("rescale_grad", 1.0))
        self._amp_loss_scaler: Any = None  # amp.LossScaler
        self._amp_original_scale = self._scale
        self._contexts = self._check_contexts()
        self._split_over = shards.groups(self._params)
        self._init_optimizer(optimizer, optimizer_params or {})
        if isinstance(optimizer, opt.Optimizer):
            self._scale = float(optimizer.rescale_grad)
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        if spans_processes(kvstore):
            init()
        self._reset_kvstore()
        self._attach()

    def _attach(self) -> None:
        """Registers this trainer with the parameters; done last, so that a failed construction
        changes nothing. Raises TrainerError."""
        for p in self._params:
            if p._stype != "default" and p._trainer not in (None, self):
                raise TrainerError(
                    f"Failed to set the trainer for Parameter '{p.name}' because it was already"
                    f" set. More than one trainers for a {p._stype} Parameter is not supported."
                    "\n  fix: use one Trainer for all parameters"
                )
        if any(p._data is not None for p in self._params):
            self._parameter_has_data()
        for p in self._params:
            p._trainer = self

    def _check_contexts(self):
        """The devices of all parameters; if every parameter is on a single device (a network placed
        on several devices, whose gradients need no sum), those of the first."""
        contexts = None
        for p in self._params:
            if p._data is None and not p._deferred_init:
                continue
            found = p.list_ctx()
            if contexts is not None and contexts != found and max(len(contexts), len(found)) > 1:
                raise TrainerError(
                    "All Parameters must be initialized on the same set of contexts, but Parameter"
                    f" {p.name} is initialized on {found} while previous Parameters are initialized"
                    f" on {contexts}."
                )
            contexts = contexts or found
        return contexts or []

    def _init_optimizer(self, optimizer, params) -> None:
        by_index = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            if params:
                raise TrainerError(
                    "optimizer_params must be None if optimizer is an instance of Optimizer instead"
                    " of str"
                )
            self._optimizer = optimizer
            optimizer.param_dict = by_index
        else:
            self._optimizer = opt.create(optimizer, param_dict=by_index, **params)
        wrong = shards.needs_whole(self._params, self._optimizer)
        if wrong:
            raise TrainerError(wrong)
        self._updaters = self._made_updaters(len(self._contexts) or 1)

    # ---- the store -------------------------------------------------------------------------------

    def _reset_kvstore(self) -> None:
        self._kv_initialized = False
        self._kvstore: KVStoreBase | None = None
        self._update_on_kvstore: bool | None = None
        self._params_to_init: list[Parameter] = list(self._params)

    @property
    def _store(self) -> KVStoreBase:
        """The store, if any."""
        assert self._kvstore is not None
        return self._kvstore

    def _init_kvstore(self, equal: bool = True) -> None:
        """Creates the store once the devices are known, and adds weights as their shapes become
        known. equal: copy the first device's values to all devices."""
        if not self._kv_initialized:
            self._contexts = self._contexts or self._check_contexts()
            self._make_kvstore()
            self._kv_initialized = True
        if self._params_to_init and self._kvstore is not None:
            self._params_to_init = [p for p in self._params_to_init if not self._stored(p, equal)]

    @property
    def _ranks(self) -> Group | None:
        """The ranks that train together, if the store spans several."""
        self._init_kvstore()
        return ranks_of(self._kvstore)

    @property
    def _n_summed(self) -> int:
        """How many processes' gradients a step sums."""
        self._init_kvstore()
        return n_summed(self._kvstore)

    def _make_kvstore(self) -> None:
        asked = self._kvstore_params["update_on_kvstore"]
        store: KVStoreBase | None
        if self._sharded:
            store, on_store = self._kvstore_params["kvstore"], True
            self._check_dense()
        elif any(p._stype != "default" for p in self._params):
            store, on_store = choose_sparse_store(self._kvstore_params["kvstore"])
            if asked is False:
                raise TrainerError(
                    "Cannot set update_on_kvstore=False when sparse weights are present."
                )
        else:
            arrays = {p.name: p._data[0] for p in self._params if p._data is not None}
            store, on_store = choose_store(
                self._kvstore_params["kvstore"], len(self._contexts) or 1, arrays
            )
            if any(p._grad_stype != "default" for p in self._params):
                on_store = False
                if store is not None and not isinstance(store, KVStore):
                    raise TrainerError(
                        f"Cannot use {type(store)} for multi-device training with sparse gradients"
                    )
            if store is not None and asked is not None:
                on_store = bool(asked)
        if store is None:
            return
        if not on_store and isinstance(store, AsyncStore):
            raise TrainerError(
                "Please set update_on_kvstore=True when training in async mode: servers update the"
                " weights"
            )
        wrong = shards.mixed(self._params, store)
        if wrong:
            raise TrainerError(wrong)
        if on_store and not store.is_capable("optimizer"):
            raise TrainerError(
                f"Please set update_on_kvstore=False when training with {type(store)}"
            )
        if self._compression_params:
            store.set_gradient_compression(self._compression_params)
        if on_store:
            store.set_optimizer(self._optimizer)
        self._kvstore, self._update_on_kvstore = store, on_store
        rank_gradients()

    def _check_dense(self) -> None:
        for p in self._params:
            if (p._stype, p._grad_stype) != ("default", "default"):
                raise TrainerError(
                    f"shard='states' needs dense weights and gradients, but Parameter {p.name} has"
                    f" stype {p._stype} and grad_stype {p._grad_stype}"
                    "\n  fix: a Trainer of its own for it, without shard"
                )

    def _stored(self, p: Parameter, equal: bool) -> bool:
        """Adds a parameter to the store; False while its shape is unknown."""
        if p._data is None:
            return False
        i, store = self._param2idx[p.name], self._store
        if p._part is None and ranks_of(store) is not None:
            for group in self._split_over:  # before the store gives it to all copies of this rank
                broadcast(p._data[0], group=group, name=p.name)
        if isinstance(store, KVStore) and i in store:
            store._set(i, p._data[0])  # set by the user: the optimizer's states are kept
        elif p._stype != "default" or not equal and isinstance(store, KVStore):
            store.init(i, p._data[0])
        else:
            store.broadcast(i, p._data[0], p.list_data())
        if isinstance(store, KVStore) and self._update_on_kvstore and p._stype == "default":
            store.share(i, p.list_data())
        return True

    def _parameter_has_data(self) -> None:
        """A store of several processes distributes the first process's values before they are
        used."""
        if spans_processes(self._kvstore_params["kvstore"]):
            self._init_kvstore()

    def _parameter_was_set(self, parameter) -> None:
        """set_data on a parameter of this trainer: the store must be updated before its next
        step."""
        if not self._update_on_kvstore or parameter in self._params_to_init:
            return
        if isinstance(self._kvstore, KVStore):
            self._params_to_init.append(parameter)
        else:
            self._reset_kvstore()

    def _row_sparse_pull(self, parameter, out, row_id, full_idx=False) -> None:
        """Copies rows of a row_sparse weight from the store. full_idx: all of them."""
        self._init_kvstore()
        i = self._param2idx[parameter.name]
        if full_idx:
            self._store.pull(i, out=out, priority=-i, ignore_sparse=False)
        else:
            self._store.row_sparse_pull(i, out=out, row_ids=row_id, priority=-i)

    # ---- the optimizer ---------------------------------------------------------------------------

    @property
    def optimizer(self) -> Any:
        """The Optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The current learning rate."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate. Raises UserWarning when a scheduler decides it."""
        self._optimizer.set_learning_rate(lr)

    # ---- steps -----------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sums gradients over devices, scales them by 1 / batch_size, and updates the parameters.

        Raises UserWarning if a gradient was not computed since the last step (ignore_stale_grad:
        skips that parameter).
        """
        if not isinstance(batch_size, (int, float, np.number)) or batch_size <= 0:
            raise TrainerError(f"step: batch_size must be a number above 0, got {batch_size!r}")
        if not layers.watched:
            self._step(batch_size, ignore_stale_grad)
            return
        before = layers.enter(layers.named("Trainer"))
        try:
            self._step(batch_size, ignore_stale_grad)
        finally:
            layers.enter(before)

    def _step(self, batch_size: float, ignore_stale_grad: bool) -> None:
        self._optimizer.rescale_grad = self._scale / batch_size
        self._init_kvstore()
        if self._update_on_kvstore:
            if self._amp_loss_scaler is not None:
                raise TrainerError(
                    "step: mixed precision checks the gradients before the update, but the store"
                    " makes the updates\n  fix: gluon.Trainer(..., update_on_kvstore=False)"
                )
            self._check_fresh(ignore_stale_grad)
        self._allreduce_grads()
        if not self._update_on_kvstore:
            self._update(ignore_stale_grad)
        for rule in self._rules:
            rule.after_step()

    def follow(self, rule: Any) -> None:
        """Calls rule.after_step() after each update from now on; rule.state_dict() is saved with
        the trainer's state. Pruning and clustering keep their weights so: mx.contrib.compress."""
        self._rules.append(rule)

    def allreduce_grads(self) -> None:
        """Sums gradients over devices; for use with `update`, to inspect gradients in between.

        Raises TrainerError (AssertionError) when the store updates the weights.
        """
        self._init_kvstore()
        self._check_not_on_kvstore("allreduce_grads")
        self._allreduce_grads()

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Updates the parameters from gradients that allreduce_grads has summed.

        Raises TrainerError (AssertionError) when the store updates the weights.
        """
        self._init_kvstore()
        self._check_not_on_kvstore("update")
        self._optimizer.rescale_grad = self._scale / batch_size
        self._update(ignore_stale_grad)
        for rule in self._rules:
            rule.after_step()

    def _check_not_on_kvstore(self, method: str) -> None:
        if self._update_on_kvstore:
            raise TrainerError(
                f"{method}() when parameters are updated on kvstore is not supported. Try setting"
                " `update_on_kvstore` to False when creating trainer."
            )

    def _allreduce_grads(self) -> None:
        """Sums gradients on the store, which writes back the sums, or the updated weights."""
        store = self._kvstore
        if store is None:
            return
        if self._amp_loss_scaler is not None and getattr(store, "_compression", None) is not None:
            raise TrainerError(
                "mixed precision checks gradients for inf and NaN after they are summed, but"
                " compression replaces those, and keeps errors that depend on the loss scale\n"
                "  fix: a Trainer and store without compression_params; or amp.init('bfloat16')"
                " without init_trainer, which needs no loss scale"
            )
        wanted = [(i, p) for i, p in enumerate(self._params) if p.grad_req != "null"]
        if isinstance(store, KVStore):  # in one call, so that updates are batched
            dense = [(i, p) for i, p in wanted[::-1] if p.list_grad()[0].stype == "default"]
            # in the order in which backward computes them
            dense.sort(key=lambda item: item[1].list_data()[0]._tape.rank)
            wanted = [(i, p) for i, p in wanted if p.list_grad()[0].stype != "default"]
            keys, lists = [i for i, _ in dense], [p.list_grad() for _, p in dense]
            firsts = [-i for i in keys]
            if self._update_on_kvstore:
                store.pushpull(keys, lists, [p.list_data() for _, p in dense], firsts)
            else:
                store.sum_in_place(keys, lists, firsts)
        for i, p in wanted:
            grads = p.list_grad()
            if grads[0].stype != "default":
                store.push(i, grads, priority=-i)
                if p._stype == "default":
                    pulled = p.list_data() if self._update_on_kvstore else grads
                    store.pull(i, pulled, priority=-i, ignore_sparse=False)
            elif self._update_on_kvstore:
                store.pushpull(i, grads, out=p.list_data(), priority=-i)
            else:
                store.pushpull(i, grads, priority=-i)

    def _check_fresh(self, ignore_stale_grad: bool) -> None:
        """Raises UserWarning for a gradient that backward has not written since the last step."""
        for p in self._params:
            if p.grad_req != "null" and not ignore_stale_grad:
                for array in p._data or p.list_data():
                    if not array._tape.fresh:
                        raise _stale(p, array)

    def _update(self, ignore_stale_grad=False) -> None:
        scaler = self._amp_loss_scaler
        if scaler is not None and scaler.has_overflow(self._params):
            return
        ready = self._ready
        if ready is None or not ready.serves() or not all([v.fresh for v in ready.variables]):
            ready = self._jobs(ignore_stale_grad)
        for updater, (indices, grads, weights) in zip(self._updaters, ready.jobs):
            updater(indices, grads, weights)
        for v in ready.variables:
            v.fresh = False

    def _jobs(self, ignore_stale_grad: bool) -> _Ready:
        """What each device updates."""
        n_devices = len(self._contexts) or 1
        if len(self._updaters) < n_devices:
            self._updaters = self._made_updaters(n_devices)
        complete = True
        jobs: list[tuple[list, list, list]] = [([], [], []) for _ in range(n_devices)]
        for i, p in enumerate(self._params):
            if p._grad_req == "null":
                continue
            data = p._data
            if data is None:
                raise p._not_initialized()
            if len(data) > len(jobs):
                self._add_devices(p, jobs)
            for (indices, grads, weights), array, grad in zip(jobs, data, p._grad or ()):
                if not array._tape.fresh:
                    if not ignore_stale_grad:
                        raise _stale(p, array)
                    complete = False
                    continue
                indices.append(i)
                grads.append(grad)
                weights.append(array)
        ready = _Ready(self._params, jobs)
        self._ready = ready if complete else None
        return ready

    def _made_updaters(self, n: int) -> list:
        return [opt.get_updater(self._optimizer, replica) for replica in range(n)]

    def _add_devices(self, parameter, jobs) -> None:
        """More devices than were known: those of a parameter."""
        self._contexts = parameter.list_ctx()
        jobs += [([], [], []) for _ in range(len(parameter._data) - len(jobs))]
        self._updaters += self._made_updaters(len(jobs))[len(self._updaters) :]

    # ---- files -----------------------------------------------------------------------------------

    def _stateful(self) -> dict:
        """The objects that hold this trainer's state."""
        store = self._kvstore
        updaters = [state_of(self._store)[0]] if self._update_on_kvstore else self._updaters
        return {
            "optimizer": self._optimizer,
            "updaters": updaters,
            "scaler": self._amp_loss_scaler,
            "compression": getattr(store, "_compression", None),
        }

    def _updated(self) -> list:  # as training.checkpoint.UpdatesParameters
        return self._params

    def state_dict(self) -> dict:
        """The trainer's state besides the parameters: the optimizer with its counts, states and
        schedule, the loss scale, the residuals of gradient compression."""
        self._init_kvstore()
        return {
            "shapes": [p.shape for p in self._params],
            "scale": self._scale,
            **copied(self._stateful()),
            **({"rules": copied([r.state_dict() for r in self._rules])} if self._rules else {}),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict. Raises StateError if it does not match."""
        self._init_kvstore(equal=False)  # each device continues with its own running means
        now = self._stateful()
        shapes = [p.shape for p in self._params]
        if shapes != state["shapes"]:
            raise StateError(
                f"Trainer: the saved state has parameters of shapes {state['shapes']}, this"
                f" trainer has {shapes}"
            )
        rules = state.get("rules", [])
        if len(rules) != len(self._rules):
            raise StateError(
                f"Trainer: the saved state has {len(rules)} rules to follow, this trainer has"
                f" {len(self._rules)}\n  fix: attach pruning or clustering before loading"
            )
        self._scale = state["scale"]
        for rule, saved in zip(self._rules, rules):
            rule.load_state_dict(saved)
        for name, part in now.items():
            if (part is None) != (state[name] is None):
                has, lacks = ("saved state", "trainer here")[:: 1 if part is None else -1]
                raise StateError(f"Trainer: the {has} has a {name}, the {lacks} does not")
            merged(part, state[name], f"Trainer: {name}")

    def save_states(self, fname: str | PathLike[str]) -> None:
        """Writes the optimizer's states (momentum ...), counts and hyperparameters to a file of
        arrays and JSON."""
        self._init_kvstore()
        if self._rules:
            Checkpoint(os.fspath(fname), trainer=self).save()
            return
        if self._update_on_kvstore:
            self._store.save_optimizer_states(fname, dump_optimizer=True)
            return
        self._updaters[0].save(fname, dump_optimizer=True)

    def load_states(self, fname: str | PathLike[str]) -> None:
        """Reads what save_states wrote, or takes the trainer's part of a Checkpoint's file. Raises
        MXNetError for pickles and foreign files."""
        self._init_kvstore()
        states = files.read(fname, "load_states")
        if states[:1] != b"\x80":  # a pickle: the updater reports it
            _, found = parse(states, CHECKPOINT, f"load_states: {fname}")
            kept = states_of(type(self).__name__, found)
            if kept:
                self.load_state_dict(kept[0].state)
                return
        if self._update_on_kvstore:
            self._store.load_optimizer_states(fname)
            return
        for updater in self._updaters:
            updater.set_states(states)
        self._optimizer.param_dict = dict(enumerate(self._params))


def _stale(parameter: Parameter, array) -> UserWarning:
    return UserWarning(
        f"Gradient of Parameter `{parameter.name}` on context {array.context} has not"
        " been updated by backward since last `step`. This could mean a bug in"
        " your model that made it only use a subset of the Parameters (Blocks)"
        " for this iteration. If you are intentionally only using a subset,"
        " call step with ignore_stale_grad=True to suppress this warning and"
        " skip updating of Parameters with stale gradient"
    )
