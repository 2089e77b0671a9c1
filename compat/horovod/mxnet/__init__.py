"""`horovod.mxnet`: collectives, DistributedTrainer, DistributedOptimizer, broadcast_parameters.

All of it is `mx.dist` and the store "horovod". New code needs neither:
`gluon.Trainer(..., kvstore="dist_sync")`.
"""

from __future__ import annotations

import warnings
from typing import Any

from .... import dist
from ....engine.error import InvalidType
from ....gluon import ParameterDict, Trainer
from ....gluon.parameter import Parameter
from ....ndarray import NDArray
from ....ndarray.launch import copy_into
from ....training.kvstore import Horovod
from ....training.optimizer import Optimizer
from ....training.optimizer.update_plan import MULTI_TENSOR
from . import mpi_ops
from .compression import Compression
from .mpi_ops import *
from .mpi_ops import _group

__all__ = ["Compression", "DistributedOptimizer", "DistributedTrainer", "broadcast_parameters"]
__all__ += mpi_ops.__all__


class DistributedOptimizer(Optimizer):
    """An optimizer whose gradients are averages over all ranks: for Module and Updater, with
    `kvstore=None`.

    Its class is derived from the given optimizer's, and it shares that optimizer's attributes. The
    sum over ranks becomes an average because rescale_grad is divided by the number of ranks.

    Args:
        gradient_predivide_factor: gradients are divided by it before they are summed, and the sum
            by size / gradient_predivide_factor.
        num_groups: ignored: small gradients share a message, large ones do not.
        process_set: the ranks.
    """

    _alone: Optimizer  # the given one; both share their attributes
    _store: Horovod
    _before: float

    def __new__(
        cls,
        optimizer: Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ):
        return cls._made(optimizer, gradient_predivide_factor, _group(process_set))

    def __init__(self, *_: Any, **__: Any):
        """Does nothing: the attributes are those of the optimizer."""

    @classmethod
    def _made(cls, optimizer, before: float, group: dist.Group):
        if not isinstance(optimizer, Optimizer):
            raise InvalidType(
                f"{cls.__name__}: needs an Optimizer, got {optimizer!r}"
                "\n  fix: mx.optimizer.create('sgd', learning_rate=0.1)"
            )
        alone = type(optimizer)
        # not attributes of the object, which are saved as its state; saved states have the name of
        # the class, so it is the given optimizer's
        kind: Any = type(
            alone.__name__,
            (cls, alone),
            {"_alone": optimizer, "_store": Horovod(group=group), "_before": float(before)},
        )
        made = object.__new__(kind)
        made.__dict__ = vars(optimizer)
        made.rescale_grad *= before / group.size
        return made

    @property
    def aggregate_num(self) -> int:
        """Above 0: an Updater gives all weights in one call, so that their gradients travel
        together; the optimizer may take them one by one."""
        return MULTI_TENSOR

    @aggregate_num.setter
    def aggregate_num(self, value: int) -> None:
        vars(self)["aggregate_num"] = value  # the optimizer's

    def _each(self, method: Any, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums, then calls a method of the optimizer as it wants to be called."""
        self._summed(index, grad)
        if not isinstance(index, (list, tuple)) or self._alone.aggregate_num:
            method(index, weight, grad, state)
            return
        for one in zip(index, weight, grad, state):
            method(*one)

    def _summed(self, index, grad) -> None:
        keys = list(index) if isinstance(index, (list, tuple)) else [index]
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        if self._before != 1.0:
            for g in grads:
                g /= self._before
        self._store.pushpull(keys, [[g] for g in grads], priority=[-k for k in range(len(keys))])

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients over ranks, in place, and updates."""
        self._each(self._alone.update, index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients over ranks, in place, and updates."""
        self._each(self._alone.update_multi_precision, index, weight, grad, state)


class DistributedTrainer(Trainer):
    """A Trainer whose gradients are averages over all ranks: `step(batch_size)` takes the batch
    size of one rank.

    Args:
        compression: Compression.none or Compression.fp16.
        gradient_predivide_factor: gradients are divided by it before they are summed, and the sum
            by size / gradient_predivide_factor.
        prefix, num_groups: ignored: several trainers are distinguished by their order, and small
            gradients share a message.
        process_set: the ranks.
    """

    _store_class: type[Horovod] = Horovod

    def __init__(
        self,
        params: Any,
        optimizer: str | Optimizer,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ):
        group = _group(process_set)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer sums gradients itself; it takes the optimizer inside"
                " DistributedOptimizer\n  fix: give it the optimizer",
                stacklevel=2,
            )
            optimizer.rescale_grad *= optimizer._store.num_workers / optimizer._before
            optimizer = optimizer._alone
        self._start(params, optimizer, optimizer_params, group)
        self._compression, self._before = compression, float(gradient_predivide_factor)

    def _start(self, params, optimizer, optimizer_params, group) -> None:
        self._n_ranks = group.size
        self._compression, self._before = Compression.none, 1.0
        super().__init__(
            params,
            optimizer,
            optimizer_params,
            kvstore=self._store_class(group=group),
            update_on_kvstore=False,
        )

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        super().step(self._of_all(batch_size), ignore_stale_grad)

    def update(self, batch_size: Any, ignore_stale_grad: bool = False) -> None:
        super().update(self._of_all(batch_size), ignore_stale_grad)

    def _of_all(self, batch_size: Any) -> Any:
        """What gradients are divided by after the sum."""
        n = batch_size * self._n_ranks
        return n if self._before == 1.0 else n / self._before

    def _allreduce_grads(self) -> None:
        if self._compression is Compression.none and self._before == 1.0:
            super()._allreduce_grads()
            return
        wanted = [(i, p.list_grad()) for i, p in enumerate(self._params) if p.grad_req != "null"]
        sent = []
        for _, grads in wanted:
            if self._before != 1.0:
                for g in grads:
                    g /= self._before
            sent.append([self._compression.compress(g) for g in grads])
        keys = [i for i, _ in wanted]
        arrays = [[a for a, _ in some] for some in sent]
        self._store.pushpull(keys, arrays, priority=[-i for i in keys])
        for (_, grads), some in zip(wanted, sent):
            for g, (a, context) in zip(grads, some):
                if a is not g:
                    copy_into(self._compression.decompress(a, context), g)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Copies the values of root_rank to all ranks, in place. Parameters whose shapes are not known
    yet are copied when they are initialized.

    params: dict of NDArrays or Parameters, or a ParameterDict. prefix: put before names.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise InvalidType(f"broadcast_parameters: needs a dict, got {type(params).__name__}")
    for name, value in sorted(params.items()):
        label = f"{prefix or ''}{name}"
        if isinstance(value, NDArray):
            broadcast_(value, root_rank, label)
        elif not isinstance(value, Parameter):
            raise InvalidType(
                f"broadcast_parameters: {name} must be an NDArray or a Parameter, got"
                f" {type(value).__name__}"
            )
        elif value._data is None:
            _broadcast_later(value, root_rank, label)
        else:
            for a in value.list_data():
                broadcast_(a, root_rank, label)


def _broadcast_later(parameter: Any, root_rank: int, label: str) -> None:
    plain = parameter._init_impl

    def init_and_broadcast(data, contexts):
        parameter._init_impl = plain
        plain(data, contexts)
        for a in parameter.list_data():
            broadcast_(a, root_rank, label)

    parameter._init_impl = init_and_broadcast
