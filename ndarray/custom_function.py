"""An autograd.Function in a graph: the operator that a traced block calls."""

from __future__ import annotations

import copy
from typing import Any

from ..engine import Context
from ..engine.error import InvalidType, MXNetError
from ..kernels.ops.custom import (
    Rules,
    numpy_type,
    operator_of,
)
from .creation import zeros
from .custom_op import CustomOp, CustomOpProp
from .ndarray import Scope


class _FunctionProp(CustomOpProp):
    """An autograd.Function as a custom operator. types: of its outputs."""

    def __init__(self, function: Any, n_in: int, types: Any):
        super().__init__()
        self._function, self._n_in, self._types = function, n_in, types

    def list_arguments(self) -> list[Any]:
        return [f"arg{i}" for i in range(self._n_in)]

    def list_outputs(self) -> list[Any]:
        return [f"output{i}" for i in range(len(self._types))]

    def infer_shape(self, in_shape: Any) -> Any:
        return in_shape, [s.shape for s in self._types], []

    def infer_type(self, in_type: Any) -> Any:
        return in_type, [numpy_type(s.dtype) for s in self._types], []

    def create_operator(self, ctx: Context, in_shapes: Any, in_dtypes: Any) -> Any:
        return _FunctionOp(self._function)


class _FunctionOp(CustomOp):
    def __init__(self, function: Any):
        self._function = function

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self._call = copy.copy(self._function)
        for target, r, value in zip(out_data, req, _as_list(self._call.forward(*in_data))):
            self.assign(target, r, value)

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        grads = _as_list(self._call.backward(*out_grad))
        if len(grads) != len(in_grad):
            raise MXNetError(
                f"{type(self._call).__name__}.backward must return a gradient for each of the"
                f" {len(in_grad)} inputs of forward, got {len(grads)}"
            )
        for target, r, value in zip(in_grad, req, grads):
            if value is not None:
                self.assign(target, r, value)


def _as_list(value) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def traced_function(function: Any, inputs: Any) -> Any:
    """The call of an autograd.Function on Symbols of a traced block. Its forward runs once on
    zeros, to infer the shapes of its outputs."""
    try:
        arrays = [zeros(s.shape, dtype=s.dtype) for s in inputs]
    except AttributeError as error:
        raise InvalidType(
            f"{type(function).__name__}: an autograd.Function on Symbols needs their shapes, which"
            " only hybridized blocks know\n  fix: mx.operator.CustomOp"
        ) from error
    with Scope(False, None):
        made = copy.copy(function).forward(*arrays)
    types = [a._spec.type for a in _as_list(made)]
    prop = _FunctionProp(function, len(inputs), types)
    op = operator_of(Rules(type(function).__name__, prop, True), (), "_CustomFunction")
    result = inputs[0]._call_operator(op, list(inputs), {})
    if not isinstance(made, (list, tuple)):
        return result
    return type(made)([type(result)([v]) for v in result._outputs])
