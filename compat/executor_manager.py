"""mx.executor_manager: executors of one symbol on several devices, as used with FeedForward."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..engine import Context
from ..engine.error import InvalidValue
from ..training.module.executor_group import DataParallelExecutorGroup as _Group
from ..training.module.slices import split_batch as _split_input_slice

__all__ = ["DataParallelExecutorGroup", "DataParallelExecutorManager"]


def _check_arguments(symbol) -> None:
    """Raises InvalidValue (ValueError) if two arguments or auxiliary states have the same name."""
    for names, kind in (
        (symbol.list_arguments(), "argument"),
        (symbol.list_auxiliary_states(), "auxiliary param"),
    ):
        double = [n for i, n in enumerate(names) if n in names[:i]]
        if double:
            raise InvalidValue(
                f'Find duplicated {kind} name "{double[0]}", please make the weight name'
                f" non-duplicated(using name arguments), {kind}s are {names}"
            )


def _load_data(batch, targets: Sequence) -> None:
    """Copies a batch's data into arrays, or into pairs (slice, array) per device."""
    for source, target in zip(batch.data, targets):
        for part, array in [(slice(None), target)] if not isinstance(target, list) else target:
            source[part].copyto(array)


class DataParallelExecutorGroup(_Group):
    """Executors for the batches of an iterator.

    ctx: devices. slices: the part of a batch that each gets. train_data: describes the batches
    (provide_data, provide_label).
    """

    def __init__(
        self,
        sym: Any,
        arg_names: Any,
        param_names: Any,
        ctx: Sequence[Context],
        slices: Any,
        train_data: Any,
        shared_group: Any = None,
    ):
        _check_arguments(sym)
        super().__init__(
            sym,
            ctx,
            [part.stop - part.start for part in slices],
            train_data.provide_data,
            train_data.provide_label,
            param_names,
            for_training=True,
            inputs_need_grad=False,
            shared_group=shared_group,
        )
        self.train_execs, self._batch = self.execs, None

    def load_data_batch(self, data_batch: Any) -> None:
        """Loads the batch of the next forward."""
        self._batch = data_batch

    # mypy: MXNet's methods of these names take other arguments than those of a module's group
    def forward(self, is_train: bool = False) -> None:  # type: ignore[override]
        """Computes the outputs of the batch that was loaded."""
        super().forward(self._batch, is_train)

    def backward(self) -> None:  # type: ignore[override]
        """Computes the gradients of the parameters; the outputs must be losses."""
        super().backward()


class DataParallelExecutorManager:
    """Executors for training over several devices, and for each bucket if sym_gen makes symbols
    from bucket keys."""

    def __init__(
        self,
        symbol: Any,
        ctx: Sequence[Context],
        train_data: Any,
        arg_names: Any,
        param_names: Any,
        aux_names: Any,
        work_load_list: Any = None,
        logger: Any = None,
        sym_gen: Any = None,
    ):
        (logger or logging).info("Start training with %s", str(ctx))
        loads = [1] * len(ctx) if work_load_list is None else work_load_list
        if not isinstance(loads, list) or len(loads) != len(ctx):
            raise InvalidValue(
                f"Invalid settings for work load: needs {len(ctx)} numbers, got {loads}"
            )
        self.slices = _split_input_slice(train_data.batch_size, loads)
        self.arg_names, self.param_names, self.aux_names = arg_names, param_names, aux_names
        self.ctx, self.symbol, self.sym_gen = ctx, symbol, sym_gen
        self.execgrp = self._group(symbol, train_data)
        self.execgrp_bucket = {getattr(train_data, "default_bucket_key", None): self.execgrp}
        self.curr_execgrp = self.execgrp

    def _group(self, symbol, described, shared=None):
        return DataParallelExecutorGroup(
            symbol, self.arg_names, self.param_names, self.ctx, self.slices, described, shared
        )

    def install_monitor(self, monitor: Any) -> None:
        """Lets a Monitor see every operator's outputs."""
        for group in self.execgrp_bucket.values():
            group.install_monitor(monitor)

    def set_params(self, arg_params: Any, aux_params: Any) -> None:
        """Copies parameters to every device."""
        self.execgrp.set_params(arg_params, aux_params)

    def copy_to(self, arg_params: Any, aux_params: Any) -> None:
        """Writes the parameters, the mean over devices, into the arrays of two dicts."""
        self.execgrp.get_params(arg_params, aux_params)

    @property
    def param_arrays(self) -> list:
        """For each parameter a list of NDArrays, one per device."""
        return self.execgrp.param_arrays

    @property
    def grad_arrays(self) -> list:
        """The gradients, as param_arrays."""
        return self.curr_execgrp.grad_arrays

    @property
    def aux_arrays(self) -> list:
        """The auxiliary states, as param_arrays."""
        return self.execgrp.aux_arrays

    def load_data_batch(self, data_batch: Any) -> None:
        """Loads the batch of the next forward into the executors of its bucket."""
        key = data_batch.bucket_key
        if self.sym_gen is not None and key not in self.execgrp_bucket:
            symbol = self.sym_gen(key)
            self.execgrp_bucket[key] = self._group(symbol, data_batch, self.execgrp)
        self.curr_execgrp = self.execgrp if self.sym_gen is None else self.execgrp_bucket[key]
        self.curr_execgrp.load_data_batch(data_batch)

    def forward(self, is_train: bool = False) -> None:
        """Computes the outputs."""
        self.curr_execgrp.forward(is_train=is_train)

    def backward(self) -> None:
        """Computes the gradients."""
        self.curr_execgrp.backward()

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with the outputs and these labels."""
        self.curr_execgrp.update_metric(metric, labels, pre_sliced)
