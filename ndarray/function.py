"""autograd.Function: an operation whose forward and backward are Python methods."""

from __future__ import annotations

from typing import Any

from ..engine.error import MXNetError, compose
from . import autograd
from .invoke import is_symbol
from .ndarray import NDArray, check_nd, state
from .tape import record, shadow


class UsedFunction(MXNetError, AssertionError):
    """A Function instance was called a second time."""


class Function:
    """Base of operations with their own gradient. A subclass defines forward and backward; an
    instance is called once.

    forward(*inputs) computes the outputs from NDArrays, unrecorded. backward(*output gradients)
    returns a gradient for each input (None: zero). Both see the attributes of the instance;
    `save_for_backward(*arrays)` stores arrays for backward, in `saved_tensors`.
    With create_graph, backward itself is recorded.

    >>> class Sigmoid(autograd.Function):
    ...     def forward(self, x):
    ...         y = 1 / (1 + nd.exp(-x))
    ...         self.save_for_backward(y)
    ...         return y
    ...     def backward(self, dy):
    ...         y, = self.saved_tensors
    ...         return dy * y * (1 - y)
    """

    _saved: tuple = ()
    _used = False

    def save_for_backward(self, *args: Any) -> None:
        """Keeps arrays that backward needs."""
        self._saved = args

    @property
    def saved_tensors(self) -> tuple:
        """The arrays stored by save_for_backward."""
        return self._saved

    def __call__(self, *inputs: Any) -> Any:
        if self._used:
            raise UsedFunction(
                compose(
                    f"{type(self).__name__}: a Function instance can only be called once",
                    fix="make another instance for each call",
                )
            )
        self._used = True
        if any(is_symbol(a) for a in inputs):
            from .custom_function import traced_function  # needed only by traced blocks

            return traced_function(self, inputs)
        with autograd.pause(train_mode=state.training):
            outputs = self.forward(*inputs)
        if not state.recording:
            return outputs
        return self._recorded(inputs, outputs)

    def _recorded(self, inputs, outputs):
        name = type(self).__name__
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        for a in inputs:
            check_nd(a, f"{name}: every input of a recorded Function")
        for r in results:
            check_nd(r, f"{name}: every output of forward")
        # the user gets different objects than forward may have saved, to avoid a cycle through the
        # tape
        made = [shadow(r) for r in results]
        call = _Call(self, results, made)
        record(call, inputs, (), made)
        return type(outputs)(made) if isinstance(outputs, (list, tuple)) else made[0]

    def forward(self, *inputs: Any) -> Any:
        """Computes the outputs: an NDArray, or a tuple of them."""
        raise MXNetError(f"{type(self).__name__}: a Function must define forward(self, *inputs)")

    def backward(self, *output_grads: Any) -> Any:
        """Computes the gradients of the inputs: an NDArray, or a tuple of them."""
        raise MXNetError(
            f"{type(self).__name__}: a Function must define backward(self, *output_grads)"
        )


class _Call:
    """Takes the place of a Plan in a tape node."""

    python = True
    saved = unread = ()

    def __init__(self, function: Function, results: Any, made: Any):
        self.function = function
        self.out_specs = tuple(m._spec for m in made)
        self.saved_outputs = {
            k: i
            for k, s in enumerate(function.saved_tensors)
            for i, r in enumerate(results)
            if s is r
        }

    def eager_grads(self, node: Any, dys: Any, create_graph: bool) -> Any:
        """Gradients of the inputs. Called with recording on exactly if create_graph."""
        function, name = self.function, type(self.function).__name__
        kept = function._saved
        if create_graph:  # outputs stored by forward are now on the tape
            function._saved = tuple(
                (
                    autograd.with_entry(s, (node, self.saved_outputs[k]))
                    if k in self.saved_outputs
                    else s
                )
                for k, s in enumerate(kept)
            )
        try:
            grads = function.backward(*dys)
        finally:
            function._saved = kept
        grads = list(grads) if isinstance(grads, (list, tuple)) else [grads]
        if len(grads) != len(node.inputs):
            raise MXNetError(
                f"{name}.backward must return a gradient for each of the {len(node.inputs)} "
                f"inputs of forward, got {len(grads)}"
            )
        for i, (g, x) in enumerate(zip(grads, node.inputs)):
            if g is not None and not isinstance(g, NDArray):
                raise MXNetError(
                    f"{name}.backward must return NDArrays, got {type(g).__name__} for input {i}"
                )
            if g is not None and g.shape != x.shape:
                raise MXNetError(
                    f"{name}.backward: the gradient of input {i} must have its shape "
                    f"{x.shape}, got {g.shape}"
                )
        return grads


setattr(autograd, "Function", Function)
