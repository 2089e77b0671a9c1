"""Metrics of predicted probabilities, and means of losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from ...engine.error import InvalidValue
from ...ndarray import functions
from ...ndarray.ndarray import NDArray
from .base import EvalMetric, alias, as_array, flat, pairs, register


@register
@alias("ce")
class CrossEntropy(EvalMetric):
    """Mean of -log(probability of the right class); predictions are (N, classes) probabilities.
    eps: added to them."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Any, preds: Any) -> None:
        for label, pred in pairs(labels, preds):
            label = label.reshape((-1,))
            if pred.ndim != 2 or label.size != pred.shape[0]:
                raise InvalidValue(
                    f"{type(self).__name__}: predictions must be (labels, classes), got shape"
                    f" {pred.shape} for {label.size} labels"
                )
            chosen = functions.pick(pred, flat(label), axis=1)
            self.add(functions.sum(functions.log(chosen + self.eps)) * -1.0, label.size)


@register
@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """Mean of -log(probability of the right class)."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "nll-loss",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(eps, name, output_names, label_names)


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(probability of the right class).

    ignore_label: labels to ignore, or None. axis: the class axis.
    """

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(
            name, output_names, label_names, ignore_label=ignore_label, has_global_stats=True
        )
        self.ignore_label, self.axis = ignore_label, axis

    def update(self, labels: Any, preds: Any) -> None:
        if len(labels) != len(preds):
            raise InvalidValue(
                f"Perplexity: needs as many labels as predictions, got {len(labels)} and"
                f" {len(preds)}"
            )
        for label, pred in pairs(labels, preds):
            if label.size * pred.shape[-1] != pred.size:
                raise InvalidValue(
                    f"Perplexity: labels {label.shape} do not fit predictions {pred.shape}"
                )
            label = flat(label)
            chosen = functions.pick(pred, label.reshape(pred.shape[:-1]), axis=self.axis).reshape(
                (-1,)
            )
            logs = functions.log(functions._maximum_scalar(chosen, scalar=1e-10))
            if self.ignore_label is None:
                self.add(functions.sum(logs) * -1.0, label.size)
            else:
                counts = functions.cast(label != float(self.ignore_label), dtype="float32")
                self.add(functions.sum(logs * counts) * -1.0, functions.sum(counts))

    def result(self, total: Any, count: Any) -> Any:
        return math.exp(total / count)


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are losses; labels are ignored."""

    def __init__(
        self,
        name: str = "loss",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, _: Any, preds: Any) -> None:
        for pred in [preds] if isinstance(preds, (NDArray, numpy.ndarray)) else preds:
            pred = as_array(pred)
            self.add(functions.sum(pred), pred.size)


@register
class Torch(Loss):
    """Loss under another name."""

    def __init__(
        self,
        name: str = "torch",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names)


@register
class Caffe(Loss):
    """Loss under another name."""

    def __init__(
        self,
        name: str = "caffe",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        super().__init__(name, output_names, label_names)
