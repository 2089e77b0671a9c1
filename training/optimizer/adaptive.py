"""Optimizers with a learning rate for each element: Adam, AdaGrad, RMSProp and others."""

from __future__ import annotations

import math
from typing import Any

from ...engine.error import InvalidValue
from ...ndarray import functions
from ...ndarray.launch import copy_into
from .optimizer import (
    Optimizer,
    apply_update,
    as_lists,
    is_sparse,
    register,
    zeros_like,
)
from .update_plan import MULTI_TENSOR


class _TwoMoments(Optimizer):
    """Optimizers whose state is (mean, variance) of the gradient."""

    def __init__(
        self, learning_rate: float, beta1: float, beta2: float, epsilon: float, **kwargs: Any
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight), zeros_like(weight)

    def _filled(self, name: str, t: int) -> float:
        """1 - beta ** t: the bias correction of a moment that starts at 0, after t gradients.
        Raises InvalidValue."""
        beta = getattr(self, name)
        if not (abs(beta) < 1 and t > 0):
            raise InvalidValue(
                f"{type(self).__name__}: {name} must lie between -1 and 1 and updates count from "
                f"1, got {name}={beta} at update {t}"
            )
        return 1 - beta**t


@register
class Adam(_TwoMoments):
    """Adam. All weights of a device are updated by one operator call. Source: Kingma and Ba 2015,
    arXiv:1412.6980.

    lazy_update: of a weight with a row_sparse gradient, only the rows in the gradient and their
        moments are updated.
    """

    elementwise = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lazy_update = lazy_update
        if not self.multi_precision:
            self.aggregate_num = MULTI_TENSOR

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        indices, weights, grads, states = as_lists(index, weight, grad, state)
        self._update_count(indices)
        rates = [
            lr * math.sqrt(self._filled("beta2", t)) / self._filled("beta1", t)
            for lr, t in zip(self._get_lrs(indices), (self._index_update_count[i] for i in indices))
        ]
        decays = self._get_wds(indices)
        numbers = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        numbers |= self._numbers()
        given: list[list] = [weights, grads, states]
        plan = self._known_plan("multi_adam_update", *given)
        if plan is None:
            dense: list[tuple] = []
            for each in zip(*given, rates, decays):
                weight, grad, state, lr, wd = each
                group = (weight, grad, *state)
                if is_sparse(*group):
                    lazy = {"lazy_update": self.lazy_update}
                    apply_update("adam_update", group, group[:1], lr=lr, wd=wd, **numbers, **lazy)
                else:
                    dense.append(each)
            if not dense:
                return
            *given, rates, decays = ([*part] for part in zip(*dense))
            groups = [(w, g, *s) for w, g, s in zip(*given)]
            plan = self._new_plan("multi_adam_update", groups, numbers, *given)
        plan.run(rates, decays, numbers)

    def create_state(self, index: Any, weight: Any) -> Any:
        return tuple(zeros_like(weight, lazy=self.lazy_update) for _ in range(2))

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        if isinstance(index, (list, tuple)):
            self.update(index, weight, grad, state)
        else:
            super().update_multi_precision(index, weight, grad, state)


@register
class Adamax(_TwoMoments):
    """Adam with the largest gradient instead of the variance. Source: Kingma and Ba 2015, section
    7."""

    elementwise = True

    def __init__(
        self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ):
        super().__init__(learning_rate, beta1, beta2, 0.0, **kwargs)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, t = self._start(index)
        apply_update(
            "_adamax_update",
            [weight, grad, *state],
            [weight],
            lr=lr / self._filled("beta1", t),
            beta1=self.beta1,
            beta2=self.beta2,
            wd=wd,
            **self._numbers(),
        )


@register
class Nadam(_TwoMoments):
    """Adam with Nesterov's momentum. Source: Dozat 2016, ICLR workshop. The schedule is one for all
    weights, as in MXNet."""

    elementwise = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.schedule_decay, self.m_schedule = schedule_decay, 1.0

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, t = self._start(index)
        now, following = (
            self.beta1 * (1 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1)
        )
        self.m_schedule *= now
        apply_update(
            "_nadam_update",
            [weight, grad, *state],
            [weight],
            lr=lr,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            of_grad=(1 - now) / (1 - self.m_schedule),
            of_mean=following / (1 - self.m_schedule * following),
            of_var=1 / self._filled("beta2", t),
            wd=wd,
            **self._numbers(),
        )


@register
class AdaGrad(Optimizer):
    """Learning rates divided by the root of the sum of squared gradients. Source: Duchi et al.
    2011, JMLR 12."""

    elementwise = True

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        apply_update(
            "_sparse_adagrad_update",
            [weight, grad, state],
            [weight],
            lr=lr,
            wd=wd,
            epsilon=self.float_stable_eps,
            **self._numbers(),
        )


