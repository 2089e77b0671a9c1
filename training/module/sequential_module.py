"""SequentialModule: a chain of modules; each takes the outputs of the previous one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from ...dist import Group
from ...ndarray.ndarray import NDArray
from ...ndarray.saved_state import copied, merged
from ...symbol.executor import Executor
from ..initializer import Uniform
from .base_module import BaseModule
from .described import ModuleError, descriptions


class SequentialModule(BaseModule):
    """A chain of modules.

    >>> net = mx.mod.SequentialModule()
    >>> first = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    >>> last = mx.sym.SoftmaxOutput(mx.sym.var("scores"), name="softmax")
    >>> _ = net.add(mx.mod.Module(first, label_names=None))
    >>> _ = net.add(mx.mod.Module(last, ["scores"]), take_labels=True, auto_wiring=True)
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging):
        super().__init__(logger=logger)
        self._modules: list[BaseModule] = []
        self._metas: list[dict] = []
        self._label_shapes: Sequence[Any] | None = None
        self._data_shapes: Sequence[Any] | None = None

    def add(self, module: Any, **kwargs: Any) -> SequentialModule:
        """Adds a module at the end; returns self.

        take_labels=True: it gets the labels. auto_wiring=True: its inputs are renamed to the
        outputs of the previous module.
        """
        if not isinstance(module, BaseModule):
            raise ModuleError(
                f"SequentialModule: add takes a module, got {type(module).__name__}\n"
                "  fix: add(mx.mod.Module(symbol))"
            )
        for key in kwargs:
            if key not in (self.META_TAKE_LABELS, self.META_AUTO_WIRING):
                raise ModuleError(f'Unknown meta "{key}", a typo?')
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    @property
    def _ranks(self) -> Group | None:
        return next((m._ranks for m in self._modules if m._ranks is not None), None)

    def state_dict(self) -> dict:
        return {"modules": copied(self._modules)}

    def load_state_dict(self, state: dict) -> None:
        merged(self._modules, state["modules"], "SequentialModule")

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> Any:
        self._need(params=False)
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        self._need(params=False)
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        self._need(params=False)
        return self._modules[-1].output_shapes

    # ---- parameters ------------------------------------------------------------------------------

    def get_params(self) -> tuple[dict, dict]:
        self._need()
        arg_params: dict = {}
        aux_params: dict = {}
        for module in self._modules:
            arg, aux = module.get_params()
            arg_params |= arg
            aux_params |= aux
        return arg_params, aux_params

    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """See BaseModule.init_params. Raises ModuleError where two modules have a name in
        common."""
        if self.params_initialized and not force_init:
            return
        self._need(params=False)
        owner: dict[str, int] = {}
        for i, module in enumerate(self._modules):
            module.init_params(
                initializer=initializer,
                arg_params=arg_params,
                aux_params=aux_params,
                allow_missing=allow_missing,
                force_init=force_init,
                allow_extra=allow_extra,
            )
            for name in [n for params in module.get_params() for n in params]:
                if name in owner:
                    raise ModuleError(
                        f'Duplicated parameter names: name "{name}" in layer {i}'
                        f" ({type(module).__name__}) is already used in layer {owner[name]}"
                    )
                owner[name] = i
        self.params_initialized = True

    # ---- binding ---------------------------------------------------------------------------------

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
        """Binds the modules in order, each for the output shapes of the previous one."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise ModuleError("bind: inputs_need_grad needs for_training=True")
        if shared_module is not None:
            raise ModuleError("Shared module is not supported")
        if not self._modules:
            raise ModuleError("Attempting to bind an empty SequentialModule\n  fix: add(module)")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._label_shapes = None
        shapes = data_shapes
        for i, (module, meta) in enumerate(zip(self._modules, self._metas)):
            labels = None
            if meta.get(self.META_TAKE_LABELS):
                labels = self._label_shapes = label_shapes
            if meta.get(self.META_AUTO_WIRING):
                if len(module.data_names) != len(shapes):
                    raise ModuleError(
                        f"bind: layer {i} takes {module.data_names}, the layer before it gives"
                        f" {len(shapes)} outputs"
                    )
                shapes = [
                    (name, x.shape) for name, x in zip(module.data_names, descriptions(shapes))
                ]
            module.bind(
                data_shapes=shapes,
                label_shapes=labels,
                for_training=for_training,
                inputs_need_grad=bool(inputs_need_grad or for_training and i > 0),
                force_rebind=force_rebind,
                grad_req=grad_req,
            )
            shapes = module.output_shapes
        self.binded = True

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """An optimizer of its own for each module."""
        self._need()
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        for module in self._modules:
            module.init_optimizer(
                kvstore=kvstore,
                optimizer=optimizer,
                optimizer_params=optimizer_params,
                force_init=force_init,
            )
        self.optimizer_initialized = True

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        self._need()
        batch = copy.copy(data_batch)
        for i, module in enumerate(self._modules):
            module.forward(batch, is_train=is_train)
            if i + 1 < len(self._modules):
                batch.data = module.get_outputs()
                following = self._modules[i + 1].data_names
                batch.provide_data = [(name, x.shape) for name, x in zip(following, batch.data)]

    def backward(self, out_grads: Any = None) -> None:
        self._need()
        for i, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads=out_grads)
            if i:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        self._need(optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list:
        self._need()
        return self._modules[-1].get_outputs(merge_multi_context=merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list:
        self._need()
        if not self.inputs_need_grad:
            raise ModuleError("get_input_grads: there are none\n  fix: bind(inputs_need_grad=True)")
        return self._modules[0].get_input_grads(merge_multi_context=merge_multi_context)

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        self._need()
        for module, meta in zip(self._modules, self._metas):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced)

    def executors(self, every: bool = False) -> list[Executor]:
        return [e for module in self._modules for e in module.executors(every)]

    def install_monitor(self, mon: Any) -> None:
        self._need(params=False)
        for module in self._modules:
            module.install_monitor(mon)
