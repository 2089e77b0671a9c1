"""mx.contrib.tensorboard: a callback of training loops that writes TensorBoard files."""

from __future__ import annotations

from typing import Any

from ...training.summary_writer import summary_writer


class LogMetricsCallback:
    """A batch-end or eval-end callback that writes the metric's values over the epochs.

    Args:
        logging_dir: folder of the event files; one each for training and validation, and
            `tensorboard --logdir` of the folder above shows both.
        prefix: before the names of curves.
    Raises: ImportError when no package that writes the files is installed.
    """

    def __init__(self, logging_dir: Any, prefix: str | None = None):
        self.prefix, self.summary_writer = prefix, summary_writer(logging_dir)

    def __call__(self, param: Any) -> None:
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            name = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(name, value, global_step=param.epoch)