@register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one rate for each row of a matrix; no weight decay. Source: MXNet's contrib
    optimizers."""

    def __init__(self, eps: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Any, weight: Any) -> Any:
        shape = weight.shape[0], 1
        return functions.zeros(shape, weight.context, weight.dtype, stype=weight.stype)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        if wd:
            raise InvalidValue(
                f"GroupAdaGrad: weight decay is not supported, got wd={wd}\n  fix: wd=0"
            )
        if is_sparse(weight, grad):
            apply_update(
                "_contrib_group_adagrad_update",
                [weight, grad, state],
                [weight],
                lr=lr,
                epsilon=self.float_stable_eps,
                **self._numbers(),
            )
            return
        grad = self._clipped(grad * self.rescale_grad)
        rows = grad.reshape((grad.shape[0], -1))
        copy_into(state + functions.mean(rows * rows, axis=1, keepdims=True), state)
        step = rows / (functions.sqrt(state + self.float_stable_eps)) * lr
        copy_into(weight - step.reshape(weight.shape), weight)


@register
class AdaDelta(Optimizer):
    """Rates from running means of squared gradients and steps. Source: Zeiler 2012,
    arXiv:1212.5701."""

    elementwise = True

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho, self.epsilon = rho, epsilon

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight), zeros_like(weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        _, wd, _ = self._start(index)
        apply_update(
            "_adadelta_update",
            [weight, grad, *state],
            [weight],
            rho=self.rho,
            epsilon=self.epsilon,
            wd=wd,
            **self._numbers(),
        )


@register
class RMSProp(Optimizer):
    """Rates divided by the root of a running mean of squared gradients.

    centered: the variance instead of the mean square, with momentum gamma2 (Graves 2013,
        arXiv:1308.0850); else
    Tieleman and Hinton 2012. clip_weights: bound on each weight.
    """

    elementwise = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1, self.gamma2, self.epsilon = gamma1, gamma2, epsilon
        self.centered, self.clip_weights = centered, clip_weights

    def create_state(self, index: Any, weight: Any) -> Any:
        return tuple(zeros_like(weight) for _ in range(3 if self.centered else 1))

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        numbers = {
            "lr": lr,
            "wd": wd,
            "gamma1": self.gamma1,
            "epsilon": self.epsilon,
            "clip_weights": self.clip_weights or -1.0,
            **self._numbers(),
        }
        if self.centered:
            apply_update(
                "rmspropalex_update",
                [weight, grad, *state],
                [weight],
                gamma2=self.gamma2,
                **numbers,
            )
        else:
            apply_update("rmsprop_update", [weight, grad, *state], [weight], **numbers)


@register
class Ftrl(Optimizer):
    """Follow the regularized leader. lamda1: L1 factor. Source: McMahan et al. 2013, KDD."""

    elementwise = True

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1, self.beta = lamda1, beta

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight), zeros_like(weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        apply_update(
            "ftrl_update",
            [weight, grad, *state],
            [weight],
            lr=lr,
            wd=wd,
            lamda1=self.lamda1,
            beta=self.beta,
            **self._numbers(),
        )


@register
class FTML(Optimizer):
    """Follow the moving leader. Source: Zheng and Kwok 2017, ICML."""

    elementwise = True

    def __init__(
        self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight), zeros_like(weight), zeros_like(weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, t = self._start(index)
        apply_update(
            "ftml_update",
            [weight, grad, *state],
            [weight],
            lr=lr,
            wd=wd,
            t=t,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            rescale_grad=self.rescale_grad,
            clip_grad=self.clip_gradient or -1.0,
        )


@register
class LAMB(_TwoMoments):
    """Adam whose step is scaled for each layer by |weight| / |step|. Source: You et al. 2020,
    arXiv:1904.00962.

    lower_bound, upper_bound: of |weight| in that ratio.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lower_bound, self.upper_bound, self.bias_correction = (
            lower_bound,
            upper_bound,
            bias_correction,
        )

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, t = self._start(index)
        step = functions.empty(weight.shape, weight.context, weight.dtype)
        apply_update(
            "lamb_update_phase1",
            [weight, grad, *state],
            [step],
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            t=t,
            bias_correction=self.bias_correction,
            wd=wd,
            **self._numbers(),
        )
        apply_update(
            "lamb_update_phase2",
            [weight, step, functions.norm(weight), functions.norm(step)],
            [weight],
            lr=lr,
            lower_bound=self.lower_bound or -1.0,
            upper_bound=self.upper_bound or -1.0,
        )
