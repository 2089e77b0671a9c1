"""CachedGraph: a graph called like a function on arrays; what hybridize, and nothing else, runs.

One entry per signature (input specs, training, which inputs want gradients) holds a lowered
program, which is swapped for a better one when the signature repeats. While recording, the program
also returns the residuals that the backward graph reads, and the call is one node of the tape.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from ..engine import current_context, layers, location, log
from ..engine.error import DynamicShape
from ..engine.gc_pause import gc_paused
from ..engine.recent import Recent
from ..graph.graph import Node, Value, rewrite, values_of
from ..graph.inference import typed_graph
from ..graph.placement import Placement, crosses
from ..graph.recipes import Graphs
from ..graph.runner import Forward, Signature, Source, Typed
from ..graph.tiers import waiting
from ..kernels.plan import make_plan, scalars_of
from ..kernels.record import mutated_inputs
from ..kernels.traits import Rematerializes
from . import autograd, functions, watch
from .backward import Backward, queued_with
from .interpreter import call, run_nodes, run_plan
from .ndarray import NDArray, state
from .sparse.graphs import has_sparse
from .tape import TapeNode, entries_of, next_seq, record, shadow

# Signatures of a graph that stay compiled: those used last, at most twice as many,
N_COMPILED = 256
# and of how many instructions in all: each takes 2 to 3 KB, backward included.
MAX_INSTRUCTIONS = 1 << 16
# The others are put aside: 2 KB remain of each, from which the next call makes the same programs.
MAX_ASIDE = 1 << 13
MAX_KINDS = 64  # of a graph's signatures, that differ in more than sizes

_moving = threading.Lock()  # while an entry is in neither place


class GraphPlan(Forward):
    """A graph compiled at one tier. On the tape it stands where a Plan stands for an operator.

    newer: the plan of a higher tier, once there is one. entry: whose plan it is, held weakly.
    """

    __slots__ = ("entry", "newer")
    scalars = unread = ()

    def __init__(self, entry: Entry, tier: int):
        super().__init__(entry, tier)
        self.entry = weakref.ref(entry)
        self.newer: Forward | None = None

    def structure(self) -> str:
        """A name that is the same in every process; while the entry lives."""
        entry = self.entry()
        return f"{entry.structure() if entry is not None else 'gone'} at tier {self.tier}"

    def expand(
        self, inputs: Sequence[Value], graphs: Graphs | None = None
    ) -> tuple[list[Value], list[Value]]:
        """The graph with its variables replaced: (outputs, what `saved` numbers). graphs: the same
        for other sizes."""
        names = "outputs", "kept", "variables"
        outputs, kept, variables = (
            self.whole(*names) if graphs is None else [graphs[n] for n in names]
        )
        start = {v.node: [x] for v, x in zip(variables, inputs)}
        values = rewrite([*outputs, *kept], None, start)
        return values[: len(outputs)], values

    def eager_grads(self, node: TapeNode, dys: Any, create_graph: bool) -> list:
        """Gradients by replaying the graph operator by operator, so that they can be differentiated
        again."""
        since = next_seq()
        assert node.inputs is not None and node.entries is not None
        inputs = [autograd.with_entry(a, e) for a, e in zip(node.inputs, node.entries)]
        with autograd.record():
            outs = self._replay(inputs, node.saved or {})
        return autograd.interpret(outs, dys, list(node.entries), create_graph, since)

    def _replay(self, inputs, saved) -> list[NDArray]:
        outputs, kept, variables = self.whole("outputs", "kept", "variables")
        fixed = {v: saved[i] for i, v in enumerate([*outputs, *kept]) if i in saved}
        devices = {v: a._spec.device for v, a in zip(variables, inputs)}
        place = Placement(outputs, devices, inputs[0]._spec.device)

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

        return run_nodes(outputs, dict(zip(variables, inputs)), compute)


class Entry(Signature):
    """The Signature of a graph's calls. Its gradients are on tapes; see ndarray/backward.py."""

    counted = (*Signature.counted, "_steps")
    serving: GraphPlan
    _steps = 0  # of its gradients, when this was last due
    backwards: tuple[weakref.ref[Backward], ...] = ()  # the gradients of tapes with its calls

    def forward(self, tier: int) -> GraphPlan:
        return GraphPlan(self, tier)

    def forget(self) -> None:
        """Drops what the next call makes again as it was: typed graph and programs. Counts, tier
        and the call at which that changes stay."""
        self.source.forget()
        self.serving.forget()
        for ref in self.backwards:
            if (found := ref()) is not None:
                found.forget()

    def described(self) -> str:
        found = super().described()
        self.source.forget()  # its Forward has what calls need
        return found

    def compile(self) -> Forward:
        before = self.serving
        before.newer = made = self.build(1)
        return made

    def waits_for_others(self) -> bool:
        """As long as its gradients are in use, they decide: backward runs between two steps, so no
        tape gets calls of both tiers."""
        steps = sum(b.hits for b in queued_with(self.serving)) + waiting(self.serving)
        before, self._steps = self._steps, steps
        return self._steps > before

    def publish(self, made: Forward) -> None:
        before = self.serving
        super().publish(made)
        for gradients in queued_with(before):
            gradients.change()


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


def weight(entry: Entry) -> int:
    """The instructions of a signature's program."""
    return entry.serving.n_steps


