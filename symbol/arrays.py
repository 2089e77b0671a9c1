"""The arrays of an executor: by their names, and under other shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..engine import Context, lib
from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..graph.graph import Node, Value
from ..graph.names import output_names
from ..kernels.spec import spec
from ..ndarray.autograd import pause
from ..ndarray.creation import array, zeros
from ..ndarray.launch import copy_into
from ..ndarray.ndarray import NDArray, make


class BoundArrays:
    """Arrays in the order of a Symbol's arguments, auxiliary states and outputs."""

    arg_arrays: list[NDArray]
    grad_arrays: list[NDArray | None] | None
    aux_arrays: list[NDArray]
    _result: list[NDArray]
    _values: Sequence[Value]
    _arguments: list[Node]
    _auxiliary: list[Node]
    _ctx: Context

    @property
    def outputs(self) -> list[NDArray]:
        """The output arrays: the same memory after every forward, under new handles."""
        return [a.detach() for a in self._result]

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        return self._named([n.name for n in self._arguments], self.arg_arrays, "arguments")

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        if self.grad_arrays is None:
            raise InvalidType(
                "grad_dict: the executor was bound without gradients\n  fix: bind(...,"
                " args_grad=...)"
            )
        return self._named([n.name for n in self._arguments], self.grad_arrays, "arguments")

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        return self._named([n.name for n in self._auxiliary], self.aux_arrays, "auxiliary states")

    @property
    def output_dict(self) -> dict[str, NDArray]:
        return self._named(output_names(self._values), self.outputs, "outputs")

    @staticmethod
    def _named(names, arrays, what):
        if len(set(names)) != len(names):
            double = next(n for n in names if names.count(n) > 1)
            raise InvalidValue(
                f"the {what} must have different names, got {double!r} twice in {names}"
            )
        return dict(zip(names, arrays))

    def copy_params_from(
        self, arg_params: dict, aux_params: dict | None = None, allow_extra_params: bool = False
    ) -> None:
        """Copies named arrays into the arguments and auxiliary states. Raises ValueError for an
        unknown name."""
        for given, known, what in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params, self.aux_dict, "auxiliary states"),
        ):
            for name, value in (given or {}).items():
                if name in known:
                    value = value if isinstance(value, NDArray) else array(value, self._ctx)
                    if value.shape != known[name].shape:
                        raise InvalidValue(
                            f"copy_params_from: {name} must have shape {known[name].shape}, got"
                            f" {value.shape}"
                        )
                    copy_into(value, known[name])
                elif not allow_extra_params:
                    raise InvalidValue(f'Find name "{name}" that is not in the {what}')

    def _set_arguments(self, values: dict):
        arguments = self.arg_dict
        for name, value in values.items():
            if name not in arguments:
                raise InvalidType(
                    f"forward: unknown argument {name}, the arguments are {', '.join(arguments)}"
                )
            target = arguments[name]
            value = (
                value
                if isinstance(value, NDArray)
                else array(np.asarray(value), self._ctx, target._spec.dtype)
            )
            if value.shape != target.shape:
                raise InvalidValue(
                    f"Shape not match! Argument {name}, need: {target.shape}, received:"
                    f" {value.shape}"
                )
            with pause():
                copy_into(value, target)


def reshaped(name: str, old: NDArray, shape: tuple[int, ...], allow_up_sizing: bool) -> NDArray:
    """An array of another shape: the beginning of the old one, or, larger, a new one. Raises
    MXNetError where that is not allowed."""
    if old.shape == shape:
        return old
    if old.stype != "default":
        return zeros(shape, old.context, old._spec.dtype, stype=old.stype)
    s = spec(tuple(shape), old._spec.dtype, old._spec.device)
    if s.size <= old.size:
        return _view(old, s)
    if not allow_up_sizing:
        raise MXNetError(
            f"reshape: New shape of arg: {name} is larger than original: {shape} and {old.shape}."
            " First making a big executor and then down sizing it is more efficient than the"
            " reverse\n  fix: allow_up_sizing=True"
        )
    return zeros(shape, s.device, s.dtype)


def keep_memory(before: Sequence[NDArray], after: list[NDArray]) -> None:
    """Puts arrays into the memory of earlier ones where they fit."""
    for i, (old, new) in enumerate(zip(before, after)):
        a, b = old._spec, new._spec
        same = (a.dtype, a.device, a.stype) == (b.dtype, b.device, b.stype)
        if same and a.stype == "default" and b.size <= a.size:
            after[i] = _view(old, b)


def _view(a: NDArray, s) -> NDArray:
    """The memory of an array, or its beginning, under a spec."""
    return make(lib.pl_array_view(a._handle, 0), s)
