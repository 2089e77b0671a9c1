"""mx.operator: operators written in Python, and what is known of the others.

An operator runs on a lane of the engine: its forward and backward get NDArrays over the memory of
the call, may call nd functions on them, and what they raise is raised again where the user waits.
"""

from __future__ import annotations

import copy
import itertools
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import ffi, hooks, lib, profiler, push, wait
from ..engine._array import exchange
from ..engine.error import InvalidType, MissingMethod, MXNetError
from ..engine.recent import Recent
from ..kernels import backend
from ..kernels.ops.custom import (
    PROPERTIES,
    Rules,
    custom_operator,
    flag,
    numpy_type,
    operator_of,
    text,
)
from ..kernels.record import MAX_KEPT, REGISTRY, REQUIRED, Operator, lookup
from ..kernels.spec import NUMPY_DTYPES, Spec
from .creation import zeros
from .invoke import invoke
from .ndarray import NDArray, ReadOnly, Scope, from_memory, make

MAX_INSTANCES = 64  # of one operator, whose backward has not run


# ---- what users derive from ----------------------------------------------------------------------


class CustomOp:
    """Base of the computation of a custom operator: define forward and backward.

    Everything they get are NDArrays, lists in the order that the CustomOpProp lists them. The
    instance that ran forward also runs its backward.
    """

    def __init__(self):
        pass

    def forward(self, is_train, req, in_data, out_data, aux) -> None:
        """Computes out_data from in_data. req: for each output write, add, inplace or null: what
        `assign` does with it. aux: auxiliary states, which may be changed."""

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux) -> None:
        """Computes in_grad, the gradients of in_data, from those of out_data."""

    def assign(self, dst, req, src) -> None:
        """Stores src in dst as req says: null nothing, write and inplace overwrite, add adds."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src


class CustomOpProp:
    """Base of the description of a custom operator: its names, shapes, dtypes, and its CustomOp.

    An instance is made for each use, with the keywords of the call as text. need_top_grad: does
    backward read the gradients of the outputs? Loss layers do not.
    """

    def __init__(self, need_top_grad=True):
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape) -> tuple:
        """(shapes of inputs, of outputs, of auxiliary states) from those of the inputs; an unknown
        one is []. By default every output is like the first input."""
        return in_shape, (in_shape[0],) * len(self.list_outputs()), ()

    def infer_type(self, in_type) -> tuple:
        """(dtypes of inputs, of outputs, of auxiliary states) from those of the inputs, NumPy
        types. By default all others are like the first input."""
        first = in_type[0]
        others = [first] * len(self.list_outputs()), [first] * len(self.list_auxiliary_states())
        return in_type, *others

    def infer_storage_type(self, in_stype) -> tuple:
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
        self, ograd_stype, in_stype, out_stype, igrad_stype, aux_stype
    ) -> tuple:
        """The storage types of everything that backward sees: all dense."""
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
        """Names of the auxiliary states: inputs after the others, which forward may change."""
        return []

    def declare_backward_dependency(self, out_grad, in_data, out_data) -> list[int]:
        """Which arrays backward reads, given and returned as numbers; others are zeros there."""
        return [*(out_grad if self.need_top_grad_ else ()), *in_data, *out_data]

    def create_operator(self, ctx, in_shapes, in_dtypes) -> CustomOp:
        """The CustomOp for inputs (and auxiliary states) of these shapes and dtypes (MXNet's type
        flags)."""
        return CustomOp()


class StorageError(MXNetError, AssertionError):
    """A storage type that a custom operator does not take."""


def register(reg_name: str) -> Callable[[type], type]:
    """Decorator of a CustomOpProp: `nd.Custom(x, op_type=reg_name)` then runs its operator."""

    def add(prop_cls):
        PROPERTIES[reg_name] = prop_cls
        for key in [k for k in _eager if k[0] == reg_name]:
            del _eager[key]
        return prop_cls

    return add


# ---- running -------------------------------------------------------------------------------------


class Borrowed:
    """NDArrays over memory that is lent for one call. Those that somebody keeps get a copy."""

    def __init__(self, memory: Sequence[tuple[int, Spec]]):
        self._held: list = []
        self.arrays: list[NDArray] = []
        for address, s in memory:
            pointer = ffi.cast("void *", address) if s.nbytes else ffi.NULL
            memory = s.device.memory
            handle = lib.pl_array_wrap_in(memory, pointer, s.nbytes, ffi.NULL, ffi.NULL)
            self.arrays.append(make(handle, s))
            if ReadOnly.holds(address):
                lib.pl_array_protect(handle)

    def wait(self) -> None:
        """Until everything that was done with them is done. Raises what failed."""
        for a in self.arrays:
            wait(a._handle, for_write=True)

    def end(self) -> None:
        """The memory goes back to its owner."""
        for a in self.arrays:
            try:
                wait(a._handle, for_write=True)
            except MXNetError:
                pass  # raised by wait() above, or hidden by the error that ends the call
        kept = [weakref.ref(a) for a in self.arrays]
        held = [_Handle(lib.pl_array_view(a._handle, 0)) for a in self.arrays]
        self.arrays.clear()
        for ref, h in zip(kept, held):
            wanted = ref()
            if wanted is not None:
                values = wanted._values().copy()
                exchange(wanted, from_memory(values, wanted.context, wanted._spec.dtype))
            if lib.pl_array_users(h._handle) > 1:  # a view of it: the memory is about to go
                push(_gone, writes=[h], name="Custom")
                try:
                    wait(h._handle)
                except MXNetError:
                    pass  # told


class _Handle:
    __slots__ = ("_handle",)

    def __init__(self, handle: int):
        self._handle = handle

    def __del__(self, free=lib.pl_array_free):
        free(self._handle)


def _gone():
    raise MXNetError(
        "Custom: this array is a view of an argument of a custom operator, which ended with its "
        "call\n  fix: keep a copy, x[:2].copy()"
    )


def _token_put(address: int, s: Spec, number: int) -> None:
    """Writes the number of an instance where backward finds it."""
    value = np.full(1, number, NUMPY_DTYPES[s.dtype])
    backend.of(s.device).write(ffi.cast("void *", address), s, value)


def _token_get(address: int, s: Spec) -> int:
    return int(backend.of(s.device).read(ffi.cast("void *", address), s)[0])


class Instances:
    """The CustomOps of one operator: which one ran which forward."""

    def __init__(self, rules: Rules, reuse: bool):
        self._rules, self._reuse = rules, reuse
        self._lock = threading.Lock()
        self._live: OrderedDict[int, Any] = OrderedDict()  # by number; those in use
        self._done: OrderedDict[int, Any] = OrderedDict()  # whose backward has run
        self._next = itertools.count(1).__next__

    def _profiled(self) -> profiler.Task:
        """A span of the user's Python in the profile, under the operator's own name."""
        return profiler.Task("Custom Operator", f"{self._rules.op_type}::pure_python")

    def _take(self, types: tuple, device) -> tuple[int, Any]:
        """An instance for one more forward, and its number."""
        with self._lock:
            wanted = types, device
            again = [n for n, (of, _) in self._done.items() if of == wanted] if self._reuse else ()
            op = self._done.pop(again[0])[1] if again else None
            number = self._next()
        if op is None:
            shapes = [list(t.shape) for t in types]
            op = self._rules.prop.create_operator(device, shapes, [flag(t) for t in types])
        with self._lock:
            self._live[number] = wanted, op
            while len(self._live) > MAX_INSTANCES:
                self._live.popitem(last=False)
        return number, op

    def _of(self, number: int, types: tuple, device):
        with self._lock:
            found = self._live.get(number) or self._done.get(number)
        if found is None:  # it had to make room for others
            number, op = self._take(types, device)
            return op
        return found[1]

    def _release(self, number: int) -> None:
        with self._lock:
            found = self._live.pop(number, None)
            if found is not None:
                self._done[number] = found
            while len(self._done) > (1 if self._reuse else MAX_INSTANCES):
                self._done.popitem(last=False)

    def forward(self, inputs, outputs, train: bool) -> None:
        """CustomOp.forward on memory; the last output is the token."""
        rules, device = self._rules, outputs[-1][1].device
        n = len(rules.arguments)
        number, op = self._take(tuple(s.type for _, s in inputs), device)
        given, results = Borrowed(inputs), Borrowed(outputs[:-1])
        try:
            with device, Scope(False, train), self._profiled():
                op.forward(
                    is_train=train,
                    req=["write"] * len(rules.outputs),
                    in_data=given.arrays[:n],
                    out_data=results.arrays[:],
                    aux=given.arrays[n:],
                )
            results.wait()
            given.wait()
        finally:
            given.end()
            results.end()
        if not train:
            self._release(number)
        address, token = outputs[-1]
        _token_put(address, token, number)

    def backward(self, inputs, outputs, types, reads, train: bool) -> None:
        """CustomOp.backward on memory. types, reads: see Rules.grad."""
        rules, device = self._rules, outputs[0][1].device
        n_out, n_in, n_read = len(rules.outputs), len(rules.arguments), len(reads)
        number = _token_get(*inputs[-1])
        states = [s.type for _, s in inputs[n_read:-1]]
        op = self._of(number, (*types[n_out : n_out + n_in], *states), device)
        given, results = Borrowed(inputs[:-1]), Borrowed(outputs)
        for a in results.arrays:
            if a.context.on_host:
                a._memory()[...] = 0
            else:
                a[:] = 0
        try:
            with device, Scope(False, train), self._profiled():
                arrays = _complete(given.arrays[:n_read], types, reads)
                op.backward(
                    req=["write"] * n_in,
                    out_grad=arrays[:n_out],
                    in_data=arrays[n_out : n_out + n_in],
                    out_data=arrays[n_out + n_in :],
                    in_grad=results.arrays[:],
                    aux=given.arrays[n_read:],
                )
                del arrays
            results.wait()
            given.wait()
        finally:
            given.end()
            results.end()
        self._release(number)


def _complete(arrays, types, reads) -> list[NDArray]:
    """Arrays for all types: those that backward did not ask for are zeros."""
    found = dict(zip(reads, arrays))
    return [found[i] if i in found else zeros(t.shape, dtype=t.dtype) for i, t in enumerate(types)]


# ---- calling -------------------------------------------------------------------------------------

_eager = Recent(MAX_KEPT)  # (op_type, parameters) -> the record of eager calls


def named_inputs(op: Operator, inputs: Sequence, named: dict) -> list:
    """Positional inputs and those given by name in the operator's order; None where one is
    missing."""
    values = list(inputs) + [None] * (len(op.inputs) - len(inputs))
    for name, value in named.items():
        values[op.inputs.index(name)] = value
    while values and values[-1] is None:
        values.pop()
    return values


def Custom(*data, op_type=None, out=None, name=None, **kwargs) -> Any:
    """Runs the custom operator registered as op_type.

    data: its inputs, then its auxiliary states: NDArrays. kwargs: parameters of its CustomOpProp,
    or inputs by name. Returns an array, or a list for several outputs. What the operator raises is
    raised where its results are read.
    """
    inputs = {k: v for k, v in kwargs.items() if isinstance(v, NDArray)}
    given = {"op_type": op_type, **{k: v for k, v in kwargs.items() if k not in inputs}}
    for a in (*data, *inputs.values()):
        if a is not None and hasattr(a, "_compose_operator"):  # a forward that is being traced
            op = custom_operator(given)
            return a._compose_operator(op, named_inputs(op, data, inputs), given)
    key = (op_type, *sorted((k, text(v)) for k, v in given.items()))
    op = _eager[key]
    if op is None:
        if op_type is None:
            given.pop("op_type")
        op = _eager[key] = custom_operator(given, reuse=False)
    return invoke(op, named_inputs(op, data, inputs), given, out)


# ---- the older classes ---------------------------------------------------------------------------


class PythonOp:
    """Base of the oldest kind of operators in Python; an instance applied to Symbols gives a
    Symbol."""

    def __init__(self, need_top_grad=True):
        self.info_ = None
        self.need_top_grad_ = need_top_grad
        warnings.warn("PythonOp has been deprecated. Please use CustomOp", stacklevel=3)

    def __call__(self, *args, **kwargs):
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args, **kwargs) -> Any:
        """A Symbol of the operator on Symbols."""
        raise MissingMethod(f"{type(self).__name__}: derive from NumpyOp or NDArrayOp")

    def forward(self, in_data, out_data) -> None:
        """Computes out_data from in_data, in place."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad, in_data, out_data, in_grad) -> None:
        """Computes in_grad, in place."""
        in_grad[0][:] = 1.0

    def infer_shape(self, in_shape) -> tuple:
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

    def get_symbol(self, *args, **kwargs) -> Any:
        """A Symbol of the operator on Symbols."""
        return self._symbol("_Native", _OnNumpy, args, kwargs)


