"""mx.model: checkpoints, and FeedForward, the model class that Module replaced."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data import io
from ..engine import Context, cpu
from ..engine.error import InvalidType, InvalidValue, compose
from ..ndarray import NDArray, functions
from ..symbol import Symbol
from ..symbol.executor import Executor
from ..training import metric
from ..training import optimizer as opt
from ..training.callback import BatchEndParam, LogValidationMetricsCallback, save_checkpoint
from ..training.initializer import InitDesc, Uniform
from ..training.kvstore.choose import choose_sparse_store as _create_sparse_kvstore
from ..training.kvstore.choose import choose_store as _create_kvstore
from ..training.model_params import load_checkpoint, load_params
from ..training.module.described import as_list, descriptions
from ..training.module.update import fill_store as _initialize_kvstore
from ..training.module.update import update_here as _update_params
from ..training.module.update import update_on_store as _update_params_on_kvstore
from ..training.optimizer import get_updater
from .executor_manager import DataParallelExecutorManager, _check_arguments, _load_data

__all__ = [
    "BatchEndParam",
    "FeedForward",
    "_create_kvstore",
    "_create_sparse_kvstore",
    "_initialize_kvstore",
    "_update_params",
    "_update_params_on_kvstore",
    "get_updater",
    "load_checkpoint",
    "load_params",
    "save_checkpoint",
]


class FeedForward:
    """A symbol with its parameters, trained by `fit` on arrays or iterators. Use Module in new
    code.

    Args:
        symbol: the Symbol, or a function from a bucket's key to one.
        ctx: a device, or several.
        num_epoch: epochs of fit. epoch_size: batches per epoch (default: all batches of the
            iterator).
        optimizer: name or Optimizer; kwargs: its parameters.
        numpy_batch_size: batch size for arrays.
        arg_params, aux_params: initial values. allow_extra_params: they may contain unknown names.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: Any = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),
        numpy_batch_size: int = 128,
        arg_params: Any = None,
        aux_params: Any = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ):
        warnings.warn(
            "mxnet.model.FeedForward has been deprecated. Please use mxnet.mod.Module instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        own = isinstance(symbol, Symbol)
        self.symbol: Any = symbol if own else None
        self.sym_gen: Callable[..., Symbol] | None = None if own else symbol
        self.arg_params, self.aux_params = arg_params, aux_params
        self.allow_extra_params = allow_extra_params
        self.argument_checked = False
        if self.sym_gen is None:
            self._check_arguments()
        self.ctx = [cpu()] if ctx is None else [ctx] if isinstance(ctx, Context) else list(ctx)
        self.num_epoch, self.epoch_size, self.begin_epoch = num_epoch, epoch_size, begin_epoch
        self.kwargs, self.optimizer, self.initializer = dict(kwargs), optimizer, initializer
        self.numpy_batch_size = numpy_batch_size
        self._pred_exec: Executor | None = None

    def _check_arguments(self) -> None:
        if self.argument_checked:
            return
        self.argument_checked = True
        _check_arguments(self.symbol)
        if self.allow_extra_params:
            for attribute, names in (
                ("arg_params", self.symbol.list_arguments()),
                ("aux_params", self.symbol.list_auxiliary_states()),
            ):
                given = getattr(self, attribute)
                if given:
                    setattr(self, attribute, {k: v for k, v in given.items() if k in names})

    # ---- iterators -------------------------------------------------------------------------------

    def _init_iter(self, X, y, is_train: bool):
        """An iterator over arrays, or the one given."""
        if not isinstance(X, (np.ndarray, NDArray)):
            if not isinstance(X, io.DataIter):
                raise InvalidType("X must be DataIter, NDArray or numpy.ndarray")
            return X
        if y is None:
            if is_train:
                raise InvalidValue("y must be specified when X is numpy.ndarray")
            y = np.zeros(X.shape[0])
        if not isinstance(y, (np.ndarray, NDArray)):
            raise InvalidType("y must be ndarray when X is numpy.ndarray")
        if X.shape[0] != y.shape[0]:
            raise InvalidValue(
                f"The numbers of data points and labels not equal: {X.shape[0]} and {y.shape[0]}"
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.reshape((-1,))
        if y.ndim != 1:
            raise InvalidValue("Label must be 1D or 2D (with 2nd dimension being 1)")
        size = min(X.shape[0], self.numpy_batch_size)
        if is_train:
            return io.NDArrayIter(X, y, size, shuffle=True, last_batch_handle="roll_over")
        return io.NDArrayIter(X, y, size)

    def _init_eval_iter(self, eval_data):
        if eval_data is None or isinstance(eval_data, io.DataIter):
            return eval_data
        if not isinstance(eval_data, (tuple, list)) or len(eval_data) != 2:
            raise InvalidType(
                "Eval data must be DataIter, or NDArray/numpy.ndarray/list pair (i.e. tuple/list"
                " of length 2)"
            )
        data, label = eval_data
        if data is None:
            raise InvalidValue("Eval data is NONE")
        if label is None and isinstance(data, io.DataIter):
            return data
        data, label = (np.array(x) if isinstance(x, list) else x for x in (data, label))
        return self._init_iter(data, label, is_train=True)

    # ---- parameters ------------------------------------------------------------------------------

    def _init_params(self, inputs, overwrite=False) -> tuple[list, list, list]:
        """Creates the parameters for inputs of given shapes; existing values are kept (unless
        overwrite). Returns names of arguments, parameters, auxiliary states."""
        inputs = descriptions(inputs)
        arg_names, aux_names = self.symbol.list_arguments(), self.symbol.list_auxiliary_states()
        shapes, _, aux_shapes = self.symbol.infer_shape(**{x.name: x.shape for x in inputs})
        types, _, aux_types = self.symbol.infer_type(**{x.name: x.dtype for x in inputs})
        if shapes is None or types is None:
            raise InvalidValue(f"the shapes {inputs} are not enough to infer all others")
        given = {x.name for x in inputs}
        found = []
        for names, all_shapes, all_types, known in (
            (arg_names, shapes, types, self.arg_params),
            (aux_names, aux_shapes, aux_types, self.aux_params),
        ):
            made = {
                n: functions.zeros(s, dtype=t)
                for n, s, t in zip(names, all_shapes, all_types)
                if n not in given
            }
            for name, array in made.items():
                if known and name in known and not overwrite:
                    array[:] = known[name]
                else:
                    self.initializer(InitDesc(name), array)
            found.append(made)
        self.arg_params, self.aux_params = found
        return arg_names, [n for n in arg_names if n not in given], aux_names

    # ---- prediction ------------------------------------------------------------------------------

    def _init_predictor(self, inputs) -> Executor:
        """The executor of predictions for these inputs."""
        shapes = {name: a.shape for name, a in self.arg_params.items()} | dict(inputs)
        types = {name: a.dtype for name, a in self.arg_params.items()}
        types |= {x.name: x.dtype for x in inputs}
        if self._pred_exec is not None:
            wanted, _, _ = self.symbol.infer_shape(**shapes)
            if wanted == [a.shape for a in self._pred_exec.arg_arrays]:
                return self._pred_exec
        known = set(self.symbol.list_arguments())
        self._pred_exec = executor = self.symbol.simple_bind(
            self.ctx[0],
            grad_req="null",
            type_dict=types,
            **{k: v for k, v in shapes.items() if k in known},
        )
        executor.copy_params_from(self.arg_params, self.aux_params)
        return executor

    def _predicted(self, X, num_batch, reset: bool):
        """Yields number, batch and outputs of batches after their forward."""
        if self.arg_params is None:
            raise InvalidValue(compose("the model has no parameters", fix="fit, or load"))
        if reset:
            X.reset()
        inputs = descriptions(X.provide_data)
        self._pred_exec = None  # the parameters may have changed
        executor = self._init_predictor(inputs)
        targets = [executor.arg_dict[x.name] for x in inputs]
        for i, batch in enumerate(X):
            if i == num_batch:
                return
            _load_data(batch, targets)
            yield i, batch, executor.forward(is_train=False)

    def predict(
        self, X: Any, num_batch: Any = None, return_data: bool = False, reset: bool = True
    ) -> Any:
        """Outputs for arrays or an iterator: a NumPy array, or a list of them.

        return_data: also the data and labels, (outputs, data, labels).
        """
        X = self._init_iter(X, None, is_train=False)
        columns: tuple[list, list, list] = ([], [], [])
        for _, batch, outputs in self._predicted(X, num_batch, reset):
            n = X.batch_size - batch.pad
            groups = (outputs, batch.data, batch.label)
            for column, arrays in zip(columns, groups[: 3 if return_data else 1]):
                column.append([a[0:n].asnumpy() for a in arrays])
        joined = [[np.concatenate(parts) for parts in zip(*column)] for column in columns]
        outputs, data, labels = (x[0] if len(x) == 1 else x for x in joined)
        return (outputs, data, labels) if return_data else outputs

    def score(
        self,
        X: Any,
        eval_metric: Any = "acc",
        num_batch: Any = None,
        batch_end_callback: Any = None,
        reset: bool = True,
    ) -> Any:
        """The metric's value over an iterator."""
        eval_metric = metric.create(eval_metric)
        X = self._init_iter(X, None, is_train=False)
        for i, batch, outputs in self._predicted(X, num_batch, reset):
            eval_metric.update(batch.label, outputs)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(0, i, eval_metric, locals()))
        return eval_metric.get()[1]

    # ---- training --------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: str = "local",
        logger: Any = None,
        work_load_list: Any = None,
        monitor: Any = None,
        eval_end_callback: Any = LogValidationMetricsCallback(),
        eval_batch_end_callback: Any = None,
    ) -> None:
        """Trains on arrays (X, y) or an iterator X, from begin_epoch to num_epoch."""
        logger = logger or logging
        data, eval_data = self._init_iter(X, y, is_train=True), self._init_eval_iter(eval_data)
        if self.sym_gen:
            self.symbol = self.sym_gen(data.default_bucket_key)
            self._check_arguments()
        arg_names, param_names, aux_names = self._init_params(
            [*data.provide_data, *data.provide_label]
        )
        eval_metric = metric.create(eval_metric)
        store, on_store = _create_kvstore(kvstore, len(self.ctx), self.arg_params)
        manager = DataParallelExecutorManager(
            self.symbol,
            self.ctx,
            data,
            arg_names,
            param_names,
            aux_names,
            work_load_list,
            logger,
            self.sym_gen,
        )
        if monitor:
            manager.install_monitor(monitor)
        manager.set_params(self.arg_params, self.aux_params)
        optimizer = self._optimizer(param_names, on_store, data.batch_size)
        updater = None if on_store else opt.get_updater(optimizer, 0)
        if store is not None:
            if on_store:
                store.set_optimizer(optimizer)
            _initialize_kvstore(store, manager.param_arrays, self.arg_params, param_names, on_store)

        def update():
            arrays = manager.param_arrays, manager.grad_arrays
            if on_store:
                _update_params_on_kvstore(*arrays, store, param_names)
            else:
                _update_params(*arrays, updater, len(self.ctx), store, param_names)

        data.reset()
        if self.num_epoch is None:
            raise InvalidValue("fit: num_epoch must be given")
        for epoch in range(self.begin_epoch, self.num_epoch):
            tic = time.time()
            eval_metric.reset()
            batches = self._epoch(epoch, data, logger)
            for nbatch, batch in enumerate(batches, 1):
                manager.load_data_batch(batch)
                if monitor is not None:
                    monitor.tic()
                manager.forward(is_train=True)
                manager.backward()
                update()
                if monitor is not None:
                    monitor.toc_print()
                manager.update_metric(eval_metric, batch.label)
                for callback in as_list(batch_end_callback):
                    callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            logger.info("Epoch[%d] Time cost=%.3f", epoch, time.time() - tic)
            if epoch_end_callback or epoch + 1 == self.num_epoch:
                manager.copy_to(self.arg_params, self.aux_params)
            for callback in as_list(epoch_end_callback):
                callback(epoch, self.symbol, self.arg_params, self.aux_params)
            if eval_data is not None:
                self._evaluate(
                    epoch,
                    manager,
                    eval_data,
                    eval_metric,
                    eval_batch_end_callback,
                    eval_end_callback,
                )

    def _optimizer(self, param_names, on_store: bool, batch_size: int):
        n = 1 if on_store else len(self.ctx)
        names = {i * n + k: name for i, name in enumerate(param_names) for k in range(n)}
        if not isinstance(self.optimizer, str):
            self.optimizer.idx2name = self.optimizer.idx2name or names
            return self.optimizer
        params = {"rescale_grad": 1.0 / batch_size} | self.kwargs
        return opt.create(self.optimizer, sym=self.symbol, param_idx2name=names, **params)

    def _epoch(self, epoch: int, data, logger):
        """The batches of an epoch: epoch_size of them, restarting the iterator as needed, or
        all."""
        count, empty = 0, 0
        while empty < 2:  # at its end the first time, without batches the second time
            empty += 1
            for batch in data:
                yield batch
                count, empty = count + 1, 0
                if count == self.epoch_size:
                    return
            logger.info("Epoch[%d] Resetting Data Iterator", epoch)
            data.reset()
            if self.epoch_size is None:
                return

    @staticmethod
    def _evaluate(epoch, manager, eval_data, eval_metric, batch_end_callback, end_callback) -> None:
        eval_metric.reset()
        eval_data.reset()
        count = 0
        for nbatch, batch in enumerate(eval_data):
            manager.load_data_batch(batch)
            manager.forward(is_train=False)
            manager.update_metric(eval_metric, batch.label)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            count += 1
        for callback in as_list(end_callback):
            callback(BatchEndParam(epoch, count, eval_metric, locals()))
        eval_data.reset()

    # ---- files -----------------------------------------------------------------------------------

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Writes prefix-symbol.json and prefix-EPOCH.params (default: num_epoch)."""
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise InvalidValue("save: epoch must be given, the model has no num_epoch")
        save_checkpoint(
            prefix,
            epoch,
            self.symbol,
            self.arg_params,
            self.aux_params,
            remove_amp_cast=remove_amp_cast,
        )

    @staticmethod
    def load(
        prefix: str, epoch: int, ctx: Context | Sequence[Context] | None = None, **kwargs: Any
    ) -> FeedForward:
        """A model from a checkpoint; fit continues after that epoch."""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        return FeedForward(
            symbol,
            ctx=ctx,
            arg_params=arg_params,
            aux_params=aux_params,
            begin_epoch=epoch,
            **kwargs,
        )

    @staticmethod
    def create(
        symbol: Any,
        X: Any,
        y: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: Any = None,
        optimizer: Any = "sgd",
        initializer: Any = Uniform(0.01),
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: str = "local",
        logger: Any = None,
        work_load_list: Any = None,
        eval_end_callback: Any = LogValidationMetricsCallback(),
        eval_batch_end_callback: Any = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Creates and trains a model."""
        model = FeedForward(
            symbol,
            ctx=ctx,
            num_epoch=num_epoch,
            epoch_size=epoch_size,
            optimizer=optimizer,
            initializer=initializer,
            **kwargs,
        )
        model.fit(
            X,
            y,
            eval_data=eval_data,
            eval_metric=eval_metric,
            epoch_end_callback=epoch_end_callback,
            batch_end_callback=batch_end_callback,
            kvstore=kvstore,
            logger=logger,
            work_load_list=work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return model
