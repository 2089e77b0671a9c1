"""Stochastic gradient descent and its variants."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from ...engine.error import InvalidValue
from ...ndarray import functions, random
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


class _Descent(Optimizer, ABC):
    """Momentum, and a float32 copy of 16-bit weights: what SGD, NAG, LARS and LBSGD have in common.

    The state is None or the momentum; with a copy, (None or momentum, copy).
    """

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, index: Any, weight: Any) -> Any:
        lazy = getattr(self, "lazy_update", True)
        return zeros_like(weight, lazy=lazy) if self.momentum != 0.0 else None

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        if self._keeps_copy(weight):
            copy = weight.astype("float32")
            return self.create_state(index, copy), copy
        self._warn_of_precision(weight)
        return self.create_state(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        indices, weights, grads, states = as_lists(index, weight, grad, state)
        self._step(indices, weights, grads, states, wide=False)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        indices, weights, grads, states = as_lists(index, weight, grad, state)
        self._step(indices, weights, grads, states, wide=self._keeps_copy(weights[0]))

    @abstractmethod
    def _step(self, indices, weights, grads, states, wide):
        """Updates the weights. wide: with float32 copies of them."""

    def _groups(self, weights, grads, states, wide):
        """(weight, gradient, momentum if any, copy if any) of each weight."""
        if wide:
            return [
                (w, g, *(() if s[0] is None else (s[0],)), s[1])
                for w, g, s in zip(weights, grads, states)
            ]
        if self.momentum != 0.0:
            return list(zip(weights, grads, states))
        return list(zip(weights, grads))

    def _operator(self, wide, many="multi_") -> tuple[str, dict]:
        name = f"{many}{'mp_' if wide else ''}sgd_{'mom_' if self.momentum != 0.0 else ''}update"
        return name, {
            **self._numbers(),
            **({"momentum": self.momentum} if self.momentum != 0.0 else {}),
        }


@register
class SGD(_Descent):
    """weight -= lr * (rescale_grad * grad + wd * weight), with momentum: mom = momentum * mom - lr
    * (...).

    All dense weights of a device are updated by one operator call. lazy_update: of a weight with a
    row_sparse gradient, only the rows in the gradient are updated; decay and momentum do not apply
    to the others.
    """

    elementwise = True

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(momentum, **kwargs)
        self.lazy_update, self.aggregate_num = lazy_update, MULTI_TENSOR

    def _step(self, indices, weights, grads, states, wide):
        name, numbers = self._operator(wide)
        plan = self._known_plan(name, weights, grads, states)
        if plan is None:
            if is_sparse(*weights, *grads):
                found = self._step_sparse(indices, weights, grads, states, wide)
                indices, weights, grads, states = found
            if not indices:
                return
            groups = self._groups(weights, grads, states, wide)
            plan = self._new_plan(name, groups, numbers, weights, grads, states)
        self._update_count(indices)
        plan.run(self._get_lrs(indices), self._get_wds(indices), numbers)

    def _step_sparse(self, indices, weights, grads, states, wide):
        """Updates the weights that are sparse or have sparse gradients; returns the others."""
        dense: tuple[list, ...] = ([], [], [], [])
        for each in zip(indices, weights, grads, states):
            index, weight, grad, state = each
            if not is_sparse(weight, grad):
                for part, item in zip(dense, each):
                    part.append(item)
                continue
            lr, wd, _ = self._start(index)
            name, numbers = self._operator(wide, "")
            group = self._groups([weight], [grad], [state], wide)[0]
            lazy = {"lazy_update": self.lazy_update}
            apply_update(name, group, group[:1], lr=lr, wd=wd, **numbers, **lazy)
        return dense


@register
class ccSGD(SGD):
    """Old name of SGD."""

    elementwise = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)


@register
class NAG(_Descent):
    """Nesterov's accelerated gradient."""

    elementwise = True

    def _step(self, indices, weights, grads, states, wide):
        for index, group in zip(indices, self._groups(weights, grads, states, wide)):
            lr, wd, _ = self._start(index)
            name, numbers = self._operator(wide, "")
            apply_update(
                name.replace("sgd_mom", "nag_mom"), group, group[:1], lr=lr, wd=wd, **numbers
            )


