"""A dynamic loss scale: halved after an overflow, doubled after 2000 steps without one."""

from __future__ import annotations

import logging
from typing import Any

from ...dist import all_reduce
from ...ndarray import autograd
from ...ndarray import functions as nd
from ...ndarray.saved_state import Stateful


class LossScaler(Stateful):
    """The factor by which losses are multiplied, so that gradients stay in float16's range.

    A change takes effect one step after the check, as in MXNet. Source: Micikevicius
    et al. 2018, arXiv:1710.03740.
    """

    MAX, STEPS = 2.0**24, 2000

    def __init__(self) -> None:
        self._loss_scale = self._next_loss_scale = 2.0**16
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """The current factor."""
        return self._loss_scale

    def has_overflow(self, params: Any) -> bool:
        """Is a gradient of these Parameters inf or NaN? Waits for them, and updates the scale.
        Where weights are split over ranks, all of these get the same answer."""
        grads = [p.list_grad()[0] for p in params if p.grad_req != "null"]
        with autograd.pause():
            dense = [g if g.stype == "default" else g.data for g in grads]
            found = nd.multi_all_finite(*dense, num_arrays=len(dense)) if dense else None
            for group in dict.fromkeys(p._part.group for p in params if p._part is not None):
                found = all_reduce(found, "min", group=group, name="loss scale")
            finite = found is None or bool(found.asscalar())
        self._loss_scale = self._next_loss_scale
        if not finite:
            self._next_loss_scale = self._loss_scale / 2
            self._unskipped = 0
            logging.info("AMP: decreasing loss scale to %f", self._next_loss_scale)
        else:
            self._unskipped += 1
        if self._unskipped == self.STEPS:
            self._unskipped = 0
            self._next_loss_scale = min(self.MAX, self._loss_scale * 2)
            logging.info("AMP: increasing loss scale to %f", self._next_loss_scale)
        return not finite
