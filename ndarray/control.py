"""Common code of loops and branches: operators whose bodies are graphs, compiled once to programs
that one kernel runs on slices of the arrays. Their gradients are loops and branches too.

    loop.py    inputs (data, states, the rest) -> stacked outputs, final states | hidden outputs
    branch.py  inputs                          -> outputs                      | hidden outputs

Hidden outputs are values that the gradient reads: results of every iteration, the number of
iterations, the branch that was taken. A program computes them only if they are read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..engine import Context, current_context, ffi, lib
from ..engine.device import named
from ..engine.error import DeviceError, OperatorError
from ..graph.graph import Builder, Value, topological, variable
from ..graph.inference import Inference, typed_graph
from ..graph.passes.gradient import gradient
from ..graph.passes.recompute import replayed
from ..graph.program import Program
from ..kernels.native import Native
from ..kernels.record import Operator, Param, Type, dtype_name, lookup, mutated_inputs
from ..kernels.spec import ITEM_BYTES
from ..kernels.traits import Lowered, OwnKernel, Subgraphs
from .ndarray import NDArray

TO_DEVICE = lookup("_to_device")
COUNT = Type((1,), "int64")
CONSTANT = lib.PL_PART_CONSTANT


class Part:
    """A graph inside an operator. variables: its inputs; at: which inputs of the operator they
    are."""

    def __init__(self, outputs: Sequence[Value], variables: Sequence[Value], at: Sequence[int]):
        self.outputs, self.variables, self.at = list(outputs), list(variables), list(at)

    def typed(self, ins: Sequence[Type], train: bool) -> Part:
        """The typed part. ins: types of the operator's inputs, as the part sees them."""
        types = {v.node: ins[i]._replace(layout="") for v, i in zip(self.variables, self.at)}
        values = typed_graph([*self.outputs, *self.variables], types, train)
        n = len(self.outputs)
        return Part(values[:n], values[n:], self.at)

    def fill(self, ins: list[Type | None]) -> list[Type | None]:
        """Infers unknown types of inputs, in place; returns the types of the outputs."""
        known = {v.node: t for v, i in zip(self.variables, self.at) if (t := ins[i]) is not None}
        found = Inference(
            [*self.outputs, *self.variables],
            {n: t.shape for n, t in known.items()},
            {n: t.dtype for n, t in known.items()},
        )
        for v, i in zip(self.variables, self.at):
            if ins[i] is None:
                ins[i] = found.type(v)
        return [found.type(v) for v in self.outputs]

    def must_stay(self, name: str, device: Context) -> None:
        """Raises DeviceError if the graph copies to a device other than its own: its program
        runs inside one operation, whose memory is on one device."""
        for node in topological(self.outputs):
            target = node.op is TO_DEVICE and node.attrs["ctx"]
            if target and named(target).home != device.home:
                raise DeviceError(
                    f"{name}: its body runs on one device, got a copy to {target} in a body on "
                    f"{device}\n  fix: as_in_context or copyto before or after the loop or branch"
                )

    def is_random(self, train: bool) -> bool:
        """Does a run draw random numbers?"""
        return any(
            n.op.is_random(dict(n.attrs, train=train) if n.op.train_aware else n.attrs)
            for n in topological(self.outputs)
            if n.op is not None
        )

    def mutated(self, train: bool) -> set[int]:
        """Which inputs of the operator it writes."""
        at = {v.node: i for v, i in zip(self.variables, self.at)}
        written = set()
        for n in topological(self.outputs):
            if n.op is not None and n.op.mutates:
                attrs = dict(n.attrs, train=train) if n.op.train_aware else n.attrs
                for i in mutated_inputs(n.op, attrs, len(n.inputs)):
                    if n.inputs[i].node in at:
                        written.add(at[n.inputs[i].node])
        return written


class Backward(NamedTuple):
    """The gradient of a part. grads: of its variables, None where there is none. reads: values of
    the forward graph by the variable that stands for them; dys: variables of head gradients, by
    number of output."""

    grads: list[Value | None]
    reads: dict[Value, Value]
    dys: dict[int, Value]


def backward_of(part: Part) -> Backward:
    """The gradient of a typed part; without recomputing the forward graph."""
    forward = set(topological(part.outputs)) | {v.node for v in part.variables}
    dys = {i: variable(f"dy{i}", v.type) for i, v in enumerate(part.outputs)}
    found = gradient(part.outputs, list(dys.values()), part.variables)
    known = {Value(n, i) for n in forward for i in range(len(n.types))} | set(dys.values())
    outputs, used = replayed([g for g in found if g is not None], known, set())
    given = iter(outputs)
    own = set(dys.values())
    reads = {v: x for v, x in used.items() if v not in own}
    return Backward([None if g is None else next(given) for g in found], reads, dys)


