"""Losses: blocks that map predictions and labels to one number per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.error import InvalidType, InvalidValue, MissingMethod
from ..ndarray.numpy_mode import is_np_array  # noqa: F401
from .layer import Layer

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]


def _apply_weighting(F, loss, weight=None, sample_weight=None):
    """loss times a number and times weights that broadcast against it. User-defined losses call it
    by this name."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, (int, float, np.number)):
            raise InvalidType(f"weight must be a number, got {type(weight).__name__}")
        loss = loss * weight
    return loss


def _reshape_like(F, x, y):
    """x in the shape of y. F: nd or sym. User-defined losses call it."""
    return F.reshape_like(x, y)


class Loss(Layer):
    """Base class.

    Args:
        weight: factor on the loss.
        batch_axis: the axis that is kept; the loss is the mean over all others.
    Inputs: pred, label of its shape; sample_weight: broadcast against them, e.g. (N, 1).
    Output: (N,).
    """

    def __init__(self, weight: Any, batch_axis: int, **kwargs: Any):
        super().__init__(**kwargs)
        self._weight, self._batch_axis = weight, batch_axis

    def __repr__(self):
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _mean(self, F, loss):
        return F.mean(loss, axis=self._batch_axis, exclude=True)

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        raise MissingMethod(
            f"{type(self).__name__} must define hybrid_forward(self, F, pred, label, ...)"
        )


class L2Loss(Loss):
    """Mean of (pred - label)^2 / 2.

    Args:
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(self, weight: Any = 1.0, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(_reshape_like(F, label, pred) - pred)
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight)) / 2


class L1Loss(Loss):
    """Mean of |pred - label|.

    Args:
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(self, weight: Any = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.abs(_reshape_like(F, label, pred) - pred)
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class SigmoidBinaryCrossEntropyLoss(Loss):
    """Mean of the cross entropies of independent yes/no labels in [0, 1].

    Args:
        from_sigmoid: pred holds probabilities; else logits, which is numerically stabler.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred, as does
        pos_weight, a factor on the positive term. Result (N,).
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: Any = None, batch_axis: int = 0, **kwargs: Any
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        label = _reshape_like(F, label, pred)
        if self._from_sigmoid:
            tiny = 1e-12
            positive = F.log(pred + tiny) * label
            if pos_weight is not None:
                positive = F.broadcast_mul(positive, pos_weight)
            loss = -(positive + F.log(1.0 - pred + tiny) * (1.0 - label))
        else:
            # log(1 + exp(-|x|)) stays finite for every x
            tail = F.Activation(-F.abs(pred), act_type="softrelu")
            if pos_weight is None:
                loss = F.relu(pred) - pred * label + tail
            else:
                factor = 1 + F.broadcast_mul(pos_weight - 1, label)
                loss = pred - pred * label + factor * (tail + F.relu(-pred))
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class SoftmaxCrossEntropyLoss(Loss):
    """Cross entropy of softmax(pred) and labels.

    Args:
        axis: of the classes. from_logits: pred holds log probabilities already.
        sparse_label: labels are class indices, pred's shape without `axis`; else distributions of
            pred's shape.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: Any = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._axis, self._sparse_label, self._from_logits = axis, sparse_label, from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * _reshape_like(F, label, pred), axis=self._axis, keepdims=True)
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss
SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Kullback-Leibler divergence: mean of label * (log label - pred).

    Args:
        from_logits: pred holds log probabilities; else logits, whose log_softmax is taken.
        axis: of the classes.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: Any = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._axis = from_logits, axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, self._axis)
        loss = _apply_weighting(
            F, label * (F.log(label + 1e-12) - pred), self._weight, sample_weight
        )
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification; the last class is blank.

    Args:
        layout: of pred, NTC or TNC. label_layout: NT or TN; labels are padded with -1.
    Inputs: pred_lengths, label_lengths (N,), both optional. Output: (N,). Source: Graves et al.
        2006, ICML.
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: Any = None, **kwargs: Any
    ):
        if layout not in ("NTC", "TNC"):
            raise InvalidValue(
                f"Only 'NTC' and 'TNC' layouts for pred are supported, got {layout!r}"
            )
        if label_layout not in ("NT", "TN"):
            raise InvalidValue(
                f"Only 'NT' and 'TN' layouts for label are supported, got {label_layout!r}"
            )
        self._layout, self._label_layout = layout, label_layout
        super().__init__(weight, label_layout.find("N"), **kwargs)

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, 0, 1)
        lengths = {
            k: v
            for k, v in (("data_lengths", pred_lengths), ("label_lengths", label_lengths))
            if v is not None
        }
        loss = F.CTCLoss(
            pred,
            label,
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
            **lengths,
        )
        return _apply_weighting(F, loss, self._weight, sample_weight)


