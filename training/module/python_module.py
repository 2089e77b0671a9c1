"""PythonModule and PythonLossModule: modules written in Python, without a symbol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...ndarray import NDArray, functions
from ...symbol.executor import Executor
from ..initializer import Uniform
from .base_module import BaseModule
from .described import ModuleError, descriptions


class PythonModule(BaseModule):
    """Base of modules without parameters: a subclass defines forward, backward, get_outputs and
    _compute_output_shapes."""

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Any = logging,
    ):
        super().__init__(logger=logger)
        self._data_names = list(data_names)
        self._label_names = None if label_names is None else list(label_names)
        self._output_names = list(output_names)
        self._data_shapes: Sequence[Any] | None = None
        self._label_shapes: Sequence[Any] | None = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        return self._output_shapes

    def get_params(self) -> tuple[dict, dict]:
        return {}, {}

    def state_dict(self) -> dict:
        """Empty; a subclass with a state returns it."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Nothing."""

    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: dict[str, NDArray] | None = None,
        aux_params: dict[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """There are no parameters."""
        self.params_initialized = True

    def update(self) -> None:
        """There are no parameters."""

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise ModuleError("PythonModule does not support presliced labels")
        eval_metric.update(labels, self.get_outputs())

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
        """Takes the shapes and finds those of the outputs."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if grad_req != "write":
            raise ModuleError(f"Python module only support write gradient, got {grad_req!r}")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        for names, shapes in ((self._data_names, data_shapes), (self._label_names, label_shapes)):
            if shapes is not None and [x.name for x in descriptions(shapes)] != names:
                raise ModuleError(f"bind: the names must be {names}, got {shapes}")
        self._data_shapes, self._label_shapes = data_shapes, label_shapes
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self):
        """[(name, shape)] of the outputs, from the shapes that were bound."""
        raise self._undefined("_compute_output_shapes")

    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """There is nothing to optimize."""
        self.optimizer_initialized = True


def _computed(array: NDArray | None, by: str) -> NDArray:
    if array is None:
        raise ModuleError(f"there is no result yet: call {by} first")
    return array


class PythonLossModule(PythonModule):
    """A loss at the end of a SequentialModule: passes scores through, and makes their gradient in
    Python.

    grad_func: from (scores, labels) to the gradient, NDArray or NumPy; or a subclass defines
        _backward_impl, which sets self._scores_grad.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | str = ("softmax_label",),
        logger: Any = logging,
        grad_func: Callable[..., Any] | None = None,
    ):
        super().__init__(data_names, label_names, [name + "_output"], logger=logger)
        if len(self._data_names) != 1 or len(self._label_names or ()) != 1:
            raise ModuleError("PythonLossModule: there must be one input and one label")
        if grad_func is not None and not callable(grad_func):
            raise ModuleError(f"PythonLossModule: grad_func must be callable, got {grad_func!r}")
        self._name, self._grad_func = name, grad_func
        self._scores: NDArray | None = None
        self._labels: NDArray | None = None
        self._scores_grad: NDArray | None = None

    def _compute_output_shapes(self):
        return [(self._name + "_output", descriptions(self._data_shapes)[0].shape)]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        return [_computed(self._scores, "forward")]

    def backward(self, out_grads: Any = None) -> None:
        if out_grads is not None:
            raise ModuleError("For a loss module, out_grads should be None")
        if not self.for_training:
            raise ModuleError("re-bind with for_training=True to run backward")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None:
            raise self._undefined("_backward_impl, and has no grad_func")
        grad = self._grad_func(self._scores, self._labels)
        self._scores_grad = grad if isinstance(grad, NDArray) else functions.array(grad)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[NDArray]:
        return [_computed(self._scores_grad, "backward")]

    def executors(self, every: bool = False) -> list[Executor]:
        """There are none."""
        return []

    def install_monitor(self, mon: Any) -> None:
        """There are no operators to watch."""
