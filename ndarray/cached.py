"""CachedGraph: a graph called like a function on arrays; what hybridize, and nothing else, runs.

One entry per signature (input specs, training, which inputs want gradients) holds a lowered
program. While recording, the program also returns the residuals that the backward graph reads, and
the call is one node of the tape.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import current_context, location
from ..engine.error import MXNetError
from ..kernels.plan import make_plan, mutated_inputs, scalars_of
from ..symbol.graph import Node, Value, rewrite, topological, variable
from ..symbol.inference import typed_graph
from ..symbol.passes.gradient import FLOATING, gradient
from ..symbol.program import lower
from . import autograd
from .invoke import run_all
from .ndarray import NDArray, state
from .tape import TapeNode, entries_of, next_seq, record, shadow

MAX_ENTRIES = 256


class _Entry:
    """A graph compiled for one signature. On the tape it stands where a Plan stands for an
    operator."""

    __slots__ = (
        "hits",
        "in_specs",
        "kept",
        "n_out",
        "out_specs",
        "outputs",
        "program",
        "saved",
        "variables",
    )

    def expand(self, inputs: Sequence[Value], scalars):
        """The graph with its variables replaced: (outputs, what TapeNode.saved numbers)."""
        start = {v.node: [x] for v, x in zip(self.variables, inputs)}
        values = rewrite([*self.outputs, *self.kept], lambda node, new: None, start)
        return values[: self.n_out], values

    def eager_grads(self, node: TapeNode, dys, create_graph: bool):
        """Gradients by replaying the graph operator by operator, so that they can be differentiated
        again."""
        since = next_seq()
        inputs = [autograd.with_entry(a, e) for a, e in zip(node.inputs, node.entries)]
        with autograd.record():
            outs = self._replay(inputs, node.saved or {})
        return autograd.interpret(outs, dys, [e for e in node.entries], create_graph, since)

    def _replay(self, inputs, saved) -> list[NDArray]:
        fixed = {v: saved[i] for i, v in enumerate([*self.outputs, *self.kept]) if i in saved}
        arrays: dict[Value, NDArray] = dict(zip(self.variables, inputs))
        device = inputs[0]._spec.device
        for node in topological(self.outputs):
            if node.op is None:
                continue
            values = [Value(node, i) for i in range(len(node.types))]
            ins = [arrays[v] for v in node.inputs]
            for i in mutated_inputs(node.op, node.attrs, len(ins)):
                ins[i] = ins[i].copy()
            plan = make_plan(node.op, node.attrs, [a._spec for a in ins], device)
            scalars = scalars_of(node.op, node.attrs)
            if node.op.is_random(node.attrs) and all(v in fixed for v in values):
                # not drawn again, but on the tape as if they were
                outs = [shadow(fixed[v]) for v in values]
                record(plan, ins, scalars, outs)
            else:
                outs = run_all(plan, ins, scalars)
            arrays.update(zip(values, outs))
        return [arrays[v] for v in self.outputs]


class CachedGraph:
    """Calls a graph on arrays.

    outputs: values of a typed or untyped graph. inputs: its variables, in the order in which arrays
        will be given.
    """

    def __init__(self, outputs: Sequence[Value], inputs: Sequence[Value], name: str = "graph"):
        self.outputs, self.inputs, self.name = list(outputs), list(inputs), name
        self.entries: dict[tuple, _Entry] = {}

    def __call__(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Runs the graph. Returns one array for each output. Raises what inference raises for wrong
        shapes."""
        entries = entries_of(arrays) if state.recording else None
        wanted = () if entries is None else tuple([e is not None for e in entries])
        key = (state.training, wanted, *[a._spec for a in arrays])
        entry = self.entries.get(key)
        if entry is None:
            entry = self._compile(arrays, wanted)
            if len(self.entries) >= MAX_ENTRIES:
                self.entries.clear()
            self.entries[key] = entry
        entry.hits += 1
        program = entry.program
        made = program.run(arrays, (), location.capture() if program.can_fail else -1)
        outs = made[: entry.n_out]
        if entries is not None:
            node = TapeNode()
            node.plan, node.inputs, node.scalars = entry, tuple(arrays), ()
            node.entries = entries
            node.seq = next_seq()
            node.saved = {i: shadow(outs[i]) for i in entry.saved}
            node.saved.update((i, a) for i, a in enumerate(made[entry.n_out :], entry.n_out))
            for i, out in enumerate(outs):
                out._tape = (node, i)
        return outs

    def _compile(self, arrays, wanted) -> _Entry:
        device = arrays[0]._spec.device if arrays else current_context()
        for a in arrays:
            if a._spec.device != device:
                raise MXNetError(
                    f"{self.name}: all inputs must be on one device, got {device} and"
                    f" {a._spec.device}"
                )
        variables = [
            variable(v.node.name, a._spec.type, v.node.extra) for v, a in zip(self.inputs, arrays)
        ]
        named = rewrite(
            self.outputs,
            lambda node, new: None,
            {v.node: [x] for v, x in zip(self.inputs, variables)},
        )
        fixed = {x.node: x.type for x in variables}
        retyped = typed_graph([*named, *variables], fixed, state.training)
        outputs, variables = retyped[: len(named)], retyped[len(named) :]
        entry = _Entry()
        entry.outputs, entry.variables, entry.n_out, entry.hits = (
            outputs,
            variables,
            len(outputs),
            0,
        )
        entry.in_specs = tuple(a._spec for a in arrays)
        entry.kept, entry.saved = [], ()
        if wanted:
            needed = residuals(outputs, [v for v, w in zip(variables, wanted) if w])
            entry.kept = [v for v in needed if v not in outputs]
            entry.saved = tuple(i for i, v in enumerate(outputs) if v in needed)
        entry.program = lower([*outputs, *entry.kept], variables, device, self.name)
        entry.out_specs = entry.program.out_specs[: entry.n_out]
        return entry


def residuals(outputs: Sequence[Value], wrt: Sequence[Value]) -> list[Value]:
    """Forward results that the gradient of a graph reads: what must be kept between forward and
    backward.

    Results of random operators are always kept: they cannot be computed again.
    """
    heads = [v for v in outputs if v.dtype in FLOATING]
    forward = set(topological(outputs))
    dys = [variable(f"dy{i}", h.type) for i, h in enumerate(heads)]
    grads = [g for g in gradient(heads, dys, wrt) if g is not None]
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(grads)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v.node in forward:
            if v.node.op is not None:
                found[v] = None
        else:
            stack.extend(v.node.inputs)
    for node in forward:
        if node.op is not None and node.op.is_random(node.attrs):
            found.update((Value(node, i), None) for i in range(len(node.types)))
    return _through_views(found, forward)


def _through_views(found: dict[Value, None], forward: set[Node]) -> list[Value]:
    """A view of something costs nothing to make again: keep what it looks at instead."""
    kept: dict[Value, None] = {}
    for v in found:
        while v.node.op is not None and v.node.op.view:
            v = v.node.inputs[0]
        if v.node.op is not None:
            kept[v] = None
    return list(kept)
