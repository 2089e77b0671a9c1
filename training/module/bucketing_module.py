"""BucketingModule: one module per bucket (length of a sequence, ...), all with the same
parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...dist import Group
from ...engine import cpu
from ...engine.recent import Recent
from ...ndarray import functions, serialization
from ...ndarray.ndarray import NDArray
from ...symbol.executor import Executor
from ...symbol.name import NameManager
from ..initializer import Uniform
from ..model_params import load_params
from .base_module import BaseModule
from .described import ModuleError, check_input_names
from .module import Module

MAX_BUCKETS = 256  # that stay bound


class BucketingModule(BaseModule):
    """A module that runs each batch on the symbol of its bucket.

    Args:
        sym_gen: from a bucket's key to (symbol, data_names, label_names).
        default_bucket_key: the key of the bucket that needs the most memory; the others share its
        memory. context, ...: as Module.
    A batch has bucket_key, provide_data and provide_label.
    """

    def __init__(
        self,
        sym_gen: Any,
        default_bucket_key: Any = None,
        logger: Any = logging,
        context: Any = cpu(),
        work_load_list: Sequence[int] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
        *,
        recompute: bool | float | None = None,
    ):
        super().__init__(logger=logger)
        if default_bucket_key is None:
            raise ModuleError("BucketingModule: default_bucket_key must be given")
        self._sym_gen, self._default_bucket_key = sym_gen, default_bucket_key
        self._arguments = {
            "logger": logger,
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
            "recompute": recompute,
        }
        symbol, data_names, label_names = self._call_sym_gen(default_bucket_key)
        for names, kind in (
            (data_names, "data"),
            (label_names, "label"),
            (state_names, "state"),
            (fixed_param_names, "fixed_param"),
        ):
            check_input_names(symbol, list(names or ()), kind, kind != "label")
        self._params_dirty = False
        self._monitor: Any = None
        self._grad_req: Any = None
        self._reset_bind()

    def _call_sym_gen(self, key):
        """Each bucket's nodes are numbered from 0, so that automatic parameter names agree."""
        with NameManager():
            found = self._sym_gen(key)
        if not isinstance(found, (list, tuple)) or len(found) != 3:
            raise ModuleError(
                "BucketingModule: sym_gen must return (symbol, data_names, label_names), got"
                f" {type(found).__name__} for the bucket {key!r}"
            )
        return found

    def _reset_bind(self) -> None:
        self.binded = False
        self._buckets: dict = {}
        self._bound = Recent(MAX_BUCKETS)  # the most recently used buckets: key -> True
        self._curr_module: Module | None = None
        self._curr_bucket_key = None

    @property
    def _ranks(self) -> Group | None:
        return self._current._ranks

    @property
    def _current(self) -> Module:
        """The module of the bucket in use. Raises ModuleError before bind or load."""
        if self._curr_module is None:
            self._need(params=False)
        assert self._curr_module is not None
        return self._curr_module

    def _made(self, key) -> Module:
        return Module(*self._call_sym_gen(key), **self._arguments)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        if self.binded:
            return self._current.data_names
        return self._call_sym_gen(self._default_bucket_key)[1]

    @property
    def output_names(self) -> list[str]:
        if self.binded:
            return self._current.output_names
        return self._call_sym_gen(self._default_bucket_key)[0].list_outputs()

    @property
    def data_shapes(self) -> Any:
        self._need(params=False)
        return self._current.data_shapes

    @property
    def label_shapes(self) -> Any:
        self._need(params=False)
        return self._current.label_shapes

    @property
    def output_shapes(self) -> Any:
        self._need(params=False)
        return self._current.output_shapes

    @property
    def symbol(self) -> Any:
        self._need(params=False)
        return self._current.symbol

    # ---- parameters ------------------------------------------------------------------------------

    def get_params(self) -> tuple[dict, dict]:
        if not self.params_initialized:
            raise ModuleError("get_params: there are none\n  fix: call init_params() before")
        self._current._params_dirty = self._params_dirty
        found = self._current.get_params()
        self._params_dirty = False
        return found

    def set_params(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        if not allow_missing:
            super().set_params(arg_params, aux_params, False, force_init, allow_extra)
            return
        if self._keeps_params("set_params", force_init):
            return
        self._current.set_params(
            arg_params,
            aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )
        self._params_dirty = self.params_initialized = True

    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        if self.params_initialized and not force_init:
            return
        self._need(params=False)
        self._current.init_params(
            initializer=initializer,
            arg_params=arg_params,
            aux_params=aux_params,
            allow_missing=allow_missing,
            force_init=force_init,
            allow_extra=allow_extra,
        )
        self._params_dirty, self.params_initialized = False, True

    def get_states(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._current.get_states(merge_multi_context=merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        self._need()
        self._current.set_states(states, value)

    # ---- buckets ---------------------------------------------------------------------------------

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
        """Binds the default bucket; others are bound at their first batch."""
        kept = self.get_params() if self.params_initialized else None
        if force_rebind:
            self._reset_bind()
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None:
            raise ModuleError("shared_module for BucketingModule is not supported")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.binded, self._grad_req = True, grad_req
        key = self._default_bucket_key
        module = self._buckets[key] if key in self._buckets else self._made(key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self._buckets[key] = self._curr_module = module
        self._curr_bucket_key = key
        if kept is not None:
            self.set_params(*kept)

    def switch_bucket(
        self,
        bucket_key: Any,
        data_shapes: Sequence[Any] | None,
        label_shapes: Sequence[Any] | None = None,
    ) -> None:
        """Switches to a bucket; binds it if it is new. Shapes: descriptions of its batches."""
        self._need(params=False)
        module = self._buckets.get(bucket_key)
        if module is None:
            module = self._buckets[bucket_key] = self._made(bucket_key)
        if not module.binded:
            module.bind(
                data_shapes or module._data_shapes or (),
                label_shapes or (None if data_shapes else module._label_shapes),
                self._current.for_training,
                self._current.inputs_need_grad,
                shared_module=self._buckets[self._default_bucket_key],
                grad_req=self._grad_req,
            )
            if self._monitor is not None:
                module.install_monitor(self._monitor)
        if not self._bound[bucket_key]:
            self._bound[bucket_key] = True
            self._unbind_old()
        self._curr_module, self._curr_bucket_key = module, bucket_key

    def _unbind_old(self) -> None:
        """Frees the executors of the least recently used buckets; they are bound again when used.
        Arrays that only they own are kept: states, parameters that the default bucket lacks,
            gradients of inputs."""
        if self._arguments["state_names"] or self.inputs_need_grad:
            return
        base = self._buckets[self._default_bucket_key]
        shared = {*base._param_names, *base._aux_names}
        for key, module in self._buckets.items():
            if module.binded and key not in self._bound and module is not base:
                if {*module._param_names, *module._aux_names} <= shared:
                    shapes = module.data_shapes, module.label_shapes
                    module._reset_bind()
                    module._data_shapes, module._label_shapes = shapes

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[..., Any] | None = None) -> None:
        """Binds the bucket of the next batch, and fetches its sparse rows."""
        self._need()
        current = self._curr_bucket_key
        self.switch_bucket(data_batch.bucket_key, data_batch.provide_data, data_batch.provide_label)
        self._current.prepare(data_batch, sparse_row_id_fn=sparse_row_id_fn)
        self.switch_bucket(current, None, None)

    # ---- running ---------------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        self._need()
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        self._current.init_optimizer(kvstore, optimizer, optimizer_params, force_init=force_init)
        for module in self._buckets.values():
            if module is not self._curr_module:
                module.borrow_optimizer(self._curr_module)
        self.optimizer_initialized = True

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        self._need()
        self.switch_bucket(data_batch.bucket_key, data_batch.provide_data, data_batch.provide_label)
        self._current.forward(data_batch, is_train=is_train)

    def backward(self, out_grads: Any = None) -> None:
        self._need()
        self._current.backward(out_grads=out_grads)

    def update(self) -> None:
        self._need(optimizer=True)
        self._params_dirty = True
        self._current.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._current.get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._current.get_input_grads(merge_multi_context=merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._need()
        self._current.update_metric(eval_metric, labels, pre_sliced)

    def executors(self, every: bool = False) -> list[Executor]:
        modules = self._buckets.values() if every else [self._current]
        return [e for m in modules if m.binded for e in m.executors(every)]

    def install_monitor(self, mon: Any) -> None:
        self._need(params=False)
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # ---- files -----------------------------------------------------------------------------------

    def state_dict(self) -> dict:
        self._need(optimizer=True)
        return self._buckets[self._default_bucket_key].state_dict()

    def load_state_dict(self, state: dict) -> None:
        self._need(optimizer=True)
        self._buckets[self._default_bucket_key].load_state_dict(state)
        self._params_dirty = True

    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Writes prefix-EPOCH.params, prefix-KEY-symbol.json of each bucket, and their keys (which
        must be integers) in prefix.buckets."""
        if not self._buckets:
            raise ModuleError("Empty BucketingModule cannot be saved")
        self.save_params(f"{prefix}-{epoch:04d}.params")
        for key in self._buckets:
            symbol = self._call_sym_gen(key)[0]
            symbol.save(f"{prefix}-{key}-symbol.json", remove_amp_cast=remove_amp_cast)
        keys = functions.array(list(self._buckets), dtype="int32")
        serialization.save(f"{prefix}.buckets", keys)

    @staticmethod
    def load(
        prefix: str, epoch: int, sym_gen: Any = None, default_bucket_key: Any = None, **kwargs: Any
    ) -> BucketingModule:
        """A BucketingModule from what save_checkpoint wrote. kwargs: of BucketingModule."""
        from ...symbol import load

        found = serialization.load(f"{prefix}.buckets")
        if not isinstance(found, list) or len(found) != 1:
            raise ModuleError(f"{prefix}.buckets must hold one array without a name")
        keys = found[0].asnumpy().astype(int).tolist()
        symbols = {key: load(f"{prefix}-{key}-symbol.json") for key in keys}
        arg_params, aux_params = load_params(prefix, epoch)
        return BucketingModule.load_dict(
            symbols, sym_gen, default_bucket_key, arg_params, aux_params, **kwargs
        )

    @staticmethod
    def load_dict(
        sym_dict: Any = None,
        sym_gen: Any = None,
        default_bucket_key: Any = None,
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A BucketingModule from symbols by key, and parameters."""
        for name, value in (
            ("sym_dict", sym_dict),
            ("sym_gen", sym_gen),
            ("default_bucket_key", default_bucket_key),
            ("arg_params", arg_params),
            ("aux_params", aux_params),
        ):
            if value is None:
                raise ModuleError(f"BucketingModule.load: {name} must be given")
        made = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        for key, symbol in sym_dict.items():
            _, data_names, label_names = made._call_sym_gen(key)
            made._buckets[key] = Module(symbol, data_names, label_names, **made._arguments)
        if default_bucket_key not in made._buckets:
            raise ModuleError(
                f"BucketingModule.load: there is no bucket {default_bucket_key!r} among"
                f" {list(made._buckets)}"
            )
        module = made._curr_module = made._buckets[default_bucket_key]
        module._arg_params, module._aux_params = arg_params, aux_params
        module.params_initialized = made.params_initialized = True
        return made
