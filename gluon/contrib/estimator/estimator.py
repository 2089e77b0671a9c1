"""Estimator: the training loop as an object; event handlers do everything besides processing a
batch."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ....dist import is_main
from ....engine import Context, cpu, gpu, num_gpus
from ....engine.error import InvalidValue
from ....ndarray import random
from ....ndarray.saved_state import copied, merged, restore, saved
from ....training import initializer as init
from ....training.metric import Accuracy, EvalMetric
from ....training.metric import Loss as LossMetric
from ...block import Block
from ...data.dataloader import DataLoader
from ...loss import Loss, SoftmaxCrossEntropyLoss
from ...trainer import Trainer
from .batch_processor import BatchProcessor
from .event import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    TrainBegin,
    TrainEnd,
    check_event_handlers,
    check_metrics,
)
from .event_handler import (
    CheckpointHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    ValidationHandler,
)

EVENTS = (TrainBegin, EpochBegin, BatchBegin, BatchEnd, EpochEnd, TrainEnd)


class Estimator:
    """Trains and evaluates a network.

    Args:
        net: Block. loss: gluon Loss.
        train_metrics, val_metrics: metrics of training and of validation; by default the mean loss,
            and accuracy if the loss is a softmax cross entropy. Their names get the prefixes
            "training " and "validation ".
        initializer: for parameters that are not initialized yet.
        trainer: Trainer; by default SGD with rate 0.001.
        context: device or list of devices; by default the first GPU, else the CPU.
        val_net, val_loss: network and loss for evaluation, if different.
        batch_processor: BatchProcessor, or any object with its fit_batch and evaluate_batch.

    `logger` takes all messages of the estimator and its handlers; it writes to stdout.

    >>> net = gluon.nn.Dense(2)
    >>> data = gluon.data.ArrayDataset(nd.ones((8, 3)), nd.zeros((8,)))
    >>> net.initialize()
    >>> est = gluon.contrib.estimator.Estimator(
    ...     net, gluon.loss.SoftmaxCrossEntropyLoss(),
    ...     trainer=gluon.Trainer(net.collect_params(), "adam"))
    >>> est.logger.handlers.clear()
    >>> est.fit(gluon.data.DataLoader(data, batch_size=4), epochs=3)
    >>> [m.name for m in est.train_metrics]
    ['training accuracy', 'training softmaxcrossentropyloss']
    """

    logger: logging.Logger | None = None

    def __init__(
        self,
        net: Any,
        loss: Any,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Any = None,
        context: Any = None,
        val_net: Any = None,
        val_loss: Any = None,
        batch_processor: Any = None,
    ):
        _check_net(net)
        _check_net(net if val_net is None else val_net)
        self.net, self.val_net = net, net if val_net is None else val_net
        self.loss = _checked_loss(loss)
        self.val_loss = self.loss if val_loss is None else _checked_loss(val_loss)
        self._train_metrics = list(check_metrics(train_metrics))
        self._val_metrics = list(check_metrics(val_metrics))
        self._add_default_training_metrics()
        self._add_validation_metrics()
        self.logger = logging.Logger(name="Estimator", level=logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        if not is_main():
            self.logger.setLevel(logging.WARNING)
        self.context = _checked_context(context)
        self._initialize(initializer)
        self.trainer = self._checked_trainer(trainer)
        self.batch_processor = _checked_processor(batch_processor)
        self.max_epoch: int | None = None
        self.max_batch: int | None = None
        self.batch_axis = 0
        self.batches_per_epoch: int | None = None
        self.current_epoch = self.first_epoch = 0  # for resumed training too: from its beginning
        self._data: DataLoader | None = None
        self._handlers: list = []
        self._resumed: dict | None = None

    # Names with an underscore are MXNet's where estimators that derive from this one override them.

    def _add_default_training_metrics(self) -> None:
        """Adds default training metrics; prefixes distinguish them from validation metrics."""
        if not self._train_metrics:
            if isinstance(self.loss, SoftmaxCrossEntropyLoss):
                self._train_metrics = [Accuracy()]
            self._train_metrics.append(LossMetric(self.loss.name.rstrip("1234567890")))
        for metric in self._train_metrics:
            if not metric.name.startswith("training "):
                metric.name = f"training {metric.name}"

    def _add_validation_metrics(self) -> None:
        if not self._val_metrics:
            self._val_metrics = [copy.deepcopy(metric) for metric in self._train_metrics]
        for metric in self._val_metrics:
            if "training" in metric.name:
                metric.name = metric.name.replace("training", "validation")
            elif not metric.name.startswith("validation "):
                metric.name = f"validation {metric.name}"

    def _initialize(self, initializer) -> None:
        default = init.Uniform() if initializer is None else init.create(initializer)
        waiting = [
            p
            for p in self.net.collect_params().values()
            if p._data is None and not p._deferred_init
        ]
        for parameter in waiting:
            parameter.initialize(None, self.context, default)
        if initializer is not None and not waiting:
            warnings.warn(
                "Network already fully initialized, skipping initialization. You don't need to"
                " pass initializer if you already initialized your net. You can use"
                " net.initialize(init=your_initializer, force_reinit=True) to force"
                " re-initialize.",
                stacklevel=3,
            )

    def _checked_trainer(self, trainer) -> Trainer:
        if trainer is None:
            warnings.warn(
                "No trainer specified, default SGD optimizer with learning rate 0.001 is used.",
                stacklevel=3,
            )
            return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})
        if not isinstance(trainer, Trainer):
            raise InvalidValue(
                f"Trainer must be a Gluon Trainer instance, refer to gluon.Trainer: {trainer!r}"
            )
        return trainer

    @property
    def train_metrics(self) -> list[EvalMetric]:
        """Metrics of the training data."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        """Metrics of the validation data."""
        return self._val_metrics

    # ---- loops -----------------------------------------------------------------------------------

    def evaluate(self, val_data: Any, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Updates val_metrics over a DataLoader.

        event_handlers: called at epoch and batch events; a MetricHandler and a LoggingHandler are
            added if missing.
        """
        _check_loader(val_data)
        for metric in self.val_metrics:
            metric.reset()
        handlers = self._prepare_default_validation_handlers(event_handlers)
        _, epoch_begin, batch_begin, batch_end, epoch_end, _ = self._categorize_handlers(handlers)
        for handler in epoch_begin:
            handler.epoch_begin(self)
        for batch in val_data:
            for handler in batch_begin:
                handler.batch_begin(self, batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            for handler in batch_end:
                handler.batch_end(self, batch=batch, pred=pred, label=label, loss=loss)
        for handler in epoch_end:
            handler.epoch_end(self)

    def fit(
        self,
        train_data: Any,
        val_data: Any = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Trains on a DataLoader for a number of epochs or of batches, exactly one of which is
        given.

        event_handlers: one or several. Those for stopping, gradient steps, metrics, logs and, given
            val_data, validation are added if missing.
        Raises: ValueError for arguments that do not fit, or handlers with metrics that the
            estimator does not have.
        """
        _check_loader(train_data)
        if bool(epochs) == bool(batches):
            raise InvalidValue(
                "fit: give exactly one of epochs and batches, got"
                f" epochs={epochs} and batches={batches}"
            )
        self.max_epoch, self.max_batch, self.batch_axis = epochs, batches, batch_axis
        self.batches_per_epoch, self._data = len(train_data), train_data
        self.current_epoch = self.first_epoch = 0
        handlers = self._handlers = self._prepare_default_handlers(val_data, event_handlers)
        train_begin, epoch_begin, batch_begin, batch_end, epoch_end, train_end = (
            self._categorize_handlers(handlers)
        )
        # a checkpoint is written after all other handlers have counted the batch or the epoch
        batch_end, epoch_end = (sorted(h, key=_is_checkpoint) for h in (batch_end, epoch_end))
        resumed = self._begin(train_begin)
        if resumed is not None:
            self._restore(resumed)
            self.first_epoch = self.current_epoch
        while True:
            for handler in epoch_begin:
                handler.epoch_begin(self)
            n_batches = 0
            if resumed is not None:
                n_batches = train_data.given
                if n_batches:  # the epoch was already begun: metrics, random numbers
                    self._restore(resumed)
                resumed = self._resumed = None
            for batch in train_data:
                n_batches += 1
                for handler in batch_begin:
                    handler.batch_begin(self, batch=batch)
                _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
                # every handler is called, also after one that requests to stop
                if any(
                    [
                        handler.batch_end(self, batch=batch, pred=pred, label=label, loss=loss)
                        for handler in batch_end
                    ]
                ):
                    break
            if any([handler.epoch_end(self) for handler in epoch_end]):
                break
            self.current_epoch += 1
            if not n_batches and batches:
                raise InvalidValue(
                    "fit: train_data has no batches, so the number of batches is never reached"
                )
        for handler in train_end:
            handler.train_end(self)

    # ---- checkpoints -----------------------------------------------------------------------------

    def _begin(self, handlers: Sequence[TrainBegin]) -> dict | None:
        """Begins training. Returns the state of the run to resume, if a handler found one."""
        self._resumed = None
        for handler in handlers:
            handler.train_begin(self)
        return self._resumed

    def state_dict(self) -> dict:
        """The state of `fit` besides the parameters, as plain data. Called by
        handlers at the end of a batch or an epoch."""
        data = None if self._data is None else self._data.state_dict()
        return {
            "trainer": saved(self.trainer),
            "data": data,
            # at the end of an epoch the loader is between passes
            "epoch": self.current_epoch + (data is not None and data["pass"] is None),
            "metrics": copied([*self.train_metrics, *self.val_metrics]),
            "handlers": [saved(h) for h in self._handlers if h.kept],
            "streams": random.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continues from state_dict; for handlers, at train_begin. All but the trainer is restored
        after every handler's train_begin."""
        restore(self.trainer, state["trainer"], "Estimator: trainer")
        self._resumed = state

    def _restore(self, state: dict) -> None:
        waiting = list(state["handlers"])
        for handler in self._handlers:
            found = next((s for s in waiting if s.kind == type(handler).__name__), None)
            if found is not None and handler.kept:
                waiting.remove(found)
                restore(handler, copied(found), f"Estimator: {found.kind}")
        metrics = [*self.train_metrics, *self.val_metrics]
        merged(metrics, copied(state["metrics"]), "Estimator: metrics")
        if self._data is not None and state["data"] is not None:
            self._data.load_state_dict(state["data"])
        self.current_epoch = state["epoch"]
        random.set_state(state["streams"])

    # ---- handlers --------------------------------------------------------------------------------

    def _prepare_default_handlers(self, val_data, event_handlers) -> list:
        handlers = check_event_handlers(event_handlers)
        added: list = [StoppingHandler(self.max_epoch, self.max_batch)]
        if not _has(handlers, GradientUpdateHandler):
            added.append(GradientUpdateHandler())
        if not _has(handlers, MetricHandler):
            added.append(MetricHandler(metrics=self.train_metrics))
        if val_data and not _has(handlers, ValidationHandler):
            added.append(ValidationHandler(val_data=val_data, eval_fn=self.evaluate))
        if not _has(handlers, LoggingHandler):
            added.append(LoggingHandler(metrics=self.train_metrics))
        return _sorted(handlers, added, {*self.train_metrics, *self.val_metrics})

    def _prepare_default_validation_handlers(self, event_handlers) -> list:
        handlers = check_event_handlers(event_handlers)
        added: list = []
        if not _has(handlers, MetricHandler):
            added.append(MetricHandler(metrics=self.val_metrics))
        if not _has(handlers, LoggingHandler):
            logs = LoggingHandler(metrics=self.val_metrics)
            logs.current_epoch = self.current_epoch
            added.append(logs)
        return _sorted(handlers, added, set(self.val_metrics))

    @staticmethod
    def _categorize_handlers(event_handlers) -> tuple[list, ...]:
        """The handlers of each event, in the order of EVENTS."""
        return tuple([h for h in event_handlers if isinstance(h, event)] for event in EVENTS)


def _is_checkpoint(handler) -> bool:
    return isinstance(handler, CheckpointHandler)


def _has(handlers, kind) -> bool:
    return any(isinstance(handler, kind) for handler in handlers)


def _sorted(given: list, added: list, known: set) -> list:
    """All handlers by priority. Raises ValueError if user handlers and default handlers would use
    different metrics."""
    if given and added:
        for handler in given:
            for attribute, value in vars(handler).items():
                if "metric" not in attribute:
                    continue
                for metric in value if isinstance(value, (list, tuple)) else [value]:
                    if isinstance(metric, EvalMetric) and metric not in known:
                        raise InvalidValue(
                            f"Event handler {type(handler).__name__} refers to a metric instance"
                            f" {metric} outside of the known training and validation metrics."
                            "\n  fix: use the metrics from estimator.train_metrics and"
                            " estimator.val_metrics"
                        )
    return sorted([*given, *added], key=lambda handler: getattr(handler, "priority", 0))


def _check_loader(data) -> None:
    if not isinstance(data, DataLoader):
        raise InvalidValue(
            f"Estimator only support input as Gluon DataLoader, got {type(data).__name__}\n  fix:"
            " gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), batch_size)"
        )


def _check_net(net) -> None:
    if not isinstance(net, Block):
        raise InvalidValue(f"net must be a gluon Block, got {net!r}\n  fix: gluon.nn.Dense(10)")


def _checked_loss(loss) -> Loss:
    if not isinstance(loss, Loss):
        raise InvalidValue(f"loss must be a Loss, refer to gluon.loss.Loss: {loss!r}")
    return loss


def _checked_context(context) -> list[Context]:
    if not context:
        return [gpu(0)] if num_gpus() else [cpu()]
    contexts = [context] if isinstance(context, Context) else context
    if not isinstance(contexts, list) or not all(isinstance(c, Context) for c in contexts):
        raise InvalidValue(
            "context must be a Context or a list of Context, for example mx.cpu() or [mx.gpu(0),"
            f" mx.gpu(1)], refer to mxnet.Context: {context!r}"
        )
    for c in contexts:
        c.check()
    return contexts


def _checked_processor(processor):
    if processor is None:
        return BatchProcessor()
    for name in ("fit_batch", "evaluate_batch"):
        if not callable(getattr(processor, name, None)):
            raise InvalidValue(
                "Customized Batch Processor must contain fit_batch() and evaluate_batch() methods,"
                f" {type(processor).__name__} has no {name}"
            )
    return processor