@register
class LARS(_Descent):
    """SGD whose rate is scaled for each layer by eta * |w| / (|g| + wd * |w| + eps); gamma, beta
    and bias excepted.

    momentum_correction: the momentum follows changes of the rate. Source: You et al. 2017,
        arXiv:1708.03888.
    """

    _DECAYED = ("_weight",)

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ):
        super().__init__(momentum, **kwargs)
        self.lazy_update, self.eta, self.eps, self.momentum_correction = (
            lazy_update,
            eta,
            eps,
            momentum_correction,
        )
        self.aggregate_num = MULTI_TENSOR
        # the rates of the last step and of this one, and the number of this one: a step is several
        # calls, as a store updates some megabytes at a time, and each device its own weights
        self.last_lr: float | None = None
        self.cur_lr: float | None = None
        self._rate_of: int | None = None

    def _update_count(self, index):
        super()._update_count(index)
        if self._rate_of != self.num_update:
            self._rate_of, self.last_lr = self.num_update, self.cur_lr
            self.cur_lr = self.learning_rate

    def _step(self, indices, weights, grads, states, wide):
        self._update_count(indices)
        lrs, wds = self._get_lrs(indices), self._get_wds(indices)
        scaled = [
            i
            for i, index in enumerate(indices)
            if not self.idx2name.get(index, str(index)).endswith(("gamma", "beta", "bias"))
        ]
        order = scaled + [i for i in range(len(indices)) if i not in set(scaled)]
        ctx = weights[0].context
        rates = functions.array([lrs[i] for i in order], ctx)
        decays = functions.array([wds[i] for i in order], ctx)
        if scaled:
            n = len(scaled)
            sums = [
                functions.multi_sum_sq(*[arrays[i] for i in scaled], num_arrays=n)
                for arrays in (weights, grads)
            ]
            part = functions.multi_lars(
                rates[:n],
                sums[0],
                sums[1],
                decays[:n],
                eta=self.eta,
                eps=self.eps,
                rescale_grad=self.rescale_grad,
            )
            rates = functions.concat(part, rates[n:], dim=0) if n < len(order) else part
        name, numbers = self._operator(wide, "preloaded_multi_")
        if "momentum" in numbers and self.momentum_correction and self.last_lr:
            assert self.cur_lr is not None
            numbers["momentum"] *= self.cur_lr / self.last_lr
        weights, grads, states = ([a[i] for i in order] for a in (weights, grads, states))
        groups = self._groups(weights, grads, states, wide)
        for at in range(0, len(groups), MULTI_TENSOR):
            part = groups[at : at + MULTI_TENSOR]
            apply_update(
                name,
                [
                    *(a for g in part for a in g),
                    rates[at : at + len(part)],
                    decays[at : at + len(part)],
                ],
                [g[0] for g in part],
                num_weights=len(part),
                **numbers,
            )