def put_aside(aside: Recent, dropped: list[tuple[tuple, Entry]]) -> None:
    """Keeps entries that were not used lately, without what can be made again."""
    for key, entry in dropped:
        entry.forget()
        aside[key] = entry


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
        recompute: bool | float | str = False,
        bounds: Sequence[Value] = (),
    ):
        self.outputs, self.inputs, self.name = list(outputs), list(inputs), name
        self.n_data = len(self.inputs) if n_data is None else n_data
        self.recompute, self.bounds = recompute, list(bounds)
        # what all entries share
        self.data = range(self.n_data)
        self.parameters = list(range(self.n_data, len(self.inputs)))
        graph = self.outputs, self.bounds, self.inputs
        self.typed = [partial(_typed, graph, train) for train in (False, True)]
        self.recipes = Recent(MAX_KINDS)
        self.prepacks: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self.aside = Recent(MAX_ASIDE)
        dropped = partial(put_aside, self.aside)
        self.entries = Recent(N_COMPILED, MAX_INSTRUCTIONS, weight, dropped)
        self.dynamic = False

    def __call__(self, arrays: Sequence[NDArray], held: Any = None) -> list[NDArray]:
        """Runs the graph. held: a Held of its last inputs; so a prediction need not look at
        parameters that nobody wrote. Returns one array for each output. Raises what inference
        raises for wrong shapes."""
        fixed, kind = ((), None) if held is None else held.read()
        if held is not None and (state.recording or self.dynamic or watch.see is not None):
            arrays, fixed, kind = [*arrays, *fixed], (), None
        if self.dynamic or watch.see is not None:
            return self._eager(arrays)
        entries = entries_of(arrays) if state.recording else None
        wanted = () if entries is None else tuple([e is not None for e in entries])
        key = (state.training, wanted, kind, *[a._spec for a in arrays])
        entry = self.entries[key] or self._again(key)
        if entry is None:
            every = [*arrays, *fixed]
            if has_sparse(every):
                return self._eager(every)
            try:
                with gc_paused():
                    entry = self.entry(every, wanted)
                    entry.begin()
            except DynamicShape:
                self.dynamic = True
                return self._eager(every)
            if self.entries and log.wants("hybridize"):
                log.write("hybridize", self._reason(every, wanted))
            entry = self.entries.setdefault(key, entry)  # another thread may have made it too
        hits = entry.hits = entry.hits + 1
        if hits >= entry.due:
            entry.reached(hits)
        plan = entry.serving
        program = plan.program
        where = location.capture() if program.can_fail else -1
        made = program.run(arrays, (), where, (), fixed)
        if entries is None:
            return made
        outs = made[: plan.n_out]
        node = TapeNode()
        node.plan, node.inputs, node.scalars = plan, tuple(arrays), ()
        if layers.watched:
            node.layer = layers.current()
        node.entries = entries
        node.seq = next_seq()
        node.saved = {i: shadow(outs[i]) for i in plan.shadowed}
        node.saved.update(enumerate(made[plan.n_out :], plan.n_out))
        for i, out in enumerate(outs):
            out._tape = (node, i)
        return outs

    def _again(self, key: tuple) -> Entry | None:
        """An entry that was put aside, among the others again; its programs are made when they are
        read."""
        with _moving:
            entry = self.entries[key] or self.aside.pop(key)
            return None if entry is None else self.entries.setdefault(key, entry)

    def _eager(self, arrays) -> list[NDArray]:
        device = arrays[0]._spec.device if arrays else current_context()
        return run_nodes(
            self.outputs,
            dict(zip(self.inputs, arrays)),
            lambda node, inputs: call(node, inputs, device),
        )

    def entry(self, arrays: Any, wanted: tuple[bool, ...]) -> Entry:
        """A new entry for such arrays in the current mode. wanted: whose gradients will be."""
        specs = tuple([a._spec for a in arrays])
        device = specs[0].device if specs else current_context()
        if any([s.device != device for s in specs]):
            device = device.home
        # variables whose arrays seldom change
        stable = () if wanted or state.training else self.parameters
        return Entry(
            self.name,
            self.typed[state.training],
            specs,
            device,
            requests=_requests(wanted or (False,) * len(specs)),
            data=self.data,
            stable=stable,
            recompute=self.recompute,
            mode=(len(stable),),
            recipes=self.recipes,
            prepacks=self.prepacks,
        )

    def _reason(self, arrays, wanted) -> str:
        """Why a signature is new."""
        mode = "recording" if wanted else "training" if state.training else "predicting"
        inputs = ", ".join(str(a._spec) for a in arrays[: self.n_data])
        now = f"{self.name}: compiled for {inputs}, {mode}"
        (training, before, kind, *specs), last = self.entries.items()[-1]
        specs += () if kind is None else kind.specs
        if bool(before) != bool(wanted):
            return f"{now}: recording was {'on' if before else 'off'}"
        if before != wanted:
            return f"{now}: other inputs want gradients"
        names = [v.node.name for v in self.inputs]
        trains = training != state.training
        return f"{now}: {difference(specs, [a._spec for a in arrays], trains, names)}"


def _typed(graph: tuple, train: bool, source: Source) -> Typed:
    """The typed graph of an entry. graph: untyped outputs, bounds and variables."""
    outputs, bounds, inputs = graph
    types = {v.node: s.type for v, s in zip(inputs, source.in_specs)}
    typed = typed_graph([*outputs, *bounds, *inputs], types, train)
    n, m = len(outputs), len(outputs) + len(bounds)
    if crosses(typed):
        known = {v: s.device for v, s in zip(typed[m:], source.in_specs)}
        typed = Placement(typed, known, source.device).resolve(typed)
    return typed[:n], typed[m:], typed[n:m]


@lru_cache(64)  # one tuple for all signatures of a graph
def _requests(wanted: tuple[bool, ...]) -> tuple[str, ...]:
    return tuple(["write" if w else "null" for w in wanted])
