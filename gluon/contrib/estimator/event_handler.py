"""Event handlers of the training loop: stopping, metrics, validation, logs, gradient steps."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from ....engine.error import InvalidValue
from ....training.metric import CompositeEvalMetric, EvalMetric
from ....training.metric import Loss as LossMetric
from ....training.metric.over_ranks import combine
from .checkpoint import CheckpointHandler
from .event import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    TrainBegin,
    TrainEnd,
    better,
    check_metrics,
    worst,
)

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "EventHandler",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Ends the training after the estimator's number of epochs or batches."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None):
        self.max_epoch, self.max_batch = max_epoch, max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch
        self.current_batch = self.current_epoch = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        self.current_batch += 1
        self.stop_training |= self.current_batch == self.max_batch
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        self.current_epoch += 1
        self.stop_training |= self.current_epoch == self.max_epoch
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd, EpochEnd):
    """Resets metrics before an epoch and updates them after each batch; gluon metrics of class
    metric.Loss take the losses, all others labels and predictions. At the end of an epoch they
    become those of all ranks that train together."""

    def __init__(self, metrics: Any, priority: int = -1000):
        self.metrics, self.priority = check_metrics(metrics), priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            if isinstance(metric, LossMetric):
                metric.update(0, kwargs["loss"])
            else:
                metric.update(kwargs["label"], kwargs["pred"])

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        combine(self.metrics, estimator.trainer._ranks)


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Evaluates on validation data every so many epochs or batches.

    Args:
        val_data: DataLoader. eval_fn: called with val_data=, batch_axis=, event_handlers=; usually
            `estimator.evaluate`.
        epoch_period, batch_period: epochs, batches between evaluations; None for never.
        event_handlers: handlers of the evaluation.
    """

    kept = ("current_batch", "current_epoch")

    def __init__(
        self,
        val_data: Any,
        eval_fn: Any,
        epoch_period: int = 1,
        batch_period: int | None = None,
        priority: int = -1000,
        event_handlers: Any = None,
    ):
        self.val_data, self.eval_fn = val_data, eval_fn
        self.epoch_period, self.batch_period = epoch_period, batch_period
        self.current_batch = self.current_epoch = 0
        self.priority, self.event_handlers = priority, event_handlers

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0

    def _evaluate(self, estimator, count, period):
        if period and count % period == 0:
            self.eval_fn(
                val_data=self.val_data,
                batch_axis=estimator.batch_axis,
                event_handlers=self.event_handlers,
            )

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        self._evaluate(estimator, self.current_batch, self.batch_period)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        self._evaluate(estimator, self.current_epoch, self.epoch_period)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Writes metrics and times (seconds) to the estimator's logger.

    Args:
        log_interval: "epoch", or the number of batches between lines. Reading the metrics for a
            line waits for the engine.
        metrics: what is logged.
        priority: after all others by default, so that it sees their results.
    """

    kept = ("batch_index", "current_epoch", "processed_samples", "log_interval_time")

    def __init__(
        self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = float("inf")
    ):
        if not isinstance(log_interval, int) and log_interval != "epoch":
            raise InvalidValue(
                f"log_interval must be either an integer or string 'epoch', got {log_interval!r}"
            )
        self.metrics, self.priority = check_metrics(metrics), priority
        self.log_interval, self.log_interval_time = log_interval, 0.0
        self.batch_index = self.current_epoch = self.processed_samples = 0

    def _log(self, estimator, head: str) -> None:
        values = [pair for metric in self.metrics for pair in metric.get_name_value()]
        text = head + ", ".join(f"{name}: {value:.4f}" for name, value in values)
        estimator.logger.info(text.rstrip(", "))

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.train_start = time.time()
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            type(estimator.trainer.optimizer).__name__,
            estimator.trainer.learning_rate,
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)
        self.current_epoch = self.batch_index = self.processed_samples = 0
        self.log_interval_time = 0.0

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.train_start
        self._log(
            estimator,
            f"Train finished using total {int(seconds)}s with {self.current_epoch} epochs. ",
        )

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.log_interval != "epoch":
            self.batch_start = time.time()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.log_interval_time += time.time() - self.batch_start
            self.processed_samples += kwargs["batch"][0].shape[0]
            if self.batch_index % self.log_interval == 0:
                self._log(
                    estimator,
                    f"[Epoch {self.current_epoch}][Batch {self.batch_index}]"
                    f"[Samples {self.processed_samples}] "
                    f"time/interval: {self.log_interval_time:.3f}s ",
                )
                self.log_interval_time = 0.0
        self.batch_index += 1

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.epoch_start = time.time()
        if any("training" in metric.name for metric in self.metrics):
            estimator.logger.info(
                "[Epoch %d] Begin, current learning rate: %.4f",
                self.current_epoch,
                estimator.trainer.learning_rate,
            )
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.epoch_start
        self._log(estimator, f"[Epoch {self.current_epoch}] Finished in {seconds:.3f}s, ")
        self.current_epoch += 1
        self.batch_index = 0


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Ends the training when a metric has not improved for `patience` epochs.

    Args:
        monitor: one of the estimator's train_metrics or val_metrics.
        min_delta: the minimum improvement, in units of the metric.
        mode: "min", "max", or "auto": max for accuracy and F1, min for the rest.
        baseline: the value to improve on; None: that of the first epoch.
    """

    kept = ("wait", "stopped_epoch", "current_epoch", "stop_training", "best")

    def __init__(
        self,
        monitor: Any,
        min_delta: int = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: Any = None,
    ):
        if not isinstance(monitor, EvalMetric):
            raise InvalidValue(
                "EarlyStoppingHandler: monitor must be one of the metric objects from"
                f" estimator.train_metrics and estimator.val_metrics, got {monitor!r}"
            )
        if isinstance(monitor, CompositeEvalMetric):
            raise InvalidValue(
                "CompositeEvalMetric is not supported for EarlyStoppingHandler, please specify a"
                " simple metric instead."
            )
        self.monitor, self.baseline, self.patience = monitor, baseline, patience
        self.monitor_op = better(mode, monitor, "EarlyStopping")
        self.min_delta = abs(min_delta) if self.monitor_op is np.greater else -abs(min_delta)
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        self.best = worst(self.monitor_op) if self.baseline is None else self.baseline

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        name, value = self.monitor.get()
        if np.isnan(value):
            warnings.warn(
                f"{name} is not updated, make sure you pass one of the metric objects from"
                " estimator.train_metrics and estimator.val_metrics as monitor.",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self.monitor_op(value - self.min_delta, self.best):
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch, self.stop_training = self.current_epoch, True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.stop_training:
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHanlder: early stopping due to %s not improving",
                self.stopped_epoch,
                self.monitor.get()[0],
            )


class GradientUpdateHandler(BatchEnd):
    """Steps the trainer after each batch, before all other handlers; the batch size is the losses'
    size, times the number of ranks whose gradients are summed."""

    def __init__(self, priority: int = -2000):
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        loss = kwargs["loss"]
        losses = loss if isinstance(loss, (list, tuple)) else [loss]
        trainer = estimator.trainer
        trainer.step(trainer._n_summed * sum(part.shape[0] for part in losses))
