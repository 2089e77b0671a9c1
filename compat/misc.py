"""mx.misc: the learning rate schedules of MXNet's first versions, before mx.lr_scheduler."""

from __future__ import annotations

import logging
from typing import Any

from ..engine.error import MissingMethod
from ..training.lr_scheduler import ScheduleError


class LearningRateScheduler:
    """Base class: `scheduler(iteration)` is the learning rate; base_lr is the initial rate."""

    def __init__(self) -> None:
        self.base_lr = 0.01

    def __call__(self, iteration: Any) -> Any:
        raise MissingMethod(f"{type(self).__name__} must define __call__(self, iteration)")


class FactorScheduler(LearningRateScheduler):
    """base_lr multiplied by `factor` every `step` iterations; a change is logged."""

    def __init__(self, step: Any, factor: float = 0.1):
        super().__init__()
        if step < 1:
            raise ScheduleError(f"Schedule step must be greater or equal than 1 round, got {step}")
        if factor >= 1.0:
            raise ScheduleError(f"Factor must be less than 1 to make lr reduce, got {factor}")
        self.step, self.factor, self.old_lr, self.init = step, factor, self.base_lr, False

    def __call__(self, iteration: Any) -> Any:
        if not self.init:
            self.init, self.old_lr = True, self.base_lr
        lr = self.base_lr * self.factor ** int(iteration / self.step)
        if lr != self.old_lr:
            self.old_lr = lr
            logging.info("At Iteration [%d]: Swith to new learning rate %.5f", iteration, lr)
        return lr
