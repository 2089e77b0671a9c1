"""The optimizer of SVRGModule: updates the weights, and assigns full gradients."""

from __future__ import annotations

from typing import Any

from ...ndarray.launch import copy_into
from .. import optimizer as opt

FULL = "_full"  # ends the names of full gradients


@opt.register
class _AssignmentOptimizer(opt.Optimizer):
    """Sets a weight to the pushed value."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        copy_into(grad, weight)


@opt.register
class _SVRGOptimizer(opt.Optimizer):
    """default_optimizer (name or Optimizer; kwargs: its parameters) for weights; assignment for
    full gradients, whose names end with "_full"."""

    def __init__(self, default_optimizer: Any, **kwargs: Any):
        if isinstance(default_optimizer, str):
            default_optimizer = opt.create(default_optimizer, **kwargs)
        self.default_opt, self.aux_opt = default_optimizer, _AssignmentOptimizer()
        super().__init__(
            rescale_grad=default_optimizer.rescale_grad,
            param_idx2name=default_optimizer.idx2name or kwargs.get("param_idx2name"),
        )

    def _of(self, index) -> opt.Optimizer:
        name = index if isinstance(index, str) else self.idx2name.get(index, "")
        return self.aux_opt if name.endswith(FULL) else self.default_opt

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        self._of(index).update(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._of(index).create_state(index, weight)

    def _set_current_context(self, device_id) -> None:
        self.default_opt._set_current_context(device_id)

    @property
    def learning_rate(self) -> float:
        return self.default_opt.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        self.default_opt.set_learning_rate(lr)
