"""The runner: a typed graph compiled at a tier, its gradient program, and what serves calls of
both. Hybridized blocks, executors and recorded tapes run what is made here. It holds no arrays: its
callers do."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from ..engine import Context, log
from ..engine.error import MXNetError
from ..engine.log import size
from ..engine.recent import Recent
from ..kernels import backend as backends
from ..kernels.record import lookup
from ..kernels.size import NoValue
from ..kernels.spec import Spec
from ..kernels.traits import Lowered, PythonKernel, RowScatter, Sum
from . import residuals
from .derived import Derived
from .digest import digest
from .graph import Builder, Node, Value, topological, variable
from .passes import before_gradient
from .passes.gradient import gradient
from .passes.recompute import replayed
from .placement import PlacedProgram, lower, one_device
from .program import Program, optimized
from .recipes import Graphs, Made, Recipe, Recipes, kinds_of, sizes_of, with_sizes
from .tiers import Tiered

FUSED = lookup("_fused")

ROWS = "rows"  # the request of a variable whose gradient is row_sparse


Typed = tuple[Sequence[Value], Sequence[Value], Sequence[Value]]  # outputs, variables, bounds


class Source(Derived):
    """What a Signature compiles: a typed graph, and what is wanted of it. See Signature.

    typed: makes the graph of this source; called when it is first read, and again after `forget`.
    recipes: of graphs that differ in the sizes of inputs only, by kind; None for others. prepacks:
    what sources of the same graph prepack; see program.prepacked.
    """

    parts = ("outputs", "variables", "bounds")
    __slots__ = (
        *(*parts, "device", "in_specs", "name", "prepacks", "recipes", "recompute", "requests"),
        "typed",
    )
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
        recipes: Recent | None = None,
        prepacks: MutableMapping | None = None,
    ):
        self.name, self.typed, self.in_specs, self.device = name, typed, in_specs, device
        self.requests, self.recompute, self.recipes = requests, recompute, recipes
        self.prepacks = prepacks

    def derive(self) -> dict[str, Any]:
        return dict(zip(self.parts, self.typed(self)))

    def keep(self, graphs: Graphs) -> None:
        """Takes the graph that a recipe made."""
        self._take({name: graphs[name] for name in self.parts})

    def with_sizes(self, sizes: Sequence) -> Source:
        """This source for other sizes of its inputs."""
        specs: Any = with_sizes(self.in_specs, sizes)
        return Source(self.name, self.typed, specs, self.device, self.requests, self.recompute)

    def known(self) -> Recipes | None:
        """The recipes of graphs like this one. Copies between devices and control flow have none,
        nor has a graph of which much is computed again."""
        if self.recipes is None or self.recompute or len({s.device for s in self.in_specs}) != 1:
            return None
        key = (self.typed, self.requests, self.device, kinds_of(self.in_specs))
        return self.recipes.setdefault(key, Recipes())


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
        recipes: Recent | None = None,
        prepacks: MutableMapping | None = None,
    ):
        """typed, recipes, prepacks: see Source. device: of a graph without inputs. Calls are
        counted after `begin`."""
        self.name, self.data, self.mode, self.stable = name, data, mode, stable
        recompute = recompute or residuals.default
        self.source = Source(
            name, typed, in_specs, device, tuple(requests), recompute, recipes, prepacks
        )
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
    program. recipe: by which it was made, or one that makes its graph too.
    """

    parts = ("kept", "kept_specs", "layouts", "out_specs", "outputs", "program", "variables")
    __slots__ = (
        *(*parts, "gradients", "n_out", "n_steps", "recipe", "saved", "seconds", "shadowed"),
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
    recipe: Recipe | None
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
        start, source = time.perf_counter(), self.source
        known = None if self.tier else source.known()
        if known is None:
            made = Made(self._graphs(source), (), None, None)
        else:
            made = known.made(sizes_of(source.in_specs), self._exact, source.name)
        graphs, _, found, recipe = made
        if recipe is not None:
            source.keep(graphs)
        program = self._lower(graphs) if found is None else found
        outputs, kept, read = graphs["outputs"], graphs["kept"], set(graphs["read"])
        n_out = len(outputs)
        shadowed = tuple([i for i, v in enumerate(outputs) if v in read])
        saved = (*shadowed, *range(n_out, n_out + len(kept)))
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
            "recipe": recipe,
            "saved": saved,
            "seconds": time.perf_counter() - start,
            "shadowed": shadowed,
            "variables": graphs["variables"],
        }

    def _graphs(self, source: Source) -> dict[str, Sequence[Value]]:
        """The graph of a source, by the names of its parts; "read": what backward reads of its
        results, "kept": those of them that are no outputs."""
        tier = self.tier
        outputs, variables, bounds = source.whole(*Source.parts)
        wanted = [v for v, r in zip(variables, source.requests) if r != "null"]
        devices = [s.device for s in source.in_specs]
        # graphs of which the user marked nodes for recomputation, or over kinds of devices, stay
        if tier and not source.recompute and len({backends.of(d) for d in devices}) < 2:
            outputs = before_gradient(outputs, source.device)
        read = list[Value]()
        if wanted:
            read = residuals.residuals(outputs, wanted, tier, source.recompute, bounds)
        given_out = set(outputs)
        kept = [v for v in read if v not in given_out]
        return {
            **{"outputs": outputs, "variables": variables, "bounds": bounds},
            **{"read": read, "kept": kept},
        }

    def _lower(self, graphs: Graphs) -> Program | PlacedProgram:
        source, outputs, kept = self.source, graphs["outputs"], graphs["kept"]
        variables = graphs["variables"]
        return lower(
            [*outputs, *kept],
            variables,
            [s.device for s in source.in_specs] or source.device,
            source.name,
            tier=self.tier,
            stable=[variables[i] for i in self.stable],
            free=residuals.free(kept, len(outputs)),
            prepacks=source.prepacks,
        )

    def _exact(self, sizes: Sequence | None) -> tuple[Graphs, tuple]:
        """The graph with that of its program at tier 0, if it is one Program. sizes: others of its
        inputs, as Sizes."""
        source = self.source if sizes is None else self.source.with_sizes(sizes)
        graphs, device = self._graphs(source), source.in_specs[0].device
        if any([v.type != s.type for v, s in zip(graphs["variables"], source.in_specs)]):
            raise NoValue  # the graph is of one size
        computed = [*graphs["outputs"], *graphs["kept"]]
        if one_device(computed, [device]) is None or has_code(computed):
            return graphs, ()
        exact = optimized(computed, graphs["variables"], device, None, 0)
        return {**graphs, **exact._asdict()}, (device,)

    def gradient(self, with_grad: tuple[bool | None, ...]) -> Gradient:
        """The gradient program for this choice of head gradients; see Gradient."""
        found = self.gradients.get(with_grad)
        if found is None:
            made = Gradient.of(self.recording(), with_grad, self.requests, self.tier)
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