class NDArrayOp(PythonOp):
    """An operator whose forward and backward work on NDArrays."""

    def get_symbol(self, *args, **kwargs) -> Any:
        """A Symbol of the operator on Symbols."""
        return self._symbol("_NDArray", _OnArrays, args, kwargs)

    def declare_backward_dependency(self, out_grad, in_data, out_data) -> list[int]:
        """Which arrays backward reads, given and returned as numbers."""
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]


class _LegacyProp(CustomOpProp):
    def __init__(self, op: PythonOp, run: type):
        super().__init__(op.need_top_grad())
        self._op, self._run = op, run
        for name in ("list_arguments", "list_outputs", "infer_shape"):
            setattr(self, name, getattr(op, name))
        if hasattr(op, "declare_backward_dependency"):
            setattr(self, "declare_backward_dependency", op.declare_backward_dependency)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return self._run(self._op)


class _OnArrays(CustomOp):
    def __init__(self, op: PythonOp):
        self._op = op

    def forward(self, is_train, req, in_data, out_data, aux):
        self._op.forward(in_data=in_data, out_data=out_data)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self._op.backward(out_grad=out_grad, in_data=in_data, out_data=out_data, in_grad=in_grad)


class _OnNumpy(_OnArrays):
    def forward(self, is_train, req, in_data, out_data, aux):
        results = [a.asnumpy() for a in out_data]
        self._op.forward(in_data=[a.asnumpy() for a in in_data], out_data=results)
        for a, r in zip(out_data, results):
            a[:] = r

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        groups = {"out_grad": out_grad, "in_data": in_data, "out_data": out_data}
        results = [a.asnumpy() for a in in_grad]
        given = {k: [a.asnumpy() for a in v] for k, v in groups.items()}
        self._op.backward(**given, in_grad=results)
        for a, r in zip(in_grad, results):
            a[:] = r


