"""Learning rate schedules: the rate as a function of the number of updates (mx.lr_scheduler)."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from typing import Any

from ..engine.error import InvalidValue, MissingMethod
from ..ndarray.saved_state import Stateful


class ScheduleError(InvalidValue):
    """Invalid parameters of a schedule."""


def _require(condition, rule: str) -> None:
    if not condition:
        raise ScheduleError(rule)


class LRScheduler(Stateful):
    """Base class: `scheduler(num_update)` is the learning rate.

    Args:
        base_lr: the rate after warmup.
        warmup_steps, warmup_begin_lr, warmup_mode: for the first updates the rate rises from
            warmup_begin_lr to base_lr ("linear") or stays at warmup_begin_lr ("constant").
    """

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        _require(
            isinstance(warmup_steps, int), f"warmup_steps must be an int, got {warmup_steps!r}"
        )
        self.base_lr, self.warmup_final_lr = base_lr, base_lr
        self.warmup_steps, self.warmup_begin_lr, self.warmup_mode = (
            warmup_steps,
            warmup_begin_lr,
            warmup_mode,
        )
        _require(
            warmup_begin_lr <= base_lr,
            f"Base lr has to be higher than warmup_begin_lr, got {base_lr} and {warmup_begin_lr}",
        )
        _require(warmup_steps >= 0, f"Warmup steps has to be positive or 0, got {warmup_steps}")
        _require(
            warmup_mode in ("linear", "constant"),
            f"Supports only linear and constant modes of warmup, got {warmup_mode!r}",
        )

    def get_warmup_lr(self, num_update: int) -> Any:
        """The rate during warmup."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        return (
            self.warmup_begin_lr
            + (self.warmup_final_lr - self.warmup_begin_lr) * num_update / self.warmup_steps
        )

    def __call__(self, num_update: int) -> Any:
        raise MissingMethod(f"{type(self).__name__} must define __call__(self, num_update)")


class FactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` every `step` updates, down to stop_factor_lr."""

    def __init__(
        self,
        step: Any,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _require(step >= 1, f"Schedule step must be greater or equal than 1 round, got {step}")
        _require(factor <= 1.0, f"Factor must be no more than 1 to make lr reduce, got {factor}")
        self.step, self.factor, self.stop_factor_lr, self.count = step, factor, stop_factor_lr, 0

    def __call__(self, num_update: int) -> Any:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr = max(self.base_lr * self.factor, self.stop_factor_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after each number of updates in the increasing list
    `step`."""

    def __init__(
        self,
        step: Any,
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _require(isinstance(step, list) and step, f"step must be a list of ints, got {step!r}")
        _require(
            all(a < b for a, b in itertools.pairwise(step)),
            f"Schedule step must be an increasing integer list, got {step}",
        )
        _require(step[0] >= 1, f"Schedule step must be greater or equal than 1 round, got {step}")
        _require(factor <= 1.0, f"Factor must be no more than 1 to make lr reduce, got {factor}")
        self.step, self.factor, self.cur_step_ind, self.count = step, factor, 0, 0

    def __call__(self, num_update: int) -> Any:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
        return self.base_lr


class _Decay(LRScheduler, ABC):
    """From base_lr to final_lr over max_update updates, warmup included."""

    def __init__(
        self,
        max_update: int,
        base_lr: float,
        final_lr: float,
        warmup_steps: Any,
        warmup_begin_lr: float,
        warmup_mode: Any,
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _require(isinstance(max_update, int), f"max_update must be an int, got {max_update!r}")
        _require(
            max_update >= 1,
            f"maximum number of updates must be strictly positive, got {max_update}",
        )
        self.max_update, self.final_lr = max_update, final_lr
        self.base_lr_orig, self.max_steps = self.base_lr, max_update - warmup_steps

    @abstractmethod
    def _decay(self, done: float) -> float:
        """The fraction of the decay that remains after a fraction `done` in [0, 1] of the steps."""

    def __call__(self, num_update: int) -> Any:
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            done = (num_update - self.warmup_steps) / self.max_steps
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * self._decay(done)
        return self.base_lr


class PolyScheduler(_Decay):
    """Falls to final_lr as (1 - t / max_update) ** pwr."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def _decay(self, done):
        return (1 - done) ** self.power


class CosineScheduler(_Decay):
    """Falls to final_lr along half a cosine. Source: Loshchilov and Hutter 2016,
    arXiv:1608.03983."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)

    def _decay(self, done):
        return (1 + math.cos(math.pi * done)) / 2
