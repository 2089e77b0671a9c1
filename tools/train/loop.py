"""The loop: epochs of training, evaluation, and Ctrl-C between two steps."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from ...ndarray import autograd
from ...training.metric import Accuracy
from ...training.metric import Loss as LossMetric
from ...training.metric.over_ranks import over_ranks
from ...training.progress import Progress


def train_epoch(
    net: Any,
    loader: Any,
    trainer: Any,
    loss_of: Any,
    label: str = "",
    loss_mean: Any = None,
    accuracy: Any = None,
    after_batch: Callable[[int], bool | None] | None = None,
) -> tuple[float, float] | None:
    """One pass over the data, or the rest of a resumed pass. Returns the mean loss and the accuracy
    in [0, 1] of the batches as they were learned.

    loss_mean, accuracy: the metrics that compute them. after_batch: called with the number of
    completed batches; if it returns True the pass ends early, and the result is None. Of several
    ranks the means are over all.
    """
    loss_mean = LossMetric() if loss_mean is None else loss_mean
    accuracy = Accuracy() if accuracy is None else accuracy
    if not loader.given:
        loss_mean.reset()
        accuracy.reset()
    progress = Progress(len(loader._dataset), label, unit="picture")
    ranks, n_summed = trainer._ranks, trainer._n_summed
    for x, y in loader:
        with autograd.record():
            scores = net(x)
            loss = loss_of(scores, y)
        loss.backward()
        trainer.step(x.shape[0] * n_summed)
        loss_mean.update(None, loss)
        accuracy.update([y], [scores])
        progress.step(loss, x.shape[0])
        if after_batch is not None and after_batch(loader.given):
            progress.close()
            return None
    progress.close()
    with over_ranks(loss_mean, ranks), over_ranks(accuracy, ranks):
        return loss_mean.get()[1], accuracy.get()[1]


def evaluate(net: Any, loader: Any, batches: int | None = None) -> float:
    """Accuracy in [0, 1] over all batches or the first `batches`."""
    metric = Accuracy()
    for x, y in itertools.islice(loader, batches):
        metric.update([y], [net(x)])
    return metric.get()[1]


class StopRequest:
    """Scope in which the first Ctrl-C or SIGTERM only sets `asked`; the second one does what it
    did before.

    alone: False leaves both as they are: of several ranks, none may stop at a step of its own.
    """

    def __init__(self, alone: bool = True) -> None:
        self.asked = False
        self._alone = alone
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if self._alone and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.__exit__()

    def __exit__(self, *_: Any) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