# ---- autograd.Function inside a graph ------------------------------------------------------------


class _FunctionProp(CustomOpProp):
    """An autograd.Function as a custom operator. types: of its outputs."""

    def __init__(self, function, n_in: int, types):
        super().__init__()
        self._function, self._n_in, self._types = function, n_in, types

    def list_arguments(self):
        return [f"arg{i}" for i in range(self._n_in)]

    def list_outputs(self):
        return [f"output{i}" for i in range(len(self._types))]

    def infer_shape(self, in_shape):
        return in_shape, [s.shape for s in self._types], []

    def infer_type(self, in_type):
        return in_type, [numpy_type(s.dtype) for s in self._types], []

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _FunctionOp(self._function)


class _FunctionOp(CustomOp):
    def __init__(self, function):
        self._function = function

    def forward(self, is_train, req, in_data, out_data, aux):
        self._call = copy.copy(self._function)
        for target, r, value in zip(out_data, req, _as_list(self._call.forward(*in_data))):
            self.assign(target, r, value)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
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


def traced_function(function, inputs) -> Any:
    """The call of an autograd.Function on Symbols of a traced block. Its forward runs once on
    zeros, to tell the shapes of its outputs."""
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
    result = inputs[0]._compose_operator(op, list(inputs), {})
    if not isinstance(made, (list, tuple)):
        return result
    return type(made)([type(result)([v]) for v in result._outputs])


