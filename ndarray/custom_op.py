"""The base classes of operators in Python: CustomOp and CustomOpProp."""

from __future__ import annotations

from typing import Any

from ..engine import Context
from ..engine.error import MXNetError


class CustomOp:
    """Base of the computation of a custom operator: define forward and backward.

    Their arguments are lists of NDArrays, in the order of the CustomOpProp's lists. The
    instance that ran forward also runs its backward.
    """

    def __init__(self) -> None:
        pass

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        """Computes out_data from in_data. req: for each output write, add, inplace or null, see
        `assign`. aux: auxiliary states, which may be changed."""

    def backward(
        self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any
    ) -> None:
        """Computes in_grad, the gradients of in_data, from those of out_data."""

    def assign(self, dst: Any, req: Any, src: Any) -> None:
        """Stores src in dst according to req: null nothing, write and inplace overwrite, add
        adds."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src


class CustomOpProp:
    """Base of the description of a custom operator: its names, shapes, dtypes, and its CustomOp.

    An instance is made for each use, with the keywords of the call as text. need_top_grad: does
    backward read the gradients of the outputs? Loss layers do not.
    """

    def __init__(self, need_top_grad: bool = True):
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape: Any) -> tuple:
        """(shapes of inputs, of outputs, of auxiliary states) from those of the inputs; an unknown
        one is []. By default every output is like the first input."""
        return in_shape, (in_shape[0],) * len(self.list_outputs()), ()

    def infer_type(self, in_type: Any) -> tuple:
        """(dtypes of inputs, of outputs, of auxiliary states) from those of the inputs, NumPy
        types. By default all others are like the first input."""
        first = in_type[0]
        others = [first] * len(self.list_outputs()), [first] * len(self.list_auxiliary_states())
        return in_type, *others

    def infer_storage_type(self, in_stype: Any) -> tuple:
        """(storage types of inputs, of outputs, of auxiliary states); custom operators of plait
        get dense arrays."""
        for i, stype in enumerate(in_stype):
            if stype != "default":
                raise StorageError(
                    f"{type(self).__name__}.infer_storage_type: in_stype[{i}] must be default, got "
                    f"{stype!r}\n  fix: override infer_storage_type"
                )
        n_out, n_aux = len(self.list_outputs()), len(self.list_auxiliary_states())
        return in_stype, ["default"] * n_out, ["default"] * n_aux

    def infer_storage_type_backward(
        self, ograd_stype: Any, in_stype: Any, out_stype: Any, igrad_stype: Any, aux_stype: Any
    ) -> tuple:
        """The storage types of all arguments of backward: all dense."""
        groups = ograd_stype, in_stype, out_stype, igrad_stype, aux_stype
        for group in groups:
            group[:] = ["default"] * len(group)
        return groups

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the auxiliary states: the last inputs, which forward may change."""
        return []

    def declare_backward_dependency(self, out_grad: Any, in_data: Any, out_data: Any) -> list[int]:
        """Which arrays backward reads, given and returned as indices; backward gets zeros for the
        others."""
        return [*(out_grad if self.need_top_grad_ else ()), *in_data, *out_data]

    def create_operator(self, ctx: Context, in_shapes: Any, in_dtypes: Any) -> CustomOp:
        """The CustomOp for inputs (and auxiliary states) of these shapes and dtypes (MXNet's type
        flags)."""
        return CustomOp()


class StorageError(MXNetError, AssertionError):
    """A storage type that a custom operator does not support."""
