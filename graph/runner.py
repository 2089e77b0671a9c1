"""The runner: a typed graph compiled at a tier, its gradient program, and what serves calls of
both. Hybridized blocks, executors and recorded tapes run what is made here. It holds no arrays: its
callers do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..engine import Context, log
from ..engine.error import MXNetError
from ..engine.log import size
from ..kernels import backend as backends
from ..kernels.record import lookup
from ..kernels.spec import Spec
from ..kernels.traits import RowScatter, Sum
from . import residuals
from .derived import Derived
from .digest import digest
from .graph import Builder, Node, Value, topological, variable
from .passes import before_gradient
from .passes.gradient import gradient
from .passes.recompute import replayed
from .placement import PlacedProgram, lower
from .program import Program
from .tiers import Tiered

FUSED = lookup("_fused")

ROWS = "rows"  # the request of a variable whose gradient is row_sparse


Typed = tuple[Sequence[Value], Sequence[Value], Sequence[Value]]  # outputs, variables, bounds


class Source(Derived):
    """What a Signature compiles: a typed graph, and what is wanted of it. See Signature.

    typed: makes the graph of this source; called when it is first read, and again after `forget`.
    """

    parts = ("outputs", "variables", "bounds")
    __slots__ = (*parts, "device", "in_specs", "name", "recompute", "requests", "typed")
    bounds: Sequence[Value]
    outputs: Sequence[Value]
    variables: Sequence[Value]

    def __init__(
        self,
        name: str,
        typed: Callable[[Source], Typed],
        in_specs: Sequence[Spec],
        device: Context,
        requests: tuple[str, ...],
        recompute: bool | float | str,
    ):
        self.name, self.typed, self.in_specs, self.device = name, typed, in_specs, device
        self.requests, self.recompute = requests, recompute

    def derive(self) -> dict[str, Any]:
        return dict(zip(self.parts, self.typed(self)))


class Signature(Tiered):
    """A graph for inputs of given specs: the Forward that serves now, and how to make a better one.

    requests: of each variable, how its gradient is wanted: null, write, add or ROWS. data: numbers
    of the variables that are no parameters. stable: numbers of those that seldom change. recompute:
    see HybridBlock.hybridize; bounds of the graph: the values that "blocks" keeps. mode: plain data
    in which it differs from others of the same graph.
    """

    counted = (*Tiered.counted, "stable")
    serving: Forward

    def __init__(
        self,
        name: str,
        typed: Callable[[Source], Typed],
        in_specs: Sequence[Spec],
        device: Context,
        *,
        requests: Sequence[str],
        data: Sequence[int],
        stable: Sequence[int] = (),
        recompute: bool | float | str = False,
        mode: tuple = (),
    ):
        """typed: makes the graph, see Source. device: of a graph without inputs. Calls are counted
        after `begin`."""
        self.name, self.data, self.mode, self.stable = name, data, mode, stable
        recompute = recompute or residuals.default
        self.source = Source(name, typed, in_specs, device, tuple(requests), recompute)
        self.wanted = any(r != "null" for r in requests)

    in_specs = property(lambda self: self.source.in_specs)
    device = property(lambda self: self.source.device)

    def __str__(self):
        return f"{self.name} on {self.inputs}"

    @property
    def inputs(self) -> str:
        """The data as text."""
        return ", ".join(str(self.in_specs[i]) for i in self.data)

    @property
    def n_operators(self) -> int:
        return sum(n.op is not None for n in topological(self.source.outputs))

    def begin(self) -> None:
        self.restart()
        super().begin()

    def build(self, tier: int) -> Forward:
        """The graph at a tier, with the gradient programs in use."""
        made = self.forward(tier)
        for with_grad in list(self.serving.gradients) if tier else ():
            made.gradient(with_grad)
        return made

    def forward(self, tier: int) -> Forward:
        """The graph at a tier."""
        return Forward(self, tier)

    def described(self) -> str:
        s = self.source
        specs = [(repr(x), x.stype, x.layout) for x in s.in_specs]
        more = s.requests, s.recompute, self.mode, specs, str(s.device)
        return digest(*s.whole("outputs", "variables"), *more)

    def work(self) -> tuple[int, float]:
        # backward costs about twice as much as forward
        return self.n_operators, self.serving.program.cost_us * (3 if self.wanted else 1)

    def publish(self, made: Forward) -> None:
        super().publish(made)
        log.write("hybridize", f"{self}: tier 1 from call {self.change_at} on, {summary(made)}")


class Forward(Derived):
    """The graph of a Signature compiled at one tier.

    kept: residuals, which the program returns after the outputs. saved: what its gradient reads, as
    numbers of what the program returns; shadowed: those of them that are outputs. layouts: of those
    that are not row-major, by number. gradients: the gradient programs made so far. n_steps: of the
    program.
    """

    parts = ("kept", "kept_specs", "layouts", "out_specs", "outputs", "program", "variables")
    __slots__ = (
        *(*parts, "gradients", "n_out", "n_steps", "saved", "seconds", "shadowed"),
        *("source", "stable", "tier"),
    )
    kept: list[Value]
    kept_specs: tuple[Spec, ...]  # by the numbers in `saved`
    layouts: dict[int, str]
    n_out: int
    n_steps: int
    out_specs: tuple[Spec, ...]
    outputs: Sequence[Value]
    program: Program | PlacedProgram
    saved: tuple[int, ...]
    seconds: float
    shadowed: tuple[int, ...]
    variables: Sequence[Value]

    def __init__(self, signature: Signature, tier: int):
        self.source, self.tier, self.stable = signature.source, tier, signature.stable
        self.gradients: dict[tuple[bool | None, ...], Gradient] = {}
        self.make()

    in_specs = property(lambda self: self.source.in_specs)
    requests = property(lambda self: self.source.requests)

    def derive(self) -> dict[str, Any]:
        start, source, tier = time.perf_counter(), self.source, self.tier
        outputs, variables, bounds = source.whole(*Source.parts)
        wanted = [v for v, r in zip(variables, source.requests) if r != "null"]
        devices = [s.device for s in source.in_specs]
        # graphs of which the user marked nodes for recomputation, or over kinds of devices, stay
        if tier and not source.recompute and len({backends.of(d) for d in devices}) < 2:
            outputs = before_gradient(outputs, source.device)
        n_out, needed = len(outputs), list[Value]()
        if wanted:
            more = source.recompute, bounds
            needed = residuals.residuals(outputs, wanted, tier, *more)
        needed_set, output_set = set(needed), set(outputs)
        kept = [v for v in needed if v not in output_set]
        shadowed = tuple([i for i, v in enumerate(outputs) if v in needed_set])
        saved = (*shadowed, *range(n_out, n_out + len(kept)))
        program = lower(
            [*outputs, *kept],
            variables,
            devices or source.device,
            source.name,
            tier=tier,
            stable=[variables[i] for i in self.stable],
            free=residuals.free(kept, n_out),
        )
        specs = program.out_specs
        return {
            "kept": kept,
            "kept_specs": specs,
            "layouts": {i: specs[i].layout for i in saved if specs[i].layout},
            "n_out": n_out,
            "n_steps": len(program.ops),
            "out_specs": specs[:n_out],
            "outputs": outputs,
            "program": program,
            "saved": saved,
            "seconds": time.perf_counter() - start,
            "shadowed": shadowed,
            "variables": variables,
        }

    def gradient(self, with_grad: tuple[bool | None, ...]) -> Gradient:
        """The gradient program for this choice of head gradients; see Gradient."""
        found = self.gradients.get(with_grad)
        if found is None:
            made = Gradient(self.recording(), with_grad, self.requests, self.tier)
            found = self.gradients[with_grad] = made
        return found

    def recording(self) -> Recording:
        """One call of the graph, of which every output is a head."""
        outputs, kept, variables = self.whole("outputs", "kept", "variables")
        found, made = Recording(), [*outputs, *kept]
        found.heads = list(outputs)
        found.head_devices = [s.device for s in self.out_specs]
        found.variables = dict(enumerate(variables))
        found.nodes = set(topological(outputs))
        for v, s in zip(made, self.kept_specs):
            found.devices[v] = s.device
        found.sources = {made[i]: ("saved", 0, i) for i in self.saved}
        for j, (v, s) in enumerate(zip(variables, self.in_specs)):
            found.sources[v], found.devices[v] = ("input", 0, j), s.device
        found.layouts = {made[i]: layout for i, layout in self.layouts.items()}
        return found


class Recording:
    """What was computed, as a gradient program may read it.

    heads: the values whose gradients are given, head_devices: where they are. variables: the values
    whose gradients are wanted, by number. sources: where the array of a value is: ("input", number
    of a call, of its input), ("saved", number of a call, of what it returned) or ("head", i);
    devices, layouts: of these arrays, layouts where they are not row-major. nodes: of all that was
    computed.
    """

    def __init__(self) -> None:
        self.heads: list[Value] = []
        self.head_devices: list[Context] = []
        self.variables: dict[int, Value] = {}
        self.sources: dict[Value, tuple] = {}
        self.devices: dict[Value, Context] = {}
        self.layouts: dict[Value, str] = {}
        self.nodes: set[Node] = set()


class MissingHeadGradient(MXNetError):
    """A gradient program reads the gradient of output `index`, which is not given."""

    def __init__(self, index: int):
        super().__init__(f"the gradient of output {index} is missing")
        self.index = index


class Gradient:
    """The gradient program of a Recording.

    sources: where its inputs are: as the Recording tells, ("head_grad", number of the head) or
    ("grad", number of the variable), a gradient to add to. written: which variables its first
    outputs are the gradients of. rows: of variables whose gradients are row_sparse, the outputs to
    add up; see row_parts.
    """

    __slots__ = ("program", "rows", "seconds", "sources", "tier", "written")
    program: Program | PlacedProgram

    def __init__(
        self,
        graph: Recording,
        with_grad: Sequence[bool | None],
        requests: Sequence[str],
        tier: int,
    ):
        """with_grad: for each head, is its gradient given? If not, it is ones, or (None) must not
        be read. requests: of each variable. Raises MissingHeadGradient; UnknownScalar where a
        gradient depends on the value of a scalar."""
        start = time.perf_counter()
        self.tier = tier
        self.written: list[int] = []
        self.rows: list[tuple[int, list[tuple]]] = []
        outputs, used = replayed(
            self._derive(graph, with_grad, requests), graph.sources, graph.nodes
        )
        self.sources = [graph.sources[v] for v in used]
        read = {i for kind, i, *_ in self.sources if kind == "head_grad"}
        if missing := [i for i, has in enumerate(with_grad) if has is None and i in read]:
            raise MissingHeadGradient(missing[0])
        self.program = lower(
            outputs,
            list(used.values()),
            [graph.devices[v] for v in used] or graph.head_devices,
            "backward",
            wanted=[graph.devices[graph.variables[i]] for i in self.written],
            tier=tier,
            layouts={x: graph.layouts[v] for v, x in used.items() if v in graph.layouts},
        )
        self.seconds = time.perf_counter() - start

    def _derive(self, graph: Recording, with_grad, requests: Sequence[str]) -> list[Value]:
        """What the program computes. Adds the sources of head gradients and of gradients to add to.

        The last variables come first: a program computes its outputs in their order, and each
        layer's gradients must be done before those of the layers below, or their results pile up.
        """
        F = Builder()

        def given(name: str, like: Value, source: tuple, device: Context) -> Value:
            made = variable(name, like.type)
            graph.sources[made], graph.devices[made] = source, device
            return made

        dys = [
            None if has is False else given(f"dy{i}", h, ("head_grad", i), device)
            for i, (h, has, device) in enumerate(zip(graph.heads, with_grad, graph.head_devices))
        ]
        asked = [i for i, request in enumerate(requests) if request != "null"]
        outputs: list[Value] = []
        by_rows = []
        wanted = [graph.variables[i] for i in asked]
        for i, v, g in zip(asked, wanted, gradient(graph.heads, dys, wanted)):
            if requests[i] == ROWS:
                by_rows.append((i, g))
                continue
            if requests[i] == "add":
                if g is None:
                    continue
                g = F.elemwise_add(given(f"grad{i}", v, ("grad", i), graph.devices[v]), g)
            outputs.append(F._zeros(shape=v.shape, dtype=v.dtype) if g is None else g)
            self.written.append(i)
        outputs.reverse()
        self.written.reverse()
        for i, g in by_rows:
            values, parts = row_parts(g, len(outputs))
            outputs += values
            self.rows.append((i, parts))
        return outputs


def row_parts(gradient: Value | None, at: int) -> tuple[list[Value], list[tuple]]:
    """A gradient as what adds up to it: (values, for each part the numbers of its values, the first
    being `at`). A part is (row numbers, rows), or (a dense array,)."""
    values: list[Value] = []
    parts: list[tuple] = []
    terms = [] if gradient is None else [gradient]
    while terms:
        v = terms.pop()
        node = v.node
        if node.op is not None and node.op.has(Sum):
            if all(x.shape == v.shape for x in node.inputs):
                terms += node.inputs
                continue
        found = [v]
        scatter = node.op.trait(RowScatter) if node.op is not None else None
        if scatter is not None and scatter.when(**node.attrs):
            found = [node.inputs[1], node.inputs[0]]
        parts.append(tuple(range(at + len(values), at + len(values) + len(found))))
        values += found
    return values, parts


def summary(made: Forward | Gradient) -> str:
    """Describes a compiled graph: its compile time and size."""
    p = made.program
    return (
        f"compiled in {made.seconds * 1e3:.0f} ms to {len(p.ops)} instructions"
        f" ({n_fused(p)} fused groups), {size(p.arena_bytes)} planned,"
        f" {size(p.naive_bytes)} without sharing"
    )


def n_fused(program: Program | PlacedProgram) -> int:
    """How many instructions are groups of pointwise operators."""
    return sum(op is FUSED for op in program.ops)
