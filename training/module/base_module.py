"""BaseModule: fit, score and predict, in terms of the methods that subclasses define."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np

from ...data.io import DataBatch, DataIter
from ...data.io.desc import need_iterator, position_of
from ...dist import Group, is_main
from ...engine import cpu
from ...engine.error import InvalidValue, MissingMethod
from ...graph.report import MemoryReport, ProgramReport, memory
from ...ndarray import NDArray, functions, serialization
from ...symbol.executor import Executor
from .. import metric
from ..callback import BatchEndParam
from ..initializer import Uniform
from ..metric.over_ranks import over_ranks
from ..model_params import split_names
from .described import ModuleError, as_list
from .progress import Progress


class BaseModule:
    """Base of modules. The order of calls: bind (allocates memory for given shapes), init_params,
    init_optimizer, then forward, backward and update for each batch; fit does all of this.

    Attributes: binded, params_initialized, optimizer_initialized, for_training, inputs_need_grad.
    """

    def __init__(self, logger: Any = logging):
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None
        self._total_exec_bytes = 0

    def _need(self, optimizer=False, params=True) -> None:
        """Raises ModuleError unless the module has reached that stage."""
        for done, call in (
            (self.binded, "bind(data_shapes=...)"),
            (self.params_initialized or not params, "init_params()"),
            (self.optimizer_initialized or not optimizer, "init_optimizer()"),
        ):
            if not done:
                raise ModuleError(f"{type(self).__name__}: not ready\n  fix: call {call} before")

    def _undefined(self, method: str) -> MissingMethod:
        return MissingMethod(f"{type(self).__name__} does not define {method}")

    # ---- loops -----------------------------------------------------------------------------------

    def forward_backward(self, data_batch: Any) -> None:
        """forward in training mode, then backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def _count_metric(self, eval_metric, batch) -> None:
        if isinstance(batch, list):
            self.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
        else:
            self.update_metric(eval_metric, batch.label)

    def _batches(self, eval_data, num_batch, sparse_row_id_fn):
        """(number, batch) of a prediction, after its forward."""
        for nbatch, batch in enumerate(eval_data):
            if nbatch == num_batch:
                return
            self.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
            self.forward(batch, is_train=False)
            yield nbatch, batch

    def score(
        self,
        eval_data: Any,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> list[tuple]:
        """The metric over an iterator's batches (num_batch of them): [(name, value)].

        Callbacks are called with a BatchEndParam.
        """
        self._need()
        if reset:
            eval_data.reset()
        eval_metric = metric.create(eval_metric)
        eval_metric.reset()
        count = 0
        for nbatch, eval_batch in self._batches(eval_data, num_batch, sparse_row_id_fn):
            self._count_metric(eval_metric, eval_batch)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            count += 1
        for callback in as_list(score_end_callback):
            callback(BatchEndParam(epoch, count, eval_metric, locals()))
        return eval_metric.get_name_value()

    def iter_predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> Iterator[Any]:
        """Yields (outputs without padding, number of the batch, batch)."""
        self._need()
        if reset:
            eval_data.reset()
        for nbatch, batch in self._batches(eval_data, num_batch, sparse_row_id_fn):
            yield _unpadded(self.get_outputs(), batch), nbatch, batch

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> Any:
        """Outputs for an iterator's batches, or for one array.

        Returns: merge_batches: one NDArray for each output (a list unless there is only one), all
            batches joined; else a list of the outputs of each batch.
        """
        self._need()
        if isinstance(eval_data, (NDArray, np.ndarray)):
            data = eval_data if isinstance(eval_data, NDArray) else functions.array(eval_data)
            self.forward(DataBatch([data]))
            return self.get_outputs()[0]
        if not isinstance(eval_data, DataIter):
            raise InvalidValue("eval_data must be of type NDArray or DataIter")
        if reset:
            eval_data.reset()
        found = [
            [out.copy() for out in _unpadded(self.get_outputs(), batch)]
            for _, batch in self._batches(eval_data, num_batch, sparse_row_id_fn)
        ]
        if not found or not merge_batches:
            return found
        if len({len(outputs) for outputs in found}) > 1:
            raise ModuleError(
                "Cannot merge batches, as num of outputs is not the same in mini-batches. Maybe"
                " bucketing is used?\n  fix: merge_batches=False"
            )
        merged = [functions.concatenate(list(arrays)) for arrays in zip(*found)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Any = "acc",
        epoch_end_callback: Any = None,
        batch_end_callback: Any = None,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        eval_end_callback: Any = None,
        eval_batch_end_callback: Any = None,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Any = None,
        monitor: Any = None,
        sparse_row_id_fn: Callable[..., Any] | None = None,
        checkpoint: Any = None,
        checkpoint_period: Any = None,
    ) -> None:
        """Trains over an iterator for num_epoch - begin_epoch epochs.

        Args:
            train_data, eval_data: DataIters. eval_metric, validation_metric: metrics or names.
            epoch_end_callback: called with (epoch, symbol, arg_params, aux_params); the other
                callbacks with a BatchEndParam. Each may be a list.
            kvstore, optimizer, optimizer_params: as init_optimizer takes them.
            initializer, arg_params, aux_params, allow_missing, force_init: as init_params.
            monitor: a Monitor that watches every batch.
            checkpoint: a file, or a Checkpoint with further parts. If the file exists, training
                resumes from it exactly; it is written after every epoch, and every
                checkpoint_period batches. plait's addition.
        Raises: ModuleError (AssertionError) without num_epoch.
        """
        if num_epoch is None:
            raise ModuleError("please specify number of epochs\n  fix: num_epoch=10")
        need_iterator("fit: train_data", train_data)
        self.bind(
            data_shapes=train_data.provide_data,
            label_shapes=train_data.provide_label,
            for_training=True,
            force_rebind=force_rebind,
        )
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(
            initializer=initializer,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
        )
        self.init_optimizer(kvstore=kvstore, optimizer=optimizer, optimizer_params=optimizer_params)
        eval_metric = metric.create(eval_metric)
        validation_metric = (
            eval_metric if validation_metric is None else metric.create(validation_metric)
        )
        kept = Progress(begin_epoch, checkpoint, checkpoint_period)
        parts = {"module": self, "train_data": train_data, "eval_metric": eval_metric}
        if position_of(eval_data) is not None:  # its shuffling continues too
            parts["eval_data"] = eval_data
        kept.restore(**parts)
        for epoch in range(kept.epoch, num_epoch):
            tic = time.time()
            if not kept.batch:
                eval_metric.reset()
                self._begin_epoch(epoch, train_data)
            values = self._train_epoch(
                epoch, train_data, eval_metric, batch_end_callback, monitor, sparse_row_id_fn, kept
            )
            log = self.logger.info if is_main() else _silent
            for name, value in values:
                log("Epoch[%d] Train-%s=%f", epoch, name, value)
            log("Epoch[%d] Time cost=%.3f", epoch, time.time() - tic)
            arg_params, aux_params = self.get_params()
            self.set_params(arg_params, aux_params)  # all devices continue with the same values
            for callback in as_list(epoch_end_callback):
                callback(epoch, self.symbol, arg_params, aux_params)
            if eval_data is not None:
                found = self.score(
                    eval_data,
                    validation_metric,
                    score_end_callback=eval_end_callback,
                    batch_end_callback=eval_batch_end_callback,
                    epoch=epoch,
                )
                if self._ranks is not None:
                    with over_ranks(validation_metric, self._ranks):
                        found = validation_metric.get_name_value()
                for name, value in found:
                    log("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()
            kept.save(epoch + 1, 0)

    def _begin_epoch(self, epoch: int, train_data) -> None:
        """Before an epoch of fit."""

    def _train_epoch(
        self, epoch, train_data, eval_metric, batch_end_callback, monitor, sparse_row_id_fn, kept
    ) -> list[tuple]:
        """One epoch, or the rest of it; returns the metric's values over it. The next batch is
        fetched while the engine works on this one, unless a checkpoint is due in between."""
        batches, nbatch = iter(train_data), kept.batch
        data_batch = next(batches, None)
        if data_batch is None:
            if not nbatch:
                raise ModuleError("fit: train_data has no batches\n  fix: train_data.reset()")
            return eval_metric.get_global_name_value()
        values: list[tuple] = []
        while data_batch is not None:
            if monitor is not None:
                monitor.tic()
            self.forward_backward(data_batch)
            self.update()
            self._count_metric(eval_metric, data_batch)
            saves = kept.is_due(nbatch + 1)
            following = None if saves else next(batches, None)
            if following is not None:
                self.prepare(following, sparse_row_id_fn=sparse_row_id_fn)
            if monitor is not None:
                monitor.toc_print()
            if following is None:  # a callback may reset the metric
                with over_ranks(eval_metric, self._ranks):
                    values = eval_metric.get_global_name_value()
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            if saves:
                kept.save(epoch, nbatch + 1)
                following = next(batches, None)
                if following is not None:
                    self.prepare(following, sparse_row_id_fn=sparse_row_id_fn)
            data_batch, nbatch = following, nbatch + 1
        return values

    @property
    def _ranks(self) -> Group | None:
        """The ranks that train together, if there are several."""
        return None

    # ---- parameters ------------------------------------------------------------------------------

    def get_params(self) -> tuple[dict, dict]:
        """(arg_params, aux_params): dicts of NDArrays on cpu."""
        raise self._undefined("get_params")

    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Gives parameters their first values: those of arg_params and aux_params, else (where
        allow_missing) the initializer's.

        force_init: also when they have values. allow_extra: names that the module does not have are
            ignored.
        """
        raise self._undefined("init_params")

    def _keeps_params(self, method: str, force_init: bool) -> bool:
        """Do the parameters have values that this call must not replace? Then warns."""
        if force_init or not self.params_initialized:
            return False
        warnings.warn(
            f"Parameters already initialized and force_init=False. {method} call ignored.",
            stacklevel=3,
        )
        return True

    def set_params(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Sets the values of parameters; see init_params."""
        self.init_params(
            initializer=None,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )

    def save_params(self, fname: str | PathLike[str]) -> None:
        """Writes the parameters to a file of arrays named "arg:..." and "aux:..."."""
        arg_params, aux_params = self.get_params()
        named = {f"arg:{k}": v.as_in_context(cpu()) for k, v in arg_params.items()}
        named |= {f"aux:{k}": v.as_in_context(cpu()) for k, v in aux_params.items()}
        serialization.save(fname, named)

    def load_params(self, fname: str | PathLike[str]) -> None:
        """Sets the parameters from a file that save_params wrote."""
        self.set_params(*split_names(serialization.load(fname), str(fname)))

    # ---- what subclasses define ------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""
        raise self._undefined("data_names")

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        raise self._undefined("output_names")

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        raise self._undefined("data_shapes")

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels, or None."""
        raise self._undefined("label_shapes")

    @property
    def output_shapes(self) -> Any:
        """[(name, shape)] of the outputs."""
        raise self._undefined("output_shapes")

    @property
    def symbol(self) -> Any:
        """The Symbol, or None."""
        return self._symbol

    def state_dict(self) -> dict:
        """Parameters, optimizer and counts as plain data, for a Checkpoint."""
        raise self._undefined("state_dict")

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict."""
        raise self._undefined("load_state_dict")

    def get_states(self, merge_multi_context: bool = True) -> list:
        """The states carried from batch to batch: for each a list with one array per device."""
        self._need()
        if merge_multi_context:
            raise ModuleError("merge_multi_context=True is not supported for get_states yet.")
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the states from arrays, or all of them to a number."""
        self._need()
        if states or value:
            raise ModuleError(f"{type(self).__name__} has no states")

    # ---- reports ---------------------------------------------------------------------------------

    def executors(self, every: bool = False) -> list[Executor]:
        """The executors in use. every: also those of other input shapes and buckets."""
        raise self._undefined("executors")

    def report(self) -> ProgramReport:
        """What the programs of all executors are and cost: prints as a table with a line for each,
        as HybridBlock.hybrid_report does."""
        reports = [e.report() for e in self.executors(every=True)]
        rows = [row for report in reports for row in report.rows]
        return ProgramReport(type(self).__name__, rows, reports[0].why if reports else "")

    def memory_report(self) -> MemoryReport:
        """What the memory of a forward, and of a training step, of the executors in use is for, in
        bytes; see HybridBlock.memory_report. Compiles for it, but runs nothing."""
        pairs = [e.signatures() for e in self.executors()]
        called, trained = [a for a, _ in pairs], [b for _, b in pairs if b is not None]
        return MemoryReport(type(self).__name__, memory(called), memory(trained))

    def install_monitor(self, mon: Any) -> None:
        """Lets a Monitor see every operator's outputs."""
        raise self._undefined("install_monitor")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[..., Any] | None = None) -> None:
        """Called with the next batch while this one is computed.

        sparse_row_id_fn: from a batch to {name: row ids} of row_sparse parameters to fetch.
        """
        if sparse_row_id_fn is not None:
            warnings.warn("sparse_row_id_fn is not invoked for BaseModule.", stacklevel=2)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Computes the outputs of a batch. is_train: default: what it was bound for."""
        raise self._undefined("forward")

    def backward(self, out_grads: Any = None) -> None:
        """Computes gradients. out_grads: gradients of the outputs that are not losses."""
        raise self._undefined("backward")

    def get_outputs(self, merge_multi_context: bool = True) -> list:
        """The outputs of the last forward: NDArrays; or, not merged, a list per device of each."""
        raise self._undefined("get_outputs")

    def get_input_grads(self, merge_multi_context: bool = True) -> list:
        """The gradients of the inputs, as get_outputs gives outputs."""
        raise self._undefined("get_input_grads")

    def update(self) -> None:
        """Updates the parameters by their gradients."""
        raise self._undefined("update")

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with the last outputs and these labels. pre_sliced: labels has one list
        per device."""
        raise self._undefined("update_metric")

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
        """Allocates memory for inputs of given shapes.

        Args:
            data_shapes, label_shapes: DataDescs or pairs (name, shape).
            inputs_need_grad: get_input_grads will be called.
            shared_module: a bound module whose parameters this one uses.
            grad_req: "write", "add" or "null", for all, as a list, or a dict by name.
        """
        raise self._undefined("bind")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Chooses the store and the optimizer; see Module.init_optimizer."""
        raise self._undefined("init_optimizer")


def _silent(*_: Any) -> None:
    """The log of ranks other than the first."""


def _unpadded(outputs: list[NDArray], batch) -> list[NDArray]:
    """Outputs without the padding samples."""
    pad = getattr(batch, "pad", None) or 0
    return [out[0 : out.shape[0] - pad] if pad else out for out in outputs]