def zeros_of(t: Type) -> Value:
    return Builder()._zeros(shape=t.shape, dtype=t.dtype)


def zeros_like(v: Value) -> Value:
    return zeros_of(v.type)


def all_grads(F: Any, dys: Any, ys: Any) -> list:
    """Gradients of all outputs, zeros if missing."""
    return [
        F._zeros(shape=y.shape, dtype=dtype_name(y.dtype)) if d is None else d
        for d, y in zip(dys, ys)
    ]


def type_of(array: NDArray) -> Type:
    return Type(tuple(array.shape), dtype_name(array.dtype))


def nbytes(t: Type) -> int:
    return prod(t.shape) * ITEM_BYTES[t.dtype]


def part_fields(program: Program, sources: Sequence[tuple[int, int, int]], keep: list) -> dict:
    """A pl_part. sources: (kind, number, bytes of a slice) of the variables; keep: a list that
    keeps the referenced memory alive."""
    constant_arrays = list(program.constants)
    if program.prepack is not None:  # only of constants: other values change between iterations
        constant_arrays += program.prepack.results((), -1)
    for a in constant_arrays:
        a.wait_to_read()
    constants = [lib.pl_array_data(a._handle) for a in constant_arrays]
    rows = [*sources, *((CONSTANT, i, 0) for i in range(len(constants)))]
    assert len(rows) == len(program._last_read), "a body's program has other inputs than the body"
    columns = list(zip(*rows)) or [(), (), ()]
    arrays = [
        ffi.new("int32_t[]", columns[0]),
        ffi.new("int32_t[]", columns[1]),
        ffi.new("int64_t[]", columns[2]),
        ffi.new("char *[]", [ffi.cast("char *", c) for c in constants]),
    ]
    keep += [*arrays, *constant_arrays, program]
    fields = ("kinds", "at", "slice_bytes", "constants")
    return {
        "program": program.handle,
        "n_in": len(rows),
        "n_out": program.n_out,
        **dict(zip(fields, arrays)),
    }


def ints(values: Sequence[int], keep: list, kind: str = "int32_t[]") -> Any:
    keep.append(ffi.new(kind, list(values)))
    return keep[-1]


class Control:
    """The common base of loops and branches: a record for each way of running them.

    graphs: the parts as stored in files, params: text parameters; for the user's operators only.
    """

    parts: list[Part]
    grad: Callable[..., list]
    fill: Callable[..., list[Type | None]]
    infer: Callable[[Sequence[Type], bool, bool], list[Type]]
    native: Callable[[Sequence[Type], bool, bool, int], Native]

    def __init__(self, name: str, n_in: int, n_out: int, params: Sequence[str], graphs: Sequence):
        self.name, self.n_in, self.n_out = name, n_in, n_out
        self.params, self.graphs = tuple(params), list(graphs)
        self.operator = functools.cache(self._operator)

    def _operator(self, keeps: bool | None = None, tier: int = 0, n_all: int = 0) -> Operator:
        """The record. keeps: does it compute what the gradient reads? None: in training. n_all:
        the number of visible outputs, if not n_out."""

        def keeping(train):
            return train if keeps is None else keeps

        def infer(ins, train=False, **_):
            return self.infer(ins, train, keeping(train))

        def native(ins, outs, attrs):
            for part in self.parts:
                part.must_stay(self.name, current_context())
            train = attrs.get("train", False)
            return self.native(ins, train, keeping(train), tier)

        def mutates(n, train=False, **_):
            return sorted(set().union(*(p.mutated(train) for p in self.parts)))

        any_written = any(p.mutated(True) for p in self.parts)
        return Operator(
            name=self.name,
            infer=infer,
            ref=_no_reference,
            grad=self.grad,
            fill=self.fill,
            inputs=tuple(f"arg{i}" for i in range(self.n_in)),
            params=tuple(Param(p, "str", "") for p in self.params),
            n_outputs=n_all or self.n_out,
            mutates=mutates if any_written else (),
            random=lambda train=False, **_: any(p.is_random(train) for p in self.parts),
            train_aware=True,
            traits=(
                OwnKernel(native),
                Lowered(lambda read, tier: self.operator(read or n_all > 0, tier, n_all)),
                Subgraphs(self.graphs, self),
            ),
            doc="Control flow whose bodies are graphs.",
        )


def _no_reference(*_, **__):
    raise OperatorError("control flow", "has no reference: its kernel runs programs")


def native_of(
    function: str, struct: str, fields: dict, programs: Any, keep: list, times: int
) -> Native:
    return Native(
        function,
        (struct, fields),
        cost_us=0.3 + times * sum(p.cost_us for p in programs),
        owner=(programs, keep),
        can_fail=any(p.can_fail for p in programs),
        python=True,  # its bodies may run reference functions
    )
