"""A network as a list of C calls on one arena, with its weights as the kernels read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...engine import cpu, ffi, lib, wait
from ...engine.error import DynamicShape, MXNetError
from ...gluon.frozen import typed_trace
from ...gluon.trace import Trace
from ...graph.frozen import Prepared
from ...graph.program import Assignment
from ...kernels import backend as backends
from ...kernels.plan import Plan, scalars_of
from ...kernels.record import Type
from ...kernels.spec import spec
from ...kernels.traits import LossLayer
from ...ndarray.creation import zeros

ALIGN_BYTES = 64  # of each array of the weights
ARENA, WEIGHTS = "arena", "weights"


class CompileError(MXNetError):
    """A network that cannot be compiled, and the layer that is the reason."""


class Array(NamedTuple):
    """An input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Slot(NamedTuple):
    """Where an array of a step lies. kind: "input" or "output" (array: its number), ARENA or
    WEIGHTS."""

    kind: str
    array: int
    offset: int


class Step(NamedTuple):
    """One call. struct, params: the C type of its parameters and their values; "" and None where it
    has none. plan: of the call, for what its kernel was made of."""

    name: str
    function: str
    struct: str
    params: Any
    slots: tuple[Slot, ...]
    scalars: tuple[float, ...]
    plan: Plan


class Network(NamedTuple):
    """A lowered network. weights: the bytes that steps read at offsets."""

    name: str
    inputs: list[Array]
    outputs: list[Array]
    steps: list[Step]
    weights: bytes
    arena_bytes: int


def lower(
    block: Any,
    name: str,
    inputs: dict[str, Type],
    optional: Sequence[str],
    outputs: Sequence[str],
    isa: str,
) -> Network:
    """The network of a HybridBlock with parameters, in prediction.

    name: of the network. inputs: by name, in the block's order. optional: the last of them, which
    must not be read and are left out. outputs: their names; none: those of operators. isa: what
    it is for. Raises CompileError.
    """
    device, n_given = cpu(), len(inputs)
    left_out = {i for i, n in enumerate(inputs) if n in optional}
    types = list(inputs.values())
    with device:
        args = [zeros(t.shape, dtype=t.dtype) for t in types]
        try:
            trace = Trace(block, args, False)
        except DynamicShape as error:
            rule = f"compile: {name} has shapes that depend on values: {error}"
            raise CompileError(rule) from None
        trace.finish_parameters()
        trace.compile(name)
        typed = typed_trace(trace, [spec(t.shape, t.dtype, device) for t in types], device)
        parts = Prepared().parts(*typed, device)
    read = [typed.arrays[i] for i in parts.reads]
    arrays = [*read, *parts.constants, *parts.prepared]
    assigned = Assignment(parts.outputs, parts.given, device, 1, 1)
    weights = _Weights()
    first = [
        weights.add(_memory(a)) for a in arrays
    ]  # by the number of a given value, after the inputs
    out_names = outputs or _unique([v.node.name for v in typed.outputs])

    def slot(row: Any) -> Slot:
        kind, index, offset = (int(x) for x in row)
        if kind == lib.PL_SLOT_ARENA:
            return Slot(ARENA, 0, offset)
        if kind == lib.PL_SLOT_OUTPUT:
            return Slot("output", index, offset)
        if index < n_given:
            return Slot("input", index, offset)
        return Slot(WEIGHTS, 0, first[index - n_given] + offset)

    steps, at = [], 0
    for node, plan in zip(assigned.steps, assigned.plans):
        end = at + plan.n_in + plan.n_out
        slots = tuple(slot(row) for row in assigned.slots[at:end])
        at = end
        if plan.op.has(LossLayer):  # their kernels read no label
            slots = tuple(
                Slot(WEIGHTS, 0, weights.add(bytes(plan.in_specs[k].nbytes)))
                if 0 < k < plan.n_in and s.kind == "input" and s.array in left_out
                else s
                for k, s in enumerate(slots)
            )
        steps.append(_step(node, plan, slots, isa))
    kept = {n: t for n, t in inputs.items() if n not in optional}
    taken = {s.array for step in steps for s in step.slots if s.kind == "input"}
    if needs := [n for i, n in enumerate(inputs) if i in taken & left_out]:
        raise CompileError(
            f"compile: {needs[0]} is neither a parameter nor an input, but prediction reads it\n"
            f"  fix: --shape {needs[0]}=SIZE,SIZE,..."
        )
    return Network(
        name,
        [_array(n, t) for n, t in kept.items()],
        [_array(n, v.type) for n, v in zip(out_names, parts.outputs)],
        steps,
        bytes(weights.data),
        assigned.arena_bytes,
    )


def _array(name: str, t: Type) -> Array:
    return Array(name, t.dtype, tuple(t.shape), spec(t.shape, t.dtype, cpu()).nbytes)


def _unique(names: Sequence[str]) -> list[str]:
    """Names of outputs: an operator's own name may come twice."""
    return [n if names.count(n) == 1 else f"{n}{i}" for i, n in enumerate(names)]


class _Weights:
    """The arrays of a network, one after the other; equal ones once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._known: dict[bytes, int] = {}

    def add(self, values: bytes) -> int:
        """The offset of an array with these bytes."""
        if values not in self._known:
            self._known[values] = len(self.data)
            self.data += values + bytes(-len(values) % ALIGN_BYTES)
        return self._known[values]


def _memory(array: Any) -> bytes:
    """What lies in an array's memory, in its layout."""
    wait(array._handle)
    nbytes = array._spec.nbytes
    return bytes(ffi.buffer(lib.pl_array_data(array._handle), nbytes)) if nbytes else b""


def _step(node: Any, plan: Plan, slots: tuple[Slot, ...], isa: str) -> Step:
    """A call as C. Raises CompileError where it is none."""

    def refuse(why: str) -> CompileError:
        shown = ", ".join(f"{s.dtype}{tuple(s.shape)}" for s in plan.in_specs)
        return CompileError(
            f'compile: layer "{node.name or plan.op.name}", operator {plan.op.name}({shown}): {why}'
        )

    if plan.op.is_random(plan.attrs):
        raise refuse("it draws random numbers, whose state plait keeps")
    written = [i for i in plan.mutated if slots[i].kind in ("input", WEIGHTS)]
    if written:
        name = plan.op.names_in(plan.attrs, plan.n_in)[written[0]]
        raise refuse(f"it writes to its input {name}, and a compiled network keeps no state")
    ins, outs = [s.type for s in plan.in_specs], [s.type for s in plan.out_specs]
    found = backends.of(plan.in_specs[0].device if ins else cpu()).kernels.choose(
        plan.op, ins, outs, plan.attrs
    )
    if found is None:
        raise refuse(
            "it has no kernel in C for these arrays and runs in NumPy\n"
            "  fix: `mx.profiler` shows it as a reference; use another operator or dtype, or cut"
            " the network before it"
        )
    if found.python or not re.match("plk_", found.function):
        raise refuse(
            "its kernel runs Python code or a program of other operators, which the engine keeps"
        )
    struct, params = "", None
    if found.params is not None:
        struct, fields = found.params
        params = ffi.new(f"{struct} *", fields)
        if isa == "aarch64" and fields.get("per_unit", 1) > 1:
            raise refuse("its packed weights are in the units of x86-64, not of AArch64")
    return Step(
        node.name or plan.op.name,
        found.function,
        struct,
        (params, found.owner),
        slots,
        scalars_of(node.operation, node.attrs),  # the plan may be that of other numbers
        plan,
    )
