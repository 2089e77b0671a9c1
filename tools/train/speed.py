"""Eager against hybridized: the same steps, in turns, in one process; and what reading the pictures
costs.

The steps are what a user waits for: a whole training step (forward, loss, backward, update) and
predictions. One network is small, so that the time of Python's calls shows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...engine import waitall
from ...gluon import nn
from ...gluon.loss import SoftmaxCrossEntropyLoss
from ...gluon.trainer import Trainer
from ...graph.tiers import wait_compiled
from ...ndarray import autograd
from ...ndarray import functions as nd
from ...training.initializer import Xavier

ROW_SECONDS = 2.0  # the time that one row may take, after warming up
MIN_ROUNDS = 5
WARM_UP_CALLS = 3
SMALL_LAYERS, SMALL_UNITS, SMALL_BATCH = 16, 32, 16
Step = Callable[[], None]


class Row(NamedTuple):
    """Times of one kind of step, in seconds, in the order of the rounds."""

    name: str
    eager: list[float]
    hybridized: list[float]

    @property
    def ratio(self) -> float:
        """How many times as fast hybridized is: the ratio of the medians."""
        return statistics.median(self.eager) / statistics.median(self.hybridized)

    @property
    def ratio_of_minima(self) -> float:
        return min(self.eager) / min(self.hybridized)


def compare(name: str, make: Callable[[bool], Step]) -> Row:
    """Times make(False), eager, and make(True), hybridized, in turns, after both have run a few
    times and all is compiled."""
    steps = {mode: make(mode == "hybridized") for mode in ("eager", "hybridized")}
    for _ in range(WARM_UP_CALLS):
        for step in steps.values():
            step()
    wait_compiled()
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {mode: [] for mode in steps}
    end = time.perf_counter() + ROW_SECONDS
    order = list(steps)
    while time.perf_counter() < end or len(times["eager"]) < MIN_ROUNDS:
        for mode in order:
            start = time.perf_counter()
            steps[mode]()
            times[mode].append(time.perf_counter() - start)
        order.reverse()  # neither mode always follows the other
    return Row(name, times["eager"], times["hybridized"])


def training_step(net: Any, x: Any, labels: Any, hybridize: bool) -> Step:
    """A step of training that waits until the weights are updated. net: initialized."""
    loss_of = SoftmaxCrossEntropyLoss()
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)
        loss_of.hybridize()
    net(x)  # completes the parameters
    trainer = Trainer(net.collect_params(), "adam", {"learning_rate": 1e-4}, kvstore=None)

    def step() -> None:
        with autograd.record():
            loss = loss_of(net(x), labels)
        loss.backward()
        trainer.step(len(labels))
        waitall()

    return step


def prediction(net: Any, x: Any, hybridize: bool) -> Step:
    """A prediction that waits for its numbers. net: initialized."""
    if hybridize:
        net.hybridize(static_alloc=True, static_shape=True)

    def step() -> None:
        net(x).asnumpy()

    return step


def small_network() -> nn.HybridSequential:
    """So many small layers that calling them takes longer than computing them."""
    net = nn.HybridSequential()
    for _ in range(SMALL_LAYERS):
        net.add(nn.Dense(SMALL_UNITS, activation="relu"))
    net.add(nn.Dense(10))
    return net


def _initialized(net: Any) -> Any:
    net.initialize(Xavier())
    return net


def rows(name: str, make: Callable[[], Any], x: Any, labels: Any) -> list[Row]:
    """The comparisons of a report.

    make: a new classifier as the one that was trained, called `name`. x, labels: a batch.
    """
    few = x[:1]
    samples = np.random.default_rng(0).normal(size=(SMALL_BATCH, SMALL_UNITS))
    data = nd.array(samples, dtype="float32")
    numbers = nd.array(np.arange(SMALL_BATCH) % 10)
    return [
        compare(
            f"a training step of {name}, {len(x)} pictures",
            lambda mode: training_step(_initialized(make()), x, labels, mode),
        ),
        compare(
            f"{name} predicts {len(x)} pictures",
            lambda mode: prediction(_initialized(make()), x, mode),
        ),
        compare(
            f"{name} predicts one picture",
            lambda mode: prediction(_initialized(make()), few, mode),
        ),
        compare(
            f"a training step of a small network: {SMALL_LAYERS} layers of {SMALL_UNITS} units,"
            f" {SMALL_BATCH} samples",
            lambda mode: training_step(_initialized(small_network()), data, numbers, mode),
        ),
    ]


def pictures_per_second(loader: Any) -> float:
    """How fast a loader alone makes batches, workers included, after its first batch."""
    batches, count = iter(loader), 0
    next(batches)
    start = time.perf_counter()
    for x, _ in batches:
        count += len(x)
        if time.perf_counter() - start > ROW_SECONDS:
            break
    taken = time.perf_counter() - start
    return count / taken if count else float("nan")
