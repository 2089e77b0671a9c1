"""mx.operator: operators written in Python, and information on all operators.

An operator runs on a lane of the engine: its forward and backward get NDArrays over the memory of
the call and may call nd functions on them. Their exceptions are raised again where the user waits.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import ffi, lib, profiler, push, wait
from ..engine._array import exchange
from ..engine.error import MXNetError
from ..engine.recent import Recent
from ..kernels import backend
from ..kernels.ops.custom import (
    PROPERTIES,
    Rules,
    custom_operator,
    flag,
    text,
)
from ..kernels.record import MAX_KEPT, REGISTRY, REQUIRED, Operator, lookup
from ..kernels.spec import NUMPY_DTYPES, Spec
from .creation import zeros
from .custom_op import CustomOp, CustomOpProp, StorageError  # noqa: F401  (offered from here)
from .invoke import invoke, is_symbol
from .ndarray import NDArray, ReadOnly, Scope, from_memory, make
from .python_op import NDArrayOp, NumpyOp, PythonOp  # noqa: F401  (offered from here)

MAX_INSTANCES = 64  # per operator, whose backward has not run


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
    """NDArrays over memory that is borrowed for one call. Arrays still referenced afterwards get a
    copy."""

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
        """Waits for all operations on them. Raises their errors."""
        for a in self.arrays:
            wait(a._handle, for_write=True)

    def end(self) -> None:
        """Returns the memory to its owner."""
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
            # a view of it: the memory is about to be reclaimed
            if lib.pl_array_users(h._handle) > 1:
                push(_gone, writes=[h], name="Custom")
                try:
                    wait(h._handle)
                except MXNetError:
                    pass  # the error set by _gone


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
    """Writes the number of an instance into the token, which backward reads."""
    value = np.full(1, number, NUMPY_DTYPES[s.dtype])
    backend.of(s.device).write(ffi.cast("void *", address), s, value)


def _token_get(address: int, s: Spec) -> int:
    return int(backend.of(s.device).read(ffi.cast("void *", address), s)[0])


class Instances:
    """The CustomOp instances of one operator, and which forward each ran."""

    def __init__(self, rules: Rules, reuse: bool):
        self._rules, self._reuse = rules, reuse
        self._lock = threading.Lock()
        self._live: OrderedDict[int, Any] = OrderedDict()  # in use, by number
        self._done: OrderedDict[int, Any] = OrderedDict()  # backward has run
        self._next = itertools.count(1).__next__

    def _profiled(self) -> profiler.Task:
        """A profiler span for the user's Python code, under the operator's name."""
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
        if found is None:  # it was evicted
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

    def forward(self, inputs: Any, outputs: Any, train: bool) -> None:
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

    def backward(self, inputs: Any, outputs: Any, types: Any, reads: Any, train: bool) -> None:
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
    """Arrays for all types: those that backward does not read are zeros."""
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


def Custom(
    *data: Any, op_type: Any = None, out: Any = None, name: str | None = None, **kwargs: Any
) -> Any:
    """Runs the custom operator registered as op_type.

    data: its inputs, then its auxiliary states: NDArrays. kwargs: parameters of its CustomOpProp,
    or inputs by name. Returns an array, or a list for several outputs. Errors of the operator are
    raised where its results are read.
    """
    inputs = {k: v for k, v in kwargs.items() if isinstance(v, NDArray)}
    given = {"op_type": op_type, **{k: v for k, v in kwargs.items() if k not in inputs}}
    for a in (*data, *inputs.values()):
        if is_symbol(a):  # a forward that is being traced
            op = custom_operator(given)
            return a._call_operator(op, named_inputs(op, data, inputs), given)
    key = (op_type, *sorted((k, text(v)) for k, v in given.items()))
    op = _eager[key]
    if op is None:
        if op_type is None:
            given.pop("op_type")
        op = _eager[key] = custom_operator(given, reuse=False)
    return invoke(op, named_inputs(op, data, inputs), given, out)


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