# ---- what is known of operators ------------------------------------------------------------------


class OperatorArguments(NamedTuple):
    """An operator's arguments: how many, their names, their types as text."""

    narg: int
    names: list[str]
    types: list[str]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, aliases too."""
    return sorted(REGISTRY)


KINDS = {
    "float": "float",
    "bool": "boolean",
    "str": "string",
    "shape": "Shape(tuple)",
    "int": "int",
}
KINDS |= {"floats": "tuple of <float>", "dtype": "dtype"}


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """The arguments of an operator: inputs first. Raises MXNetError for an unknown name."""
    op = lookup(op_name)
    names = [n.removeprefix("*") for n in op.inputs]
    types = ["NDArray-or-Symbol" + ("[]" if op.variadic else "")] * len(names)
    for p in op.params:
        names.append(p.name)
        if isinstance(p.kind, tuple):
            kind = "{" + ", ".join("None" if k is None else repr(k) for k in sorted(p.kind)) + "}"
        else:
            kind = KINDS[p.kind.removesuffix("?")] + (" or None" if p.kind.endswith("?") else "")
        rest = ", required" if p.default is REQUIRED else f", optional, default={_default(p)}"
        types.append(kind + rest)
    return OperatorArguments(len(names), names, types)


def _default(p) -> str:
    if isinstance(p.default, bool):
        return str(int(p.default))
    return repr(p.default) if isinstance(p.default, str) else str(p.default)


register("custom_op")(CustomOpProp)
