"""CachedGraph: a graph called like a function on arrays; what hybridize, and nothing else, runs.

One entry per signature (input specs, training, which inputs want gradients) holds a lowered
program, which is swapped for a better one when the signature repeats. While recording, the program
also returns the residuals that the backward graph reads, and the call is one node of the tape.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence

from ..engine import current_context, location, log
from ..engine.error import DynamicShape
from ..engine.gc_pause import gc_paused
from ..engine.recent import Recent
from ..graph.digest import digest
from ..graph.graph import Node, Value, rewrite, topological, values_of
from ..graph.inference import typed_graph
from ..graph.passes import before_gradient
from ..graph.placement import Placement, crosses, lower
from ..graph.tiers import Tiered, waiting
from ..kernels.plan import make_plan, scalars_of
from ..kernels.record import mutated_inputs
from ..kernels.traits import Rematerializes
from . import autograd, functions
from .backward import queued_with, summary
from .interpreter import call, run_nodes, run_plan
from .ndarray import NDArray, state
from .residuals import free, residuals
from .sparse.graphs import has_sparse
from .tape import TapeNode, entries_of, next_seq, record, shadow

MAX_ENTRIES = 2048  # signatures of a graph that stay compiled,
# and of how many instructions in all: each takes about 4 KB, backward included
MAX_INSTRUCTIONS = 1 << 16


class GraphPlan:
    """A typed graph compiled at one tier. On the tape it stands where a Plan stands for an
    operator.

    kept: residuals, which the program returns after the outputs. saved: what the tape keeps, as
    numbers of outputs and residuals. layouts: of those that are not row-major, by number. newer:
    the plan of a higher tier, once there is one. entry: whose plan it is, held weakly.
    """

    scalars = unread = ()

    def __init__(self, entry: _Entry, tier: int):
        start = time.perf_counter()
        self.outputs, self.variables, self.in_specs = entry.outputs, entry.variables, entry.in_specs
        devices = [s.device for s in self.in_specs]
        if tier and not entry.recompute and len({d.device_type for d in devices}) < 2:
            self.outputs = before_gradient(self.outputs, entry.device.device_type)
        self.tier, self.entry = tier, weakref.ref(entry)
        self.newer: GraphPlan | None = None
        self.n_out = len(self.outputs)
        self.kept, shadowed = entry.residuals(self.outputs, tier)
        self.shadowed = tuple(shadowed)
        self.saved = (*shadowed, *range(self.n_out, self.n_out + len(self.kept)))
        self.program = lower(
            [*self.outputs, *self.kept],
            self.variables,
            devices or entry.device,
            entry.name,
            tier=tier,
            stable=entry.stable,
            free=free(self.kept, self.n_out),
        )
        specs = self.kept_specs = self.program.out_specs  # by the numbers in `saved`
        self.out_specs = specs[: self.n_out]
        self.layouts = {i: specs[i].layout for i in self.saved if specs[i].layout}
        self.seconds = time.perf_counter() - start

    def structure(self) -> str:
        """A name that is the same in every process; while the entry lives."""
        entry = self.entry()
        return f"{entry.structure() if entry is not None else 'gone'} at tier {self.tier}"

    def expand(self, inputs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """The graph with its variables replaced: (outputs, what `saved` numbers)."""
        start = {v.node: [x] for v, x in zip(self.variables, inputs)}
        values = rewrite([*self.outputs, *self.kept], None, start)
        return values[: self.n_out], values

    def eager_grads(self, node: TapeNode, dys, create_graph: bool) -> list:
        """Gradients by replaying the graph operator by operator, so that they can be differentiated
        again."""
        since = next_seq()
        assert node.inputs is not None and node.entries is not None
        inputs = [autograd.with_entry(a, e) for a, e in zip(node.inputs, node.entries)]
        with autograd.record():
            outs = self._replay(inputs, node.saved or {})
        return autograd.interpret(outs, dys, list(node.entries), create_graph, since)

    def _replay(self, inputs, saved) -> list[NDArray]:
        fixed = {v: saved[i] for i, v in enumerate([*self.outputs, *self.kept]) if i in saved}
        devices = {v: a._spec.device for v, a in zip(self.variables, inputs)}
        place = Placement(self.outputs, devices, inputs[0]._spec.device)

        def compute(node: Node, ins: list[NDArray]) -> list[NDArray]:
            values, device = values_of(node), place.of(node)
            for i in mutated_inputs(node.operation, node.attrs, len(ins)):
                ins[i] = ins[i].copy()
            if node.operation.is_random(node.attrs) and all(v in fixed for v in values):
                # not drawn again, but on the tape as if they were
                outs = [shadow(fixed[v]) for v in values]
                plan = make_plan(node.operation, node.attrs, [a._spec for a in ins], device)
                record(plan, ins, scalars_of(node.operation, node.attrs), outs)
                return outs
            if node.operation.is_random(node.attrs) and all(v in fixed for v in values[1:]):
                found = node.operation.trait(Rematerializes)
                assert found is not None  # else residuals() keeps every output
                kept = [shadow(fixed[v]) for v in values[1:]]
                return [found.rule(functions, ins, [None, *kept], **node.attrs), *kept]
            return run_plan(node, ins, device)

        return run_nodes(self.outputs, dict(zip(self.variables, inputs)), compute)


class _Entry(Tiered):
    """What one signature runs now, and how to make it better."""

    def __init__(self, graph: CachedGraph, outputs, variables, bounds, in_specs, device, wanted):
        """wanted: for each variable, is its gradient wanted? () while not recording."""
        self.name, self.n_data = graph.name, graph.n_data
        self.recompute, self.bounds = graph.recompute, bounds
        self.outputs, self.variables = outputs, variables
        self.in_specs, self.device = in_specs, device
        predicts = not wanted and not state.training
        # variables whose arrays seldom change
        self.stable = tuple(variables[graph.n_data :]) if predicts else ()
        self.wanted = [v for v, w in zip(variables, wanted) if w]
        self.plan = GraphPlan(self, 0)
        self._steps = 0  # of its gradients, when this was last due
        self._structure = ""
        self.begin()

    counted = (*Tiered.counted, "_steps")

    def structure(self) -> str:
        if not self._structure:
            specs = [(repr(s), s.stype, s.layout) for s in self.in_specs]
            wanted = set(self.wanted)
            mode = [v in wanted for v in self.variables], len(self.stable), self.recompute
            self._structure = digest(self.outputs, self.variables, *mode, specs)
        return self._structure

    def restart(self) -> None:
        self.plan = GraphPlan(self, 0)

    def __str__(self):
        return f"{self.name} on {', '.join(map(str, self.in_specs[: self.n_data]))}"

    def residuals(self, outputs: Sequence[Value], tier: int) -> tuple[list[Value], list[int]]:
        """(what the program returns besides the outputs, which outputs are kept too)."""
        if not self.wanted:
            return [], []
        needed = residuals(outputs, self.wanted, tier, self.recompute, self.bounds)
        needed_set, output_set = set(needed), set(outputs)
        return (
            [v for v in needed if v not in output_set],
            [i for i, v in enumerate(outputs) if v in needed_set],
        )

    def work(self) -> tuple[int, float]:
        n_nodes = sum(n.op is not None for n in topological(self.outputs))
        # backward costs about twice as much as forward
        return n_nodes, self.plan.program.cost_us * (3 if self.wanted else 1)

    def compile(self) -> GraphPlan:
        plan = self.plan.newer = GraphPlan(self, 1)
        return plan

    def waits_for_others(self) -> bool:
        """As long as its gradients are in use, they decide: backward runs between two steps, so no
        tape gets calls of both tiers."""
        steps = sum(b.hits for b in queued_with(self.plan)) + waiting(self.plan)
        before, self._steps = self._steps, steps
        return self._steps > before

    def publish(self, made: GraphPlan) -> None:
        before, self.plan = self.plan, made
        for gradients in queued_with(before):
            gradients.change()
        log.write("hybridize", f"{self}: tier 1 from call {self.change_at} on, {summary(made)}")


def difference(before: Sequence, now: Sequence, trains: bool, names: Sequence[str] = ()) -> str:
    """Explains how two signatures (Specs, in their order) differ. trains: whether the training mode
    differs."""
    if len(before) != len(now):
        return f"the number of inputs was {len(before)}"
    found = ["the training mode changed"] if trains else []
    for i, (a, b) in enumerate(zip(before, now)):
        for what in ("shape", "dtype", "device"):
            old, new = getattr(a, what, a), getattr(b, what, b)
            if old != new:
                name = names[i] if i < len(names) else f"input {i}"
                found.append(f"the {what} of {name} was {old}")
    return ", ".join(found) or "the values of constants changed"


def weight(entry: _Entry) -> int:
    """The instructions of a signature's program."""
    return len(entry.plan.program.plans)


