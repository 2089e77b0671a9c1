"""Module: a symbol bound on one or several devices, its parameters, its optimizer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from ...data.io import DataDesc
from ...dist import Group
from ...engine import Context, cpu
from ...graph.residuals import checked
from ...ndarray import NDArray, functions
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from ...symbol import Symbol
from ...symbol.executor import Executor
from .. import optimizer as opt
from ..initializer import InitDesc, Uniform
from ..kvstore import KVStore, KVStoreBase
from ..kvstore.choose import choose_store, n_summed, ranks_of
from ..model_params import load_checkpoint
from .base_module import BaseModule
from .described import MissingParameter, ModuleError, check_input_names, parse_data_desc
from .executor_group import DataParallelExecutorGroup
from .progress import module_state, set_module_state
from .update import fill_store, update_here, update_on_store


class Module(BaseModule):
    """A symbol as a module.

    Args:
        symbol: what is computed; its arguments other than data, labels and states are parameters.
        data_names, label_names: arguments that a batch gives.
        context: a device, or several that share each batch. work_load_list: a number for each: a
            batch is divided in proportion.
        fixed_param_names: parameters that are not updated.
        state_names: arguments that are set by set_states.
        group2ctxs: devices of ctx_groups: a dict, or a list with one dict for each context.
        compression_params: of gradients, {"type": "2bit", "threshold": 0.5}.
        recompute: what backward computes again instead of keeping it: see Symbol.bind.

    >>> net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    >>> mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    >>> train = mx.io.NDArrayIter(np.random.rand(20, 3), np.zeros(20), batch_size=5)
    >>> mod.fit(train, num_epoch=1)
    >>> mod.predict(train).shape
    (20, 2)
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | str = ("softmax_label",),
        logger: Any = logging,
        context: Any = cpu(),
        work_load_list: Sequence[int] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
        *,
        recompute: bool | float | None = None,
    ):
        super().__init__(logger=logger)
        self._context = [context] if isinstance(context, Context) else list(context)
        self._work_load_list = (
            [1] * len(self._context) if work_load_list is None else work_load_list
        )
        if len(self._work_load_list) != len(self._context):
            raise ModuleError(
                f"work_load_list must have a number for each of the {len(self._context)} contexts,"
                f" got {self._work_load_list}"
            )
        self._group2ctxs, self._compression_params = group2ctxs, compression_params
        self._recompute = checked(recompute, "Module", blocks=False)
        self._symbol: Symbol = symbol
        self._data_names, self._label_names = list(data_names or ()), list(label_names or ())
        self._state_names = list(state_names or ())
        self._fixed_param_names = list(fixed_param_names or ())
        for names, kind in (
            (self._data_names, "data"),
            (self._label_names, "label"),
            (self._state_names, "state"),
            (self._fixed_param_names, "fixed_param"),
        ):
            check_input_names(symbol, names, kind, kind != "label")
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [n for n in symbol.list_arguments() if n not in inputs]
        self._aux_names, self._output_names = symbol.list_auxiliary_states(), symbol.list_outputs()
        self._arg_params: dict[str, NDArray] = {}
        self._aux_params: dict[str, NDArray] = {}
        self._params_dirty = False  # the devices have newer values
        self._optimizer: opt.Optimizer | None = None
        self._kvstore: KVStoreBase | None = None  # update on the store
        self._updater: opt.Updater | None = None  # update in this module
        self._update_on_kvstore = False
        self._preload_opt_states: str | None = None
        self._grad_req: Any = None
        self._reset_bind()

    # ---- files -----------------------------------------------------------------------------------

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A Module from a checkpoint; its parameters are set when it is bound.

        load_optimizer_states: init_optimizer will read prefix-EPOCH.states. kwargs: of Module.
        """
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        made = Module(symbol=symbol, **kwargs)
        made._arg_params, made._aux_params = arg_params, aux_params
        made.params_initialized = True
        if load_optimizer_states:
            made._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return made

    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        save_optimizer_states: bool = False,
        remove_amp_cast: bool = True,
    ) -> None:
        """Writes prefix-symbol.json, prefix-EPOCH.params and, if asked, prefix-EPOCH.states."""
        self._symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
        self.save_params(f"{prefix}-{epoch:04d}.params")
        logging.info('Saved checkpoint to "%s"', f"{prefix}-{epoch:04d}.params")
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            logging.info('Saved optimizer state to "%s"', f"{prefix}-{epoch:04d}.states")

    @property
    def _store(self) -> KVStoreBase:
        """The store, if it updates the weights."""
        assert self._kvstore is not None
        return self._kvstore

    @property
    def _ranks(self) -> Group | None:
        return ranks_of(self._kvstore)

    @property
    def _own_updater(self) -> opt.Updater:
        """The updater, if no store updates the weights."""
        assert self._updater is not None
        return self._updater

    def state_dict(self) -> dict:
        return module_state(self)

    def load_state_dict(self, state: dict) -> None:
        set_module_state(self, state)

    def save_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Writes the states of the optimizer as arrays and JSON."""
        self._need(optimizer=True)
        if self._update_on_kvstore:
            self._store.save_optimizer_states(fname)
            return
        self._own_updater.save(fname)

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Reads what save_optimizer_states wrote. Raises MXNetError for pickles."""
        self._need(optimizer=True)
        if self._update_on_kvstore:
            self._store.load_optimizer_states(fname)
            return
        self._own_updater.load(fname, "load_optimizer_states")

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        self._need(params=False)
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        self._need(params=False)
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        self._need(params=False)
        return self._group.get_output_shapes()

    # ---- parameters ------------------------------------------------------------------------------

    def get_params(self) -> tuple[dict, dict]:
        if not self.params_initialized:
            raise ModuleError("get_params: there are none\n  fix: call init_params() before")
        if self._params_dirty:
            self._sync_params_from_devices()
        return self._arg_params, self._aux_params

    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """See BaseModule.init_params. Raises MissingParameter for one that has no value."""
        if self._keeps_params("init_params", force_init):
            return
        self._need(params=False)
        attributes = self._symbol.attr_dict()
        with pause():
            for own, given in ((self._arg_params, arg_params), (self._aux_params, aux_params)):
                for name, array in sorted(own.items()):
                    if given is not None and name in given:
                        if given[name] is not array:
                            _copy_named(name, given[name], array)
                        continue
                    if given is not None and not allow_missing:
                        raise MissingParameter(
                            f"{name} is not presented\n  fix: allow_missing=True, to initialize it"
                        )
                    if initializer is not None:
                        initializer(InitDesc(name, attributes.get(name)), array)
                    elif given is None:
                        raise MissingParameter(f"{name} has neither a value nor an initializer")
        self.params_initialized, self._params_dirty = True, False
        self._group.set_params(self._arg_params, self._aux_params, allow_extra=allow_extra)
        self._update_store(self._arg_params)

    def _update_store(self, arg_params) -> None:
        """A store that updates the weights continues from the values that were set."""
        if self._update_on_kvstore and isinstance(self._kvstore, KVStore):
            for name, value in arg_params.items():
                if value.stype == "default" and name in self._kvstore:
                    self._kvstore._set(name, value)

    def set_params(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        if not allow_missing:
            super().set_params(arg_params, aux_params, False, force_init, allow_extra)
            return
        if self._keeps_params("set_params", force_init):
            return
        self._group.set_params(arg_params, aux_params, allow_extra=allow_extra)
        self._update_store(arg_params or {})
        self._params_dirty = self.params_initialized = True

    def _sync_params_from_devices(self) -> None:
        """Fetches the parameters from the devices, or the sparse ones from the store."""
        self._group.get_params(self._arg_params, self._aux_params)
        if self._kvstore and self._update_on_kvstore:
            for name, array in sorted(self._arg_params.items()):
                if array.stype == "row_sparse":
                    rows = functions.arange(0, array.shape[0], dtype="int64")
                    self._kvstore.row_sparse_pull(name, array, row_ids=rows)
        self._params_dirty = False

    # ---- binding ---------------------------------------------------------------------------------

    def _reset_bind(self) -> None:
        self.binded = False
        self._exec_group: DataParallelExecutorGroup | None = None
        self._data_shapes: list[DataDesc] | None = None
        self._label_shapes: list[DataDesc] | None = None

    @property
    def _group(self) -> DataParallelExecutorGroup:
        """The executors. Raises ModuleError before bind."""
        self._need(params=False)
        assert self._exec_group is not None
        return self._exec_group

    def bind(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: str = "write",
    ) -> None:
        if force_rebind:
            if self._params_dirty:
                self._sync_params_from_devices()
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise ModuleError("bind: inputs_need_grad needs for_training=True")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._grad_req = grad_req
        self._data_shapes, self._label_shapes = parse_data_desc(
            self.data_names, self.label_names, data_shapes, label_shapes
        )
        shared_group = None
        if shared_module is not None:
            shared_module._need()
            shared_group = shared_module._group
        self._exec_group = DataParallelExecutorGroup(
            self._symbol,
            self._context,
            self._work_load_list,
            self._data_shapes,
            self._label_shapes,
            self._param_names,
            for_training,
            inputs_need_grad,
            shared_group,
            logger=self.logger,
            fixed_param_names=self._fixed_param_names,
            grad_req=grad_req,
            group2ctxs=self._group2ctxs,
            state_names=self._state_names,
            recompute=self._recompute,
        )
        self.binded = True
        if shared_module is not None:
            self.params_initialized = True
            self._arg_params = shared_module._arg_params
            self._aux_params = shared_module._aux_params
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)
        elif self.params_initialized:
            self._group.set_params(self._arg_params, self._aux_params)
        else:
            group = self._group
            self._arg_params = _like(self._param_names, group.param_arrays)
            self._aux_params = _like(self._aux_names, group.aux_arrays)

    def reshape(
        self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None
    ) -> None:
        """Switches to other input shapes; parameters and optimizer are kept."""
        self._need(params=False)
        self._data_shapes, self._label_shapes = parse_data_desc(
            self.data_names, self.label_names, data_shapes, label_shapes
        )
        self._group.reshape(self._data_shapes, self._label_shapes)

    # ---- the optimizer ---------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Chooses the store and the optimizer.

        Args:
            kvstore: a store, its name, or None; a name makes none for a single device.
            optimizer: name or Optimizer. optimizer_params: its parameters, pairs or a dict;
                rescale_grad is 1 / batch size unless given.
        """
        self._need()
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        if self._params_dirty:
            self._sync_params_from_devices()
        store, on_store = choose_store(kvstore, len(self._context), self._arg_params)
        group = self._group
        batch_size = group.batch_size or 1
        batch_size *= n_summed(store)
        n = 1 if on_store else len(self._context)
        names = {i * n + k: name for i, name in enumerate(group.param_names) for k in range(n)}
        self._optimizer = self._made_optimizer(optimizer, optimizer_params, names, 1.0 / batch_size)
        self._kvstore, self._update_on_kvstore = store, on_store
        self._updater = None if on_store else opt.get_updater(self._optimizer, 0)
        if store is not None:
            if self._compression_params:
                store.set_gradient_compression(self._compression_params)
            if on_store:
                store.set_optimizer(self._optimizer)
            fill_store(store, group.param_arrays, self._arg_params, group.param_names, on_store)
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def _made_optimizer(self, optimizer, params, names: dict[int, str], rescale_grad: float):
        if isinstance(optimizer, str):
            params = {"rescale_grad": rescale_grad} | dict(params)
            return opt.create(optimizer, sym=self.symbol, param_idx2name=names, **params)
        if not isinstance(optimizer, opt.Optimizer):
            raise ModuleError(f"optimizer must be a name or an Optimizer, got {optimizer!r}")
        if optimizer.rescale_grad != rescale_grad:
            warnings.warn(
                "Optimizer created manually outside Module but rescale_grad is not normalized to"
                f" 1.0/batch_size/num_workers ({optimizer.rescale_grad} vs. {rescale_grad}). Is"
                " this intended?",
                stacklevel=3,
            )
        if not optimizer.idx2name:
            optimizer.idx2name = dict(names)
        return optimizer

    def borrow_optimizer(self, shared_module: Any) -> None:
        """Uses the optimizer and the store of another module."""
        shared_module._need(optimizer=True)
        self._optimizer, self._kvstore = shared_module._optimizer, shared_module._kvstore
        self._update_on_kvstore = shared_module._update_on_kvstore
        self._updater = shared_module._updater
        self.optimizer_initialized = True

    def update(self) -> None:
        self._need(optimizer=True)
        group = self._group
        if not group.for_training:
            raise ModuleError("re-bind with for_training=True to run update")
        self._params_dirty = True
        if self._update_on_kvstore:
            update_on_store(group.param_arrays, group.grad_arrays, self._kvstore, group.param_names)
        else:
            update_here(
                group.param_arrays,
                group.grad_arrays,
                self._updater,
                len(self._context),
                self._kvstore,
                group.param_names,
            )

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Computes the outputs of a batch, or of a list of batches, one for each device. A batch of
        other shapes reshapes the module."""
        self._need()
        first = data_batch[0] if isinstance(data_batch, list) else data_batch
        if isinstance(data_batch, list):
            for b in data_batch:
                if [x.shape for x in b.data] != [x.shape for x in first.data]:
                    raise ModuleError("All data batches in a list need to have the same shape")
        n = len(data_batch) if isinstance(data_batch, list) else 1
        shapes = [(n * x.shape[0], *x.shape[1:]) if n > 1 else x.shape for x in first.data]
        if shapes != [tuple(d.shape) for d in self._group.data_shapes]:
            self._follow(first, shapes, n)
        self._group.forward(data_batch, is_train)

    def _follow(self, batch, shapes, n: int) -> None:
        """Reshapes the module to fit a batch."""
        data = n == 1 and getattr(batch, "provide_data", None)
        data = data or [
            DataDesc(d.name, shape, d.dtype, d.layout)
            for d, shape in zip(self._group.data_shapes, shapes)
        ]
        labels = n == 1 and getattr(batch, "provide_label", None)
        if not labels and getattr(batch, "label", None):
            labels = [
                DataDesc(d.name, (n * x.shape[0], *x.shape[1:]), d.dtype, d.layout)
                for d, x in zip(self._label_shapes or [], batch.label)
            ]
        if not labels and self._label_shapes:  # a prediction without labels
            labels = self._labels_for(data)
        self.reshape(data, labels or None)

    def _labels_for(self, data) -> list[DataDesc]:
        """Label descriptions of the batch size that data has."""
        axis = DataDesc.get_batch_axis(getattr(data[0], "layout", "NCHW"))
        size = data[0][1][axis]
        return [
            DataDesc(
                d.name,
                tuple(
                    size if k == DataDesc.get_batch_axis(d.layout) else m
                    for k, m in enumerate(d.shape)
                ),
                d.dtype,
                d.layout,
            )
            for d in self._label_shapes or ()
        ]

    def backward(self, out_grads: Any = None) -> None:
        self._need()
        self._group.backward(out_grads=out_grads)

    def get_outputs(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._group.get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._group.get_input_grads(merge_multi_context=merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._group.get_states(merge_multi_context=merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        self._need()
        self._group.set_states(states, value)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._group.update_metric(eval_metric, labels, pre_sliced)

    def executors(self, every: bool = False) -> list[Executor]:
        return self._group.every_executor() if every else list(self._group.execs)

    def install_monitor(self, mon: Any) -> None:
        self._need(params=False)
        self._group.install_monitor(mon)

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[..., Any] | None = None) -> None:
        """Fetches the rows of row_sparse parameters that the next batch needs."""
        self._need(params=False)
        if sparse_row_id_fn is None:
            return
        if self._kvstore is None or not self._update_on_kvstore:
            warnings.warn(
                "Parameters are not updated in the KVStore. No need to call sparse_row_id_fn.",
                stacklevel=2,
            )
            return
        for name, rows in sparse_row_id_fn(data_batch).items():
            i = self._group.param_names.index(name)
            arrays = self._group.param_arrays[i]
            if arrays[0].stype != "row_sparse":
                warnings.warn(
                    f"{name}.stype is not 'row_sparse'. No need to perform row_sparse_pull.",
                    stacklevel=2,
                )
            else:
                self._kvstore.row_sparse_pull(name, arrays, row_ids=rows, priority=-i)


def _like(names, arrays) -> dict:
    """Zeros on cpu(0) for each parameter. arrays: a list per parameter."""
    return {
        name: functions.zeros(parts[0].shape, dtype=parts[0]._spec.dtype, stype=parts[0].stype)
        for name, parts in zip(names, arrays)
    }


def _copy_named(name: str, value, array) -> None:
    if value.shape != array.shape:
        raise ModuleError(f"init_params: {name} must have shape {array.shape}, got {value.shape}")
    copy_into(value, array)
