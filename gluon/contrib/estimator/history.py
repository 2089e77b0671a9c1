"""HistoryHandler: keeps the metrics of each epoch."""

from __future__ import annotations

from typing import Any

from ....training.history import History
from .event import EpochEnd, check_metrics


class HistoryHandler(EpochEnd):
    """Keeps the metrics of each epoch in `history`, a History, which Jupyter shows as a table with
    curves. Training that goes on goes on with it.

    metrics: None takes the estimator's, validation included.
    """

    def __init__(self, metrics: Any = None, priority: int = 1000):
        self.metrics, self.priority = check_metrics(metrics), priority
        self.history = History()

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        metrics = self.metrics or [*estimator.train_metrics, *estimator.val_metrics]
        values = dict(pair for metric in metrics for pair in metric.get_name_value())
        known = {name: value for name, value in values.items() if value == value}
        self.history.add(len(self.history.rows) + 1, known)

    def _repr_html_(self) -> str:
        return self.history._repr_html_()
