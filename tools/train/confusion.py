"""What a classifier gets wrong: the confusion matrix, the pairs that it confuses most, and the
pictures of which it was surest."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Mistake(NamedTuple):
    """One picture that was classified wrongly. probability: of the predicted class."""

    place: int
    label: int
    predicted: int
    probability: float


class Confusion(NamedTuple):
    """counts[i, j]: pictures of class i that were taken for class j. mistakes: the surest first."""

    counts: np.ndarray
    mistakes: list[Mistake]

    @property
    def accuracy(self) -> float:
        """The fraction on the diagonal, in [0, 1]."""
        return float(np.trace(self.counts) / max(1, self.counts.sum()))

    def pairs(self) -> list[tuple[int, int, int, float]]:
        """(class, taken for, count, fraction of the class) of each kind of mistake, the most
        frequent first."""
        of_class = self.counts.sum(axis=1)
        wrong = self.counts - np.diag(np.diag(self.counts))
        places = sorted(np.argwhere(wrong).tolist(), key=lambda p: (-wrong[tuple(p)], p))
        return [(i, j, int(wrong[i, j]), float(wrong[i, j] / of_class[i])) for i, j in places]


def confusion(labels: np.ndarray, probabilities: np.ndarray) -> Confusion:
    """labels: (N,) integers. probabilities: (N, classes)."""
    n = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    counts = np.bincount(labels * n + predicted, minlength=n * n).reshape(n, n)
    mistakes = [
        Mistake(int(i), int(labels[i]), int(predicted[i]), float(probabilities[i, predicted[i]]))
        for i in np.flatnonzero(predicted != labels)
    ]
    return Confusion(counts, sorted(mistakes, key=lambda m: (-m.probability, m.place)))


def predict_all(net: Any, loader: Any) -> tuple[np.ndarray, np.ndarray]:
    """(labels (N,) int64, outputs (N, classes)) of a network for all batches."""
    labels, outputs = [], []
    for x, y in loader:
        outputs.append(net(x).asnumpy())
        labels.append(y.asnumpy().astype(np.int64))
    return np.concatenate(labels), np.concatenate(outputs)