class HuberLoss(Loss):
    """Mean of (pred - label)^2 / (2 rho) where the error is at most rho, else of |pred - label| -
    rho / 2.

    Args:
        rho: error from which on the loss grows linearly.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(self, rho: float = 1, weight: Any = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        error = F.abs(_reshape_like(F, label, pred) - pred)
        loss = F.where(
            error > self._rho, error - 0.5 * self._rho, (0.5 / self._rho) * F.square(error)
        )
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class HingeLoss(Loss):
    """Mean of max(0, margin - pred * label); labels are -1 or 1.

    Args:
        margin: the least pred * label that costs nothing.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(self, margin: float = 1, weight: Any = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.relu(self._margin - pred * _reshape_like(F, label, pred))
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class SquaredHingeLoss(Loss):
    """Mean of max(0, margin - pred * label)^2; labels are -1 or 1.

    Args:
        margin: the least pred * label that costs nothing.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    """

    def __init__(self, margin: float = 1, weight: Any = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(F.relu(self._margin - pred * _reshape_like(F, label, pred)))
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class LogisticLoss(Loss):
    """Mean of log(1 + exp(-pred * label)).

    Args:
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples; the mean is over all others.
        label_format: "signed", labels -1 and 1, or "binary", labels 0 and 1.
    Shapes: pred and label of one number of elements; sample_weight broadcasts against pred. Result
        (N,).
    Raises: ValueError for another label_format.
    """

    def __init__(
        self, weight: Any = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any
    ):
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise InvalidValue(
                f"label_format can only be signed or binary, recieved {label_format}."
            )
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        return self._mean(F, _apply_weighting(F, loss, self._weight, sample_weight))


class TripletLoss(Loss):
    """max(0, sum((positive - pred)^2 - (negative - pred)^2) + margin) of each sample.

    Args:
        margin: by how much the negative must be farther than the positive to cost nothing.
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples.
    Shapes: pred, positive, negative (N, ...). Result (N,).
    """

    def __init__(self, margin: float = 1, weight: Any = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Any, pred: Any, positive: Any, negative: Any, sample_weight: Any = None
    ) -> Any:
        positive, negative = F.reshape_like(positive, pred), F.reshape_like(negative, pred)
        loss = F.sum(
            F.square(positive - pred) - F.square(negative - pred),
            axis=self._batch_axis,
            exclude=True,
        )
        return _apply_weighting(F, F.relu(loss + self._margin), self._weight, sample_weight)


class PoissonNLLLoss(Loss):
    """Negative log likelihood of Poisson counts; one number, the mean over everything.

    from_logits: pred is the log of the rate. compute_full: adds Stirling's approximation of
        log(target!).
    """

    def __init__(
        self,
        weight: Any = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._compute_full = from_logits, compute_full

    def hybrid_forward(
        self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08
    ) -> Any:
        target = F.reshape_like(target, pred)
        loss = (
            F.exp(pred) - target * pred
            if self._from_logits
            else pred - target * F.log(pred + epsilon)
        )
        if self._compute_full:
            factorial = target * F.log(target) - target + 0.5 * F.log(2 * target * np.pi)
            loss = loss + factorial * (target > 1)
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight))


class CosineEmbeddingLoss(Loss):
    """1 - cos(input1, input2) where label is 1, max(0, cos - margin) where it is -1.

    Args:
        weight: number by which the loss is multiplied, or None.
        batch_axis: the axis of the samples.
        margin: the cosine below which pairs with label -1 cost nothing.
    Shapes: input1, input2 (N, features), label (N,). Result (N, 1).
    """

    def __init__(self, weight: Any = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None
    ) -> Any:
        input1 = F.reshape_like(input1, input2)
        dot = F.sum(input1 * input2, axis=-1).reshape((-1, 1))
        norms = F.norm(input1, axis=-1).reshape((-1, 1)) * F.norm(input2, axis=-1).reshape((-1, 1))
        cosine = dot / F.broadcast_maximum(norms, F.full((1, 1), 1e-12))
        label = F.reshape(label, (-1, 1))
        loss = F.where(label == 1, 1 - cosine, F.relu(cosine - self._margin))
        return _apply_weighting(F, loss, self._weight, sample_weight)


class SDMLLoss(Loss):
    """Smoothed deep metric learning: x1[i] and x2[i] belong together, all other pairs of the batch
    do not.

    smoothing_parameter: probability spread over the wrong pairs. Source: Bonadiman et al. 2019,
        arXiv:1905.12786.
    """

    def __init__(
        self,
        smoothing_parameter: float = 0.3,
        weight: Any = 1.0,
        batch_axis: int = 0,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def _labels(self, F, n):
        """(n, n): 1 - s on the diagonal, s spread over the rest of each row."""
        spread = self.smoothing_parameter / (n - 1)
        return F.eye(n) * (1 - self.smoothing_parameter - spread) + spread

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        n = x1.shape[0]
        distances = F.sum(
            F.square(F.broadcast_sub(F.expand_dims(x1, 1), F.expand_dims(x2, 0))), axis=2
        )
        return self.kl_loss(F.log_softmax(-distances, axis=1), self._labels(F, n))
