"""Trainer: applies an optimizer to parameters after backward; sums gradients over devices."""

from __future__ import annotations

import numbers

from ..engine.error import MXNetError
from ..ndarray import autograd, functions
from ..ndarray.invoke import copy_into
from . import optimizer as opt
from .parameter import Parameter
from .parameter_dict import ParameterDict


class TrainerError(MXNetError, ValueError, AssertionError):
    """A Trainer that is given or asked something that makes no sense."""


class Trainer:
    """Updates parameters with an optimizer.

    Args:
        params: ParameterDict (net.collect_params()), dict or list of Parameters.
        optimizer: name or Optimizer. optimizer_params: its arguments, e.g. {"learning_rate": 0.1,
            "momentum": 0.9}.
        kvstore: how gradients of several devices are summed: "device", "local" or None are all done
            in this process.
        compression_params, update_on_kvstore: accepted for one process.

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
        params,
        optimizer,
        optimizer_params=None,
        kvstore="device",
        compression_params=None,
        update_on_kvstore=None,
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
        self._param2idx = {p.name: i for i, p in enumerate(self._params)}
        for p in self._params:
            p._trainer = self
        self._compression_params = compression_params
        self._scale = float((optimizer_params or {}).get("rescale_grad", 1.0))
        self._contexts = self._check_contexts()
        self._init_optimizer(optimizer, optimizer_params or {})
        self._kvstore_params = {"kvstore": kvstore, "update_on_kvstore": update_on_kvstore}
        self._kvstore, self._update_on_kvstore = None, False
        if isinstance(kvstore, str) and "dist" in kvstore:
            raise TrainerError(
                f"kvstore={kvstore!r}: this build of plait has no distributed stores\n"
                "  fix: kvstore='device', or one process"
            )

    def _check_contexts(self):
        contexts = None
        for p in self._params:
            if p._data is None and not p._deferred_init:
                continue
            found = p.list_ctx()
            if contexts is not None and contexts != found:
                raise TrainerError(
                    "All Parameters must be initialized on the same set of contexts, but Parameter"
                    f" {p.name} is initialized on {found} while previous Parameters are initialized"
                    f" on {contexts}."
                )
            contexts = found
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
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts or [None]]

    def _parameter_was_set(self, parameter) -> None:
        """set_data on a parameter of this trainer: nothing is kept elsewhere that would have to
        follow."""

    # ---- the optimizer ---------------------------------------------------------------------------

    @property
    def optimizer(self):
        """The Optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The current learning rate."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr) -> None:
        """Sets the learning rate. Raises UserWarning when a scheduler decides it."""
        self._optimizer.set_learning_rate(lr)

    # ---- steps -----------------------------------------------------------------------------------

    def step(self, batch_size, ignore_stale_grad=False) -> None:
        """Sums gradients over devices, scales them by 1 / batch_size, and updates the parameters.

        Raises UserWarning when a gradient was not computed since the last step (ignore_stale_grad:
        skips it).
        """
        if not isinstance(batch_size, numbers.Real) or batch_size <= 0:
            raise TrainerError(f"step: batch_size must be a number above 0, got {batch_size!r}")
        self._optimizer.rescale_grad = self._scale / batch_size
        if len(self._contexts) < 2:
            self._update(ignore_stale_grad)
        elif self._kvstore_params["update_on_kvstore"] is False:
            self._allreduce_grads()
            self._update(ignore_stale_grad)
        # as MXNet's stores do by default: each device keeps its own gradient
        else:
            self._update(ignore_stale_grad, self._sums())

    def allreduce_grads(self) -> None:
        """Sums gradients over devices; for use with `update`, when gradients are looked at
        between."""
        self._allreduce_grads()

    def update(self, batch_size, ignore_stale_grad=False) -> None:
        """Updates the parameters from gradients that allreduce_grads has summed."""
        self._optimizer.rescale_grad = self._scale / batch_size
        self._update(ignore_stale_grad)

    def _allreduce_grads(self) -> None:
        for i, total in self._sums().items():
            for g in self._params[i]._grad:
                copy_into(total, g)

    def _sums(self) -> dict:
        """The gradients of parameters that live on several devices, summed, on the first of them:
        by index."""
        sums = {}
        with autograd.pause():
            for i, p in enumerate(self._params):
                if p.grad_req != "null" and p._grad is not None and len(p._grad) > 1:
                    first = p._grad[0].context
                    sums[i] = functions.add_n(*[g.as_in_context(first) for g in p._grad])
        return sums

    def _update(self, ignore_stale_grad=False, sums=None) -> None:
        n_devices = len(self._contexts) or 1
        if len(self._updaters) < n_devices:
            self._updaters = [opt.get_updater(self._optimizer) for _ in range(n_devices)]
        jobs: list[tuple[list, list, list]] = [([], [], []) for _ in range(n_devices)]
        for i, p in enumerate(self._params):
            if p._grad_req == "null":
                continue
            if p._data is None:
                raise p._not_initialized()
            for (indices, grads, weights), array, grad in zip(self._for(p, jobs), p._data, p._grad):
                variable = array._tape
                if not variable.fresh:
                    if not ignore_stale_grad:
                        raise UserWarning(
                            f"Gradient of Parameter `{p.name}` on context {array.context} has not"
                            " been updated by backward since last `step`. This could mean a bug in"
                            " your model that made it only use a subset of the Parameters (Blocks)"
                            " for this iteration. If you are intentionally only using a subset,"
                            " call step with ignore_stale_grad=True to suppress this warning and"
                            " skip updating of Parameters with stale gradient"
                        )
                    continue
                indices.append(i)
                grads.append(sums[i].as_in_context(grad.context) if sums and i in sums else grad)
                weights.append(array)
        for updater, (indices, grads, weights) in zip(self._updaters, jobs):
            updater(indices, grads, weights)
            for w in weights:
                w._tape.fresh = False

    def _for(self, parameter, jobs):
        if len(parameter._data) > len(jobs):
            self._contexts = parameter.list_ctx()
            jobs += [([], [], []) for _ in range(len(parameter._data) - len(jobs))]
            self._updaters += [
                opt.get_updater(self._optimizer) for _ in range(len(jobs) - len(self._updaters))
            ]
        return jobs

    # ---- files -----------------------------------------------------------------------------------

    def save_states(self, fname) -> None:
        """Writes the optimizer's states (momentum ...), counts and numbers to a file of arrays and
        JSON."""
        with open(fname, "wb") as f:
            f.write(self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname) -> None:
        """Reads what save_states wrote. Raises MXNetError for pickles and foreign files."""
        try:
            with open(fname, "rb") as f:
                states = f.read()
        except OSError as error:
            raise MXNetError(f"load_states: cannot read {fname!r}: {error.strerror}") from error
        for updater in self._updaters:
            updater.set_states(states)
        self._optimizer.param_dict = dict(enumerate(self._params))
