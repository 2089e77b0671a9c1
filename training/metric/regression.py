"""Metrics of predicted numbers: errors and correlation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy

from ...engine.error import InvalidValue
from ...ndarray import functions
from ...ndarray.ndarray import NDArray
from ...ndarray.saved_state import Stateful
from .base import EvalMetric, alias, check_label_shapes, pairs, register


class _Regression(EvalMetric, ABC):
    """The mean over batches of a mean over elements."""

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in pairs(labels, preds):
            label, pred = _column(label), _column(pred)
            label = (
                label if label._spec.dtype == pred._spec.dtype else label.astype(pred._spec.dtype)
            )
            self.add(self.error(label - pred), 1)

    @abstractmethod
    def error(self, difference: NDArray) -> NDArray:
        """The mean error of a batch: an array of one element."""


def _column(x: NDArray) -> NDArray:
    return x.reshape((-1, 1)) if x.ndim == 1 else x


@register
class MAE(_Regression):
    """Mean absolute error."""

    def __init__(
        self,
        name: str = "mae",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names)

    def error(self, difference: NDArray) -> Any:
        return functions.mean(functions.abs(difference))


@register
class MSE(_Regression):
    """Mean squared error."""

    def __init__(
        self,
        name: str = "mse",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names)

    def error(self, difference: NDArray) -> Any:
        return functions.mean(functions.square(difference))


@register
class RMSE(_Regression):
    """Root mean squared error: of each batch, then the mean."""

    def __init__(
        self,
        name: str = "rmse",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names)

    def error(self, difference: NDArray) -> Any:
        return functions.sqrt(functions.mean(functions.square(difference)))


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions. average: "macro", the batches' mean, or
    "micro", of all."""

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
        average: str = "macro",
    ):
        if average not in ("macro", "micro"):
            raise InvalidValue(
                f"PearsonCorrelation: average must be 'macro' or 'micro', got {average!r}"
            )
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def reset(self) -> None:
        super().reset()
        self.reset_micro()

    def reset_local(self) -> None:
        super().reset_local()
        self._moments["_local"] = _Moments()

    def statistics(self) -> Any:
        return super().statistics(), {k: (m.n, m.mean, m.second) for k, m in self._moments.items()}

    def combine(self, ranks: Sequence[Any]) -> None:
        super().combine([counted for counted, _ in ranks])
        self.reset_micro()
        for which, moments in self._moments.items():
            for _, counted in ranks:
                moments.merge(*counted[which])
            if self.average == "micro":
                statistic = getattr(self, which)
                statistic[0] = moments.correlation() * statistic[1]

    def reset_micro(self) -> None:
        """Clears the micro average."""
        self._moments = {"_local": _Moments(), "_global": _Moments()}

    def update_variance(self, new_values: Any, *aggregate: Any) -> Any:
        """(count, mean, sum of squared deviations) of values seen before, with new_values (N,)
        among them. Source: Welford 1962."""
        count, mean, squares = aggregate
        count += len(new_values)
        delta = new_values - mean
        mean = mean + delta.sum() / count
        return count, mean, squares + float((delta * (new_values - mean)).sum())

    def update_cov(self, label: Any, pred: Any) -> None:
        """Adds the products of deviations (from the means so far) of more pairs."""
        for moments in self._moments.values():
            x, y = (values - mean for values, mean in zip((label, pred), moments.mean))
            moments.second += numpy.sum(x * y) * numpy.array([[0, 1], [1, 0]])

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in pairs(labels, preds):
            check_label_shapes(label, pred, shape=True)
            x, y = (
                label.asnumpy().ravel().astype(numpy.float64),
                pred.asnumpy().ravel().astype(numpy.float64),
            )
            if self.average == "macro":
                self.add(float(numpy.corrcoef(y, x)[0, 1]), 1)
                continue
            for which, moments in self._moments.items():
                moments.add(x, y)
                n = getattr(self, which)[1] + 1
                getattr(self, which)[:] = moments.correlation() * n, n


class _Moments(Stateful):
    """Count, means and central second moments of pairs, batch by batch. Source: Chan et al.
    1979."""

    def __init__(self) -> None:
        self.n, self.mean, self.second = 0, numpy.zeros(2), numpy.zeros((2, 2))

    def add(self, x: Any, y: Any) -> None:
        both = numpy.stack([x, y])
        mean = both.mean(axis=1)
        centred = both - mean[:, None]
        self.merge(both.shape[1], mean, centred @ centred.T)

    def merge(self, n: int, mean: Any, second: Any) -> None:
        """Adds the moments of other pairs."""
        if not n:
            return
        step, total = mean - self.mean, self.n + n
        self.second += second + numpy.outer(step, step) * self.n * n / total
        self.mean = self.mean + step * n / total
        self.n = total

    def correlation(self) -> float:
        both = math.sqrt(self.second[0, 0] * self.second[1, 1])
        return float(self.second[0, 1] / both) if both else math.nan