@register
class LBSGD(_Descent):
    """SGD for large batches: gradients of batch_scale batches are summed, and the rate warms up.

    warmup_strategy: linear, power2, sqrt or lars. updates_per_epoch, warmup_epochs: length of the
        warmup.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: int = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ):
        super().__init__(momentum, multi_precision=multi_precision, **kwargs)
        import logging  # here: few say something

        logging.getLogger(__name__).info(
            "Running Large-Batch SGD Algorithm (batch_scale=%s, warmup_epochs=%s,"
            " warmup_strategy=%s, updates_per_epoch=%s)",
            batch_scale,
            warmup_epochs,
            warmup_strategy,
            updates_per_epoch,
        )
        self.warmup_strategy, self.warmup_epochs, self.batch_scale = (
            warmup_strategy,
            warmup_epochs,
            batch_scale,
        )
        self.updates_per_epoch, self.init_updates = (
            updates_per_epoch,
            begin_epoch * updates_per_epoch,
        )
        self.num_epochs, self.lbmult = num_epochs, 1
        # (index, device) -> (sum of gradients or None, number of batches)
        self._sums: dict = {}

    def create_state(self, index: Any, weight: Any) -> Any:
        if self._keeps_copy(weight):
            return self.create_state_multi_precision(index, weight)
        return super().create_state(index, weight)

    def _warmup(self, n: int) -> float:
        end, top = self.warmup_epochs * self.updates_per_epoch, float(self.batch_scale)
        if n >= end:
            return top
        if end <= 1:
            return 1.0
        part = {"linear": n / end, "power2": (n / end) ** 2, "sqrt": math.sqrt(n / end)}.get(
            self.warmup_strategy, 0.0
        )
        return 1.0 + (top - 1) * part

    def _layer_rate(self, weight, grad, wd) -> float:
        w, g = (float((a * a).sum().asscalar()) for a in (weight, grad))
        return min(max(math.sqrt(w / (g + wd * w + 1e-18)), 0.01), 100.0)

    def _step(self, indices, weights, grads, states, wide):
        for index, weight, grad, state in zip(indices, weights, grads, states):
            wide = isinstance(state, tuple)
            lr, wd = self._get_lr(index), self._get_wd(index)
            self._update_count(index)
            key = index, weight.context
            total, n = self._sums.get(key, (None, self.init_updates))
            total, n = grad if total is None else total + grad, n + 1
            if n % self.batch_scale:
                self._sums[key] = total, n
                continue
            grad = total / self.batch_scale
            lr *= (
                self._layer_rate(weight, grad, wd)
                if self.warmup_strategy == "lars"
                else self._warmup(n)
            )
            name, numbers = self._operator(wide, "")
            group = self._groups([weight], [grad], [state], wide)[0]
            apply_update(name, group, group[:1], lr=lr, wd=wd, **numbers)
            self._sums[key] = None, n


@register
class SGLD(Optimizer):
    """SGD with normal noise of variance lr. Source: Welling and Teh 2011, ICML."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        if lr < 0:
            raise InvalidValue(f"SGLD: the learning rate is a variance, at least 0, got {lr}")
        step = (self._clipped(grad * self.rescale_grad) + wd * weight) * (-lr / 2)
        noise = random.normal(0, math.sqrt(lr), weight.shape, ctx=weight.context)
        copy_into(weight + step + noise.astype(weight.dtype, copy=False), weight)


@register
class DCASGD(Optimizer):
    """SGD that compensates the delay of asynchronous gradients. Source: Zheng et al. 2017,
    arXiv:1609.08326."""

    elementwise = True

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum, self.lamda = momentum, lamda

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight) if self.momentum != 0.0 else None, weight.copy()

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        grad = self._clipped(grad * self.rescale_grad)
        mom, previous = state
        step = (grad + wd * weight + self.lamda * grad * grad * (weight - previous)) * -lr
        if mom is not None:
            step = mom * self.momentum + step
            copy_into(step, mom)
        copy_into(weight, previous)
        copy_into(weight + step, weight)


@register
class Signum(Optimizer):
    """The sign of the momentum (or, without momentum, of the gradient) as direction. wd_lh:
    decoupled weight decay.

    Source: Bernstein et al. 2018, arXiv:1802.04434.
    """

    elementwise = True

    def __init__(
        self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum, self.wd_lh = momentum, wd_lh

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight) if self.momentum != 0.0 else None

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        lr, wd, _ = self._start(index)
        if state is None:
            apply_update(
                "signsgd_update", [weight, grad], [weight], lr=lr, wd=wd, **self._numbers()
            )
        else:
            apply_update(
                "signum_update",
                [weight, grad, state],
                [weight],
                lr=lr,
                wd=wd,
                momentum=self.momentum,
                wd_lh=self.wd_lh,
                **self._numbers(),
            )


@register
class Test(Optimizer):
    """weight += rescale_grad * grad; for tests."""

    def create_state(self, index: Any, weight: Any) -> Any:
        return zeros_like(weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        copy_into(weight + grad * self.rescale_grad, weight)
        copy_into(weight, state)
