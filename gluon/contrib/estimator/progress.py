"""ProgressBarHandler: a progress bar on a terminal; otherwise one line per epoch."""

from __future__ import annotations

import sys
import time
from typing import Any

from ....dist import is_main
from ....training.progress import Progress
from .event import BatchEnd, EpochBegin, EpochEnd, TrainBegin, check_metrics


class ProgressBarHandler(TrainBegin, EpochBegin, BatchEnd, EpochEnd):
    """A bar with the loss of a recent batch during an epoch (on a terminal), and a line with
    metrics and speed at its end. It reads metrics at ends of epochs only.

    Args:
        metrics: shown in the line; None takes the estimator's, validation included.
        file: where lines go; None is stdout.
    """

    kept = ("current_epoch",)

    def __init__(self, metrics: Any = None, file: Any = None, priority: int = 1000):
        self.metrics, self.file, self.priority = check_metrics(metrics), file, priority
        self.current_epoch = 0

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = 0

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        total = estimator.max_epoch and estimator.first_epoch + estimator.max_epoch
        self.label = f"epoch {self.current_epoch + 1}" + (f"/{total}" if total else "")
        self.progress = Progress(estimator.batches_per_epoch, self.label)
        self.samples, self.start = 0, time.perf_counter()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        loss = kwargs["loss"]
        losses = loss if isinstance(loss, (list, tuple)) else [loss]
        self.samples += sum(part.shape[0] for part in losses)
        self.progress.step(losses[0])

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.progress.close()
        metrics = self.metrics or [*estimator.train_metrics, *estimator.val_metrics]
        values = [pair for metric in metrics for pair in metric.get_name_value()]
        seconds = time.perf_counter() - self.start
        shown = "  ".join(f"{name} {value:.4f}" for name, value in values if value == value)
        if is_main():
            print(
                f"{self.label}  {shown}  {seconds:.2f} s  {self.samples / seconds:.0f} samples/s",
                file=self.file or sys.stdout,
                flush=True,
            )
        self.current_epoch += 1
