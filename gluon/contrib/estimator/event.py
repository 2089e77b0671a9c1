"""The six events of a training loop, and checks of user-defined handlers and metrics."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from ....engine.error import InvalidValue
from ....training.metric import CompositeEvalMetric, EvalMetric


class EventHandler:
    """Base of all handlers. `priority` (a number, 0 where absent) orders them: the lowest first.

    kept: names of the attributes that a checkpoint stores: the handler's state between events.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict:
        """The attributes named in `kept`."""
        return {name: getattr(self, name) for name in self.kept if hasattr(self, name)}

    def load_state_dict(self, state: dict) -> None:
        """Sets them; called after train_begin of a training that is resumed."""
        vars(self).update(state)


class TrainBegin(EventHandler):
    """Called once before the first epoch."""

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """estimator: the Estimator that trains."""


class TrainEnd(EventHandler):
    """Called once after the last epoch."""

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """estimator: the Estimator that trains."""


class EpochBegin(EventHandler):
    """Called before each epoch, and before each evaluation."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """estimator: the Estimator that trains."""


class EpochEnd(EventHandler):
    """Called after each epoch, and after each evaluation."""

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """Returns True to end the training."""
        return False


class BatchBegin(EventHandler):
    """Called before each batch."""

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """kwargs: `batch` as the loader gave it."""


class BatchEnd(EventHandler):
    """Called after each batch."""

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool | None:
        """kwargs: `batch`; `pred`, `label`, `loss` are lists with an array for each device.
        Returns True to end the training."""
        return False


def check_event_handlers(handlers: Any) -> list[EventHandler]:
    """One handler, several or None as a new list. Raises ValueError."""
    alone = handlers is not None and not isinstance(handlers, (list, tuple))
    found = [handlers] if alone else list(handlers or [])
    for handler in found:
        if not isinstance(handler, EventHandler):
            raise InvalidValue(
                f"handlers must be an EventHandler or a list of EventHandler, got: {handler!r}"
                "\n  fix: derive the class from TrainBegin, EpochEnd or another event"
            )
    return found


def check_metrics(metrics: Any) -> list[EvalMetric]:
    """A metric, several, a composite one or None as a list of simple metrics. Raises
    ValueError."""
    if isinstance(metrics, CompositeEvalMetric):
        return [m for metric in metrics.metrics for m in check_metrics(metric)]
    found = [metrics] if isinstance(metrics, EvalMetric) else metrics or []
    for metric in found:
        if not isinstance(metric, EvalMetric):
            raise InvalidValue(
                "metrics must be a Metric or a list of Metric, refer to mxnet.metric.EvalMetric:"
                f" got {metric!r}"
            )
    return found


def better(mode: str, monitor: EvalMetric, who: str) -> Any:
    """The comparison (new, old) -> bool that tells whether a monitored value has improved.

    mode: "min", "max", or "auto": greater is better for accuracies and F1, less for the rest.
    """
    if mode not in ("auto", "min", "max"):
        warnings.warn(
            f"{who} mode {mode} is unknown, fallback to auto mode, which uses max for accuracy and"
            " f1 and min for other metrics",
            RuntimeWarning,
            stacklevel=3,
        )
        mode = "auto"
    if mode == "auto":
        name = str(monitor.get()[0]).lower()
        mode = "max" if "acc" in name or "f1" in name else "min"
    return np.greater if mode == "max" else np.less


def worst(comparison: Any) -> float:
    """The worst possible value."""
    return float("inf") if comparison is np.less else float("-inf")