def has_code(outputs: Sequence[Value]) -> bool:
    """Are there loops and conditions in a graph, or operators in Python? Their bodies are typed by
    code that may do anything."""
    ops = {n.op for n in topological(outputs)}
    return any([op is not None and (op.has(Lowered) or op.has(PythonKernel)) for op in ops])


class MissingHeadGradient(MXNetError):
    """A gradient program reads the gradient of output `index`, which is not given."""

    def __init__(self, index: int):
        super().__init__(f"the gradient of output {index} is missing")
        self.index = index


class Derivative(NamedTuple):
    """The gradients of a Recording as a graph.

    sources: where its inputs are: as the Recording tells, ("head_grad", number of the head) or
    ("grad", number of the variable), a gradient to add to. written: which variables its first
    outputs are the gradients of. rows: of variables whose gradients are row_sparse, the outputs to
    add up; see row_parts. devices: of the inputs; wanted: of the gradients.
    """

    outputs: list[Value]
    variables: list[Value]
    layouts: dict[Value, str]
    sources: list[tuple]
    written: list[int]
    rows: list[tuple[int, list[tuple]]]
    devices: list[Context]
    wanted: list[Context]

    def lower(self, tier: int) -> Program | PlacedProgram:
        return lower(
            self.outputs,
            self.variables,
            self.devices,
            "backward",
            wanted=self.wanted,
            tier=tier,
            layouts=self.layouts,
        )

    def exact(self) -> tuple[Graphs, tuple]:
        """The graph of its program at tier 0, if that is one Program; the rest."""
        device = one_device(self.outputs, self.devices, self.wanted)
        about = device, self.sources, self.written, self.rows
        if device is None or self.layouts or has_code(self.outputs):
            return {}, about
        return optimized(self.outputs, self.variables, device, None, 0)._asdict(), about