class CachedGraph:
    """Calls a graph on arrays.

    outputs: values of a typed or untyped graph. inputs: its variables, in the order in which arrays
        will be given; those from number `n_data` on are parameters, which change seldom in
        prediction. recompute: what backward computes again, see HybridBlock.hybridize; bounds: the
        values that "blocks" keeps.
    """

    def __init__(
        self,
        outputs: Sequence[Value],
        inputs: Sequence[Value],
        name: str = "graph",
        n_data: int | None = None,
        recompute=False,
        bounds: Sequence[Value] = (),
    ):
        self.outputs, self.inputs, self.name = list(outputs), list(inputs), name
        self.n_data = len(self.inputs) if n_data is None else n_data
        self.recompute, self.bounds = recompute, list(bounds)
        self.entries = Recent(MAX_ENTRIES, MAX_INSTRUCTIONS, weight)
        self.dynamic = False

    def __call__(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Runs the graph. Returns one array for each output. Raises what inference raises for wrong
        shapes."""
        if self.dynamic:
            return self._eager(arrays)
        entries = entries_of(arrays) if state.recording else None
        wanted = () if entries is None else tuple([e is not None for e in entries])
        key = (state.training, wanted, *[a._spec for a in arrays])
        entry = self.entries[key]
        if entry is None and has_sparse(arrays):
            return self._eager(arrays)
        if entry is None:
            try:
                with gc_paused():
                    entry = self.entry(arrays, wanted)
            except DynamicShape:
                self.dynamic = True
                return self._eager(arrays)
            if self.entries and log.wants("hybridize"):
                log.write("hybridize", self._reason(arrays, wanted))
            entry = self.entries.setdefault(key, entry)  # another thread may have made it too
        hits = entry.hits = entry.hits + 1
        if hits >= entry.due:
            entry.reached(hits)
        plan = entry.plan
        program = plan.program
        made = program.run(arrays, (), location.capture() if program.can_fail else -1)
        if entries is None:
            return made
        outs = made[: plan.n_out]
        node = TapeNode()
        node.plan, node.inputs, node.scalars = plan, tuple(arrays), ()
        node.entries = entries
        node.seq = next_seq()
        node.saved = {i: shadow(outs[i]) for i in plan.shadowed}
        node.saved.update(enumerate(made[plan.n_out :], plan.n_out))
        for i, out in enumerate(outs):
            out._tape = (node, i)
        return outs

    def _eager(self, arrays) -> list[NDArray]:
        device = arrays[0]._spec.device if arrays else current_context()
        return run_nodes(
            self.outputs,
            dict(zip(self.inputs, arrays)),
            lambda node, inputs: call(node, inputs, device),
        )

    def entry(self, arrays, wanted: tuple[bool, ...]) -> _Entry:
        """A new entry for such arrays in the current mode. wanted: whose gradients will be."""
        specs = tuple(a._spec for a in arrays)
        device = specs[0].device if specs else current_context()
        if any(s.device != device for s in specs):
            device = device.home
        types = {v.node: s.type for v, s in zip(self.inputs, specs)}
        typed = typed_graph([*self.outputs, *self.bounds, *self.inputs], types, state.training)
        n, m = len(self.outputs), len(self.outputs) + len(self.bounds)
        if crosses(typed):
            known = {v: s.device for v, s in zip(typed[m:], specs)}
            typed = Placement(typed, known, device).resolve(typed)
        return _Entry(self, typed[:n], typed[m:], typed[n:m], specs, device, wanted)

    def _reason(self, arrays, wanted) -> str:
        """Why a signature is new."""
        mode = "recording" if wanted else "training" if state.training else "predicting"
        inputs = ", ".join(str(a._spec) for a in arrays[: self.n_data])
        now = f"{self.name}: compiled for {inputs}, {mode}"
        (training, before, *specs), last = self.entries.items()[-1]
        if bool(before) != bool(wanted):
            return f"{now}: recording was {'on' if before else 'off'}"
        if before != wanted:
            return f"{now}: other inputs want gradients"
        names = [v.node.name for v in self.inputs]
        trains = training != state.training
        return f"{now}: {difference(specs, [a._spec for a in arrays], trains, names)}"
