"""The older base classes of operators in Python: NumpyOp and NDArrayOp."""

from __future__ import annotations

import warnings
from typing import Any

from ..engine import Context, hooks
from ..engine.error import MissingMethod
from ..kernels.ops.custom import (
    Rules,
    operator_of,
)
from .custom_op import CustomOp, CustomOpProp


class PythonOp:
    """Base of the older operators in Python; an instance applied to Symbols returns a Symbol."""

    def __init__(self, need_top_grad: bool = True):
        self.info_ = None
        self.need_top_grad_ = need_top_grad
        warnings.warn("PythonOp has been deprecated. Please use CustomOp", stacklevel=3)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """A Symbol of the operator on Symbols."""
        raise MissingMethod(f"{type(self).__name__}: derive from NumpyOp or NDArrayOp")

    def forward(self, in_data: Any, out_data: Any) -> None:
        """Computes out_data from in_data, in place."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any) -> None:
        """Computes in_grad, in place."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape: Any) -> tuple:
        """(shapes of inputs, of outputs)."""
        return in_shape, [in_shape[0]]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def need_top_grad(self) -> bool:
        """Does backward read the gradients of the outputs?"""
        return self.need_top_grad_

    def _symbol(self, name: str, run: type, args, kwargs):
        op = operator_of(Rules(type(self).__name__, _LegacyProp(self, run), True), (), name)
        return hooks.get("symbol of a custom operator")(op, name.lower(), args, {}, kwargs)


class NumpyOp(PythonOp):
    """An operator whose forward and backward work on NumPy arrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """A Symbol of the operator on Symbols."""
        return self._symbol("_Native", _OnNumpy, args, kwargs)


class NDArrayOp(PythonOp):
    """An operator whose forward and backward work on NDArrays."""

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """A Symbol of the operator on Symbols."""
        return self._symbol("_NDArray", _OnArrays, args, kwargs)

    def declare_backward_dependency(self, out_grad: Any, in_data: Any, out_data: Any) -> list[int]:
        """Which arrays backward reads, given and returned as indices."""
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]


class _LegacyProp(CustomOpProp):
    def __init__(self, op: PythonOp, run: type):
        super().__init__(op.need_top_grad())
        self._op, self._run = op, run
        for name in ("list_arguments", "list_outputs", "infer_shape"):
            setattr(self, name, getattr(op, name))
        if hasattr(op, "declare_backward_dependency"):
            setattr(self, "declare_backward_dependency", op.declare_backward_dependency)

    def create_operator(self, ctx: Context, in_shapes: Any, in_dtypes: Any) -> Any:
        return self._run(self._op)


class _OnArrays(CustomOp):
    def __init__(self, op: PythonOp):
        self._op = op

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self._op.forward(in_data=in_data, out_data=out_data)

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        self._op.backward(out_grad=out_grad, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _OnNumpy(_OnArrays):
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        results = [a.asnumpy() for a in out_data]
        self._op.forward(in_data=[a.asnumpy() for a in in_data], out_data=results)
        for a, r in zip(out_data, results):
            a[:] = r

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        groups = {"out_grad": out_grad, "in_data": in_data, "out_data": out_data}
        results = [a.asnumpy() for a in in_grad]
        given = {k: [a.asnumpy() for a in v] for k, v in groups.items()}
        self._op.backward(**given, in_grad=results)
        for a, r in zip(in_grad, results):
            a[:] = r
