"""Metrics of predicted classes."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy

from ...engine.error import InvalidValue
from ...ndarray import functions
from ...ndarray.ndarray import NDArray
from .base import EvalMetric, alias, check_label_shapes, flat, pairs, register


@register
@alias("acc")
class Accuracy(EvalMetric):
    """The fraction of correct predictions.

    axis: the class axis of predictions that have one more axis than labels.
    """

    def __init__(
        self,
        axis: int = 1,
        name: str = "accuracy",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in pairs(labels, preds):
            if pred.shape != label.shape:
                if not -pred.ndim <= self.axis < pred.ndim:
                    raise InvalidValue(
                        f"Accuracy: predictions must have shape {label.shape} as labels, or classes"
                        f" on axis {self.axis}, got shape {pred.shape}"
                    )
                pred = functions.argmax(pred, axis=self.axis)
            label, pred = flat(label, "int32"), flat(pred, "int32")
            check_label_shapes(label, pred, shape=True)
            self.add(functions.sum(_equal(label, pred)), label.size)


def _equal(a: NDArray, b: NDArray) -> NDArray:
    return functions.cast(functions.broadcast_equal(a, b), dtype="float32")


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The fraction of labels that are among the top_k (> 1) most likely classes; predictions are
    (N, classes)."""

    def __init__(
        self,
        top_k: int = 1,
        name: str = "top_k_accuracy",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        if top_k <= 1:
            raise InvalidValue(
                f"TopKAccuracy: top_k must be above 1, got {top_k}\n  fix: use Accuracy for"
                " top_k = 1"
            )
        super().__init__(name, output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k
        if not self.name.endswith(f"_{top_k}"):  # get_config gives the whole name
            self.name += f"_{top_k}"

    def get_config(self) -> Any:
        return super().get_config() | {"name": self.name}

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in pairs(labels, preds):
            if pred.ndim > 2:
                raise InvalidValue(
                    "TopKAccuracy: predictions should be no more than 2 dims, got shape"
                    f" {pred.shape}"
                )
            label = flat(label, "int32")
            if pred.ndim == 1:
                self.add(functions.sum(_equal(label, flat(pred, "int32"))), pred.size)
                continue
            check_label_shapes(label, pred)
            best = functions.topk(pred, k=min(self.top_k, pred.shape[1]), axis=1, dtype="int32")
            self.add(functions.sum(_equal(best, label.reshape((-1, 1)))), pred.shape[0])


class _Confusion(EvalMetric, ABC):
    """Metrics of a confusion matrix (labels x predictions); macro: their mean over batches, micro:
    of all together."""

    def __init__(
        self,
        name: str,
        average: Any,
        output_names: Sequence[str] | str | None,
        label_names: Sequence[str] | str | None,
    ):
        if average not in ("macro", "micro"):
            raise InvalidValue(
                f"{type(self).__name__}: average must be 'macro' or 'micro', got {average!r}"
            )
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def reset(self) -> None:
        super().reset()
        self._matrices = {"_local": numpy.zeros((2, 2)), "_global": numpy.zeros((2, 2))}

    def reset_local(self) -> None:
        super().reset_local()
        self._matrices["_local"] = numpy.zeros((2, 2))

    def statistics(self) -> Any:
        return super().statistics(), self._matrices

    def combine(self, ranks: Sequence[Any]) -> None:
        super().combine([counted for counted, _ in ranks])
        for which in self._matrices:
            total = functools.reduce(_sum, [matrices[which] for _, matrices in ranks])
            self._matrices[which] = total
            if self.average == "micro":
                statistic = getattr(self, which)
                statistic[0] = self.score(total) * statistic[1]

    def update(self, labels: Any, preds: Any) -> None:
        batch = numpy.zeros((2, 2))  # of all arrays together: devices, outputs
        for label, pred in pairs(labels, preds):
            matrix = self.confusion(label.asnumpy().astype(int).ravel(), pred.asnumpy())
            batch = _sum(batch, matrix)
        if self.average == "macro":
            self.add(self.score(batch), 1)
            return
        for which, total in self._matrices.items():
            total = self._matrices[which] = _sum(total, batch)
            statistic = getattr(self, which)
            n = self.weight(total, statistic[1])
            statistic[:] = self.score(total) * n, n

    def confusion(self, label: numpy.ndarray, pred: numpy.ndarray) -> numpy.ndarray:
        classes = pred.argmax(axis=1) if pred.ndim > 1 else (pred > 0.5).astype(int)
        if len(label) != len(classes):
            raise InvalidValue(
                f"Shape of labels {len(label)} does not match shape of predictions {len(classes)}"
            )
        n = 1 + max(label.max(initial=1), classes.max(initial=1))
        matrix = numpy.zeros((n, n))
        numpy.add.at(matrix, (label, classes), 1)
        return matrix

    @abstractmethod
    def score(self, matrix: numpy.ndarray) -> float:
        """The metric of a confusion matrix."""

    def weight(self, matrix: numpy.ndarray, batches: Any) -> float:
        """The weight that num_inst counts: instances."""
        return matrix.sum()


def _sum(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """The sum of two square matrices; the smaller one is padded with zeros."""
    n = max(len(a), len(b))
    total = numpy.zeros((n, n))
    for matrix in (a, b):
        total[: len(matrix), : len(matrix)] += matrix
    return total


class _Binary(_Confusion):
    def get_config(self) -> Any:
        return super().get_config() | {"average": self.average}

    def confusion(self, label: Any, pred: Any) -> Any:
        if label.size and (label.min() < 0 or label.max() > 1):
            raise InvalidValue(
                f"{type(self).__name__} currently only supports binary classification: labels must"
                f" be 0 or 1, got values from {label.min()} to {label.max()}"
            )
        matrix = super().confusion(label, pred)
        return numpy.stack([matrix[:2, 0], matrix[:2, 1:].sum(axis=1)], axis=1)


@register
class F1(_Binary):
    """Harmonic mean of precision and recall of class 1.

    average: "macro", the mean over updates of the value of all an update's arrays together, or
        "micro", the value of all updates together.
    """

    def __init__(
        self,
        name: str = "f1",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
        average: str = "macro",
    ):
        super().__init__(name, average, output_names, label_names)

    def score(self, matrix: numpy.ndarray) -> Any:
        hits = matrix[1, 1]
        return 2 * hits / (2 * hits + matrix[0, 1] + matrix[1, 0]) if hits else 0.0


@register
class MCC(_Binary):
    """Matthews correlation coefficient of two classes. average: as F1. Source: Matthews 1975."""

    def __init__(
        self,
        name: str = "mcc",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
        average: str = "macro",
    ):
        super().__init__(name, average, output_names, label_names)

    def score(self, matrix: numpy.ndarray) -> Any:
        margins = [m for m in (*matrix.sum(axis=0), *matrix.sum(axis=1)) if m]
        return (
            (matrix[1, 1] * matrix[0, 0] - matrix[0, 1] * matrix[1, 0])
            / math.sqrt(math.prod(margins))
            if matrix.any()
            else 0.0
        )


@register
class PCC(_Confusion):
    """Correlation of labels and predictions for any number of classes: MCC's generalisation.
    Source: Gorodkin 2004."""

    def __init__(
        self,
        name: str = "pcc",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
        has_global_stats: bool = True,
    ):
        super().__init__(name, "micro", output_names, label_names)

    def score(self, matrix: numpy.ndarray) -> Any:
        n, rows, columns = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0)
        both = numpy.sum(rows * (n - rows)) * numpy.sum(columns * (n - columns))
        return (
            float((n * numpy.trace(matrix) - rows @ columns) / math.sqrt(both))
            if both
            else math.nan
        )

    def weight(self, matrix: numpy.ndarray, batches: Any) -> Any:
        return batches + 1
