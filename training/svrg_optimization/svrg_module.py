"""SVRGModule: a Module that reduces the variance of its gradients by periodic gradients over all
data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...engine import cpu
from ...engine.error import InvalidType, InvalidValue
from ...ndarray import functions
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from ..module import Module
from .svrg_optimizer import _SVRGOptimizer


class SVRGModule(Module):
    """A Module that trains with g(w) - g(w0) + G(w0): w0 are the weights of the last full pass, G
    the gradient of all data there.

    update_freq: epochs between full passes, an integer > 0. The other arguments are Module's.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | str = ("softmax_label",),
        logger: Any = logging,
        context: Any = cpu(),
        work_load_list: Sequence[int] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
        update_freq: Any = None,
        recompute: bool | float | None = None,
    ):
        arguments = (
            symbol,
            data_names,
            label_names,
            logger,
            context,
            work_load_list,
            fixed_param_names,
            state_names,
            group2ctxs,
            compression_params,
        )
        super().__init__(*arguments, recompute=recompute)
        rule = (
            "update_freq in SVRGModule must be a positive integer, the epochs between full passes"
        )
        if not isinstance(update_freq, int):
            raise InvalidType(f"{rule}, got {update_freq!r}")
        if update_freq <= 0:
            raise InvalidValue(f"{rule}, got {update_freq}")
        self.update_freq = update_freq
        self._mod_aux = Module(*arguments, recompute=recompute)  # the weights of the last full pass
        self._param_dict: list[dict] = []  # of each device: gradients of all data
        self._ctx_len = len(self._context)

    # ---- binding ---------------------------------------------------------------------------------

    def _reset_bind(self) -> None:
        super()._reset_bind()
        if hasattr(self, "_mod_aux"):
            self._mod_aux._reset_bind()

    def bind(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: str = "write",
    ) -> None:
        arguments = (data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind)
        bound = self.binded and not force_rebind
        super().bind(*arguments, shared_module, grad_req)
        if for_training and not bound:
            self._mod_aux.bind(*arguments, shared_module, grad_req)

    def reshape(
        self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None
    ) -> None:
        super().reshape(data_shapes, label_shapes)
        if self._mod_aux.binded:
            self._mod_aux.reshape(data_shapes, label_shapes)

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        super().init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self._param_dict = [
            {n: functions.zeros(a.shape, ctx) for n, a in self.get_params()[0].items()}
            for ctx in self._context
        ]

    def _made_optimizer(self, optimizer, params, names, rescale_grad):
        return _SVRGOptimizer(super()._made_optimizer(optimizer, params, names, rescale_grad))

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        super().forward(data_batch, is_train)
        if is_train and self._mod_aux.params_initialized:
            self._mod_aux.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        super().backward(out_grads)
        if self._mod_aux.binded and self._mod_aux.params_initialized:
            self._mod_aux.backward(out_grads)

    def update(self) -> None:
        self._update_svrg_gradients()
        super().update()

    def update_full_grads(self, train_data: Any) -> None:
        """Stores a snapshot of the weights and their gradient over all data."""
        self._mod_aux.set_params(*self.get_params(), force_init=True)
        group = self._mod_aux._group
        train_data.reset()
        n_batches = 0.0
        with pause():
            sums = [
                {n: functions.zeros_like(a) for n, a in own.items()} for own in self._param_dict
            ]
            for batch in train_data:
                self._mod_aux.forward(batch, is_train=True)
                self._mod_aux.backward()
                n_batches += 1 - (batch.pad or 0) / train_data.batch_size
                group = self._mod_aux._group
                for own, k in zip(sums, range(self._ctx_len)):
                    for name, grads in zip(group.param_names, group.grad_arrays):
                        if grads[k] is not None:
                            own[name] += grads[k]
            for name in group.param_names:
                means = [own[name] / n_batches for own in sums]
                if self._kvstore is not None:  # the mean of the devices' gradients
                    total = functions.add_n(*[m.as_in_context(means[0].context) for m in means])
                    means = [total.as_in_context(c) / self._ctx_len for c in self._context]
                for own, mean in zip(self._param_dict, means):
                    own[name] = mean

    def _update_svrg_gradients(self) -> None:
        """Replaces the plain gradients by the variance-reduced ones."""
        if not self._mod_aux.params_initialized:
            return
        group, aux = self._group, self._mod_aux._group
        with pause():
            for name, grads, old in zip(group.param_names, group.grad_arrays, aux.grad_arrays):
                for own, grad, before in zip(self._param_dict, grads, old):
                    if grad is not None:
                        copy_into(grad - before + own[name], grad)

    def state_dict(self) -> Any:
        raise self._undefined("state_dict")

    def load_state_dict(self, state: Any) -> Any:
        raise self._undefined("load_state_dict")

    def _begin_epoch(self, epoch: int, train_data) -> None:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)
        train_data.reset()

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[..., Any] | None = None) -> None:
        super().prepare(data_batch, sparse_row_id_fn=sparse_row_id_fn)
        self._mod_aux.prepare(data_batch, sparse_row_id_fn=sparse_row_id_fn)
