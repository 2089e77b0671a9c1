"""BatchProcessor: what an Estimator does with one batch; subclasses change it."""

from __future__ import annotations

from typing import Any

from ....ndarray import autograd
from ...utils import split_and_load


class BatchProcessor:
    """Forward and backward of one batch, spread over the estimator's devices."""

    def _get_data_and_label(self, batch, ctx, batch_axis=0):
        """The first two entries of a batch, each as a list with a part for each device."""
        return tuple(
            split_and_load(part, ctx_list=ctx, batch_axis=batch_axis) for part in batch[:2]
        )

    def evaluate_batch(self, estimator: Any, val_batch: Any, batch_axis: int = 0) -> Any:
        """Returns (data, label, predictions, losses) of a batch, lists with an array for each
        device."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        loss = [estimator.val_loss(p, y) for p, y in zip(pred, label)]
        return data, label, pred, loss

    def fit_batch(self, estimator: Any, train_batch: Any, batch_axis: int = 0) -> Any:
        """Computes the gradients of a batch; GradientUpdateHandler applies them. Returns as
        evaluate_batch."""
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(x) for x in data]
            loss = [estimator.loss(p, y) for p, y in zip(pred, label)]
        for part in loss:
            part.backward()
        return data, label, pred, loss