def differentiated(
    graph: Recording, with_grad: Sequence[bool | None], requests: Sequence[str]
) -> Derivative:
    """with_grad: for each head, is its gradient given? If not, it is ones, or (None) must not be
    read. requests: of each variable. Raises MissingHeadGradient; UnknownScalar where a gradient
    depends on the value of a scalar."""
    written: list[int] = []
    rows: list[tuple[int, list[tuple]]] = []
    asked = _derive(graph, with_grad, requests, written, rows)
    outputs, used = replayed(asked, graph.sources, graph.nodes)
    sources = [graph.sources[v] for v in used]
    read = {i for kind, i, *_ in sources if kind == "head_grad"}
    if missing := [i for i, has in enumerate(with_grad) if has is None and i in read]:
        raise MissingHeadGradient(missing[0])
    return Derivative(
        outputs,
        list(used.values()),
        {x: graph.layouts[v] for v, x in used.items() if v in graph.layouts},
        sources,
        written,
        rows,
        [graph.devices[v] for v in used] or graph.head_devices,
        [graph.devices[graph.variables[i]] for i in written],
    )


def _derive(
    graph: Recording,
    with_grad: Sequence[bool | None],
    requests: Sequence[str],
    written: list[int],
    rows: list,
) -> list[Value]:
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
        written.append(i)
    outputs.reverse()
    written.reverse()
    for i, g in by_rows:
        values, parts = row_parts(g, len(outputs))
        outputs += values
        rows.append((i, parts))
    return outputs


class Gradient:
    """The gradient program of a Recording. sources, written, rows: see Derivative."""

    __slots__ = ("program", "rows", "seconds", "sources", "tier", "written")
    program: Program | PlacedProgram

    def __init__(self, program: Any, sources: list, written: list, rows: list, tier: int):
        self.program, self.tier, self.seconds = program, tier, 0.0
        self.sources, self.written, self.rows = sources, written, rows

    @classmethod
    def of(
        cls,
        graph: Recording,
        with_grad: Sequence[bool | None],
        requests: Sequence[str],
        tier: int,
    ) -> Gradient:
        """See differentiated, also for what it raises."""
        start = time.perf_counter()
        found = differentiated(graph, with_grad, requests)
        made = cls(found.lower(tier), found.sources, found.written, found.rows, tier)
        made.seconds = time.perf_counter() - start
        return made

    @classmethod
    def by_recipe(
        cls,
        known: Recipes,
        sizes: tuple[int, ...],
        record: Callable[[Sequence | None], Recording],
        with_grad: Sequence[bool | None],
        requests: Sequence[str],
    ) -> Gradient:
        """The gradient at tier 0 of a structure with these recipes. record: its Recording, for
        Sizes if they are given."""
        start = time.perf_counter()
        found: list[Derivative] = []

        def write(sizes: Sequence | None) -> tuple[Graphs, tuple]:
            found.append(differentiated(record(sizes), with_grad, requests))
            return found[-1].exact()

        _, (_, sources, written, rows), program, _ = known.made(sizes, write, "backward")
        lowered = found[0].lower(0) if program is None else program
        made = cls(lowered, sources, written, rows, 0)
        made.seconds = time.perf_counter() - start
        return made


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
