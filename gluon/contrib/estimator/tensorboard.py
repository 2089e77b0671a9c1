"""TensorBoardHandler: metrics and learning rate as TensorBoard curves."""

from __future__ import annotations

from typing import Any

from ....training.summary_writer import summary_writer
from .event import BatchEnd, EpochEnd, TrainBegin, TrainEnd, check_metrics


class TensorBoardHandler(TrainBegin, BatchEnd, EpochEnd, TrainEnd):
    """Writes metrics at the end of each epoch (by epoch), and also every `batch_period` batches (by
    batch, under `batch/`).

    Args:
        logging_dir: folder for the event files.
        metrics: what is written; None takes the estimator's, validation included.
        batch_period: batches between values; None for none. Reading metrics waits for the engine.
        writer: anything with add_scalar(tag, value, global_step) and close(), instead of a folder;
            it is not closed.
    """

    kept = ("current_epoch", "current_batch")

    def __init__(
        self,
        logging_dir: str | None = None,
        metrics: Any = None,
        batch_period: int | None = None,
        writer: Any = None,
        priority: int = 1000,
    ):
        self._owned = writer is None
        self.writer = summary_writer(logging_dir) if writer is None else writer
        self.metrics, self.batch_period = check_metrics(metrics), batch_period
        self.priority = priority
        self.current_epoch = self.current_batch = 0

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = self.current_batch = 0

    def _write(self, estimator, before: str, metrics, step: int) -> None:
        for metric in metrics:
            for name, value in metric.get_name_value():
                if value == value:  # NaN: not updated yet
                    self.writer.add_scalar(before + name.replace(" ", "/"), value, step)
        rate = estimator.trainer.learning_rate
        self.writer.add_scalar(f"{before}learning_rate", rate, step)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            metrics = self.metrics or estimator.train_metrics
            self._write(estimator, "batch/", metrics, self.current_batch)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        metrics = self.metrics or [*estimator.train_metrics, *estimator.val_metrics]
        self._write(estimator, "", metrics, self.current_epoch)

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self._owned:
            self.writer.close()
