"""Programs: a typed graph lowered to C instructions over one arena. One run is one call and one
engine operation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import Context, ffi, is_naive, layers, lib, wait
from ..engine._array import invoke, run, shared, versions
from ..engine.error import OutOfMemory
from ..engine.recent import Recent
from ..kernels import backend as backends
from ..kernels.plan import (
    BRIEF_US,
    INLINE_US,
    Plan,
    make_plan,
    make_plans,
    open_scalars,
    place_flag,
    scalars_of,
)
from ..kernels.record import Operator, Type, lookup
from ..kernels.scalar import OpenScalar
from ..kernels.spec import Spec, spec
from ..kernels.strided_copies import join_offsets
from ._graph import assign_buffers, kinds
from .branches import at_once, find_sections
from .digest import expression
from .effects import Effects
from .graph import Node, Origin, Value, rewrite, topological, typed_node, variable
from .passes import compile_passes, fused, optimize
from .passes.control import control
from .passes.dead_code import extract, live
from .passes.expand import expand
from .passes.fold import evaluate
from .passes.memory import ALIGN_BYTES, Buffer, plan_memory, rounded

READ, WRITE, READWRITE = 0, 1, 2


class watching(threading.local):
    """Scope in which each program that this thread assembles is seen: (name, its Assignment). For
    drawings: programs themselves keep neither nodes nor plans."""

    seen: list[tuple[str, Any]] | None = None

    def __enter__(self) -> list[tuple[str, Any]]:
        self.seen = []
        return self.seen

    def __exit__(self, *error: Any) -> None:
        self.seen = None


watched = watching()
LARGE_BYTES = 1 << 20
MAX_JOINED_BYTES = 32 << 20  # of an array whose parts are made in place
SLOT = np.dtype([("kind", np.int32), ("index", np.int32), ("offset_bytes", np.int64)])  # pl_slot


class Program:
    """A lowered graph. Inputs and outputs are array handles in the order given to `lower`.

    ops: the operator of each instruction. finals: the time, in steps, from which each output stays
    as it is: others may have it then.

    reads: of its inputs, then constants, the numbers of those that it reads beside what is
    prepacked; None: all.

    calls: for each instruction, the layers and the numbers of calls on a tape that it computes;
    None for graphs without such calls, whose layers the core has.

    It keeps no Python object of a node, value or plan: a net that is compiled for 2,000 shapes has
    thousands of programs.
    """

    __slots__ = (
        "_first_write",
        "_inplace",
        "_last_read",
        "arena_bytes",
        "calls",
        "can_fail",
        "constants",
        "cost_us",
        "finals",
        "handle",
        "in_specs",
        "mutated",
        "n_in",
        "n_out",
        "naive_bytes",
        "named_by",
        "open_scalars",
        "ops",
        "out_specs",
        "prepack",
        "reads",
        "tier",
    )
    _first_write: tuple[int, ...]
    _inplace: frozenset[tuple[int, int]]
    _last_read: tuple[int, ...]
    arena_bytes: int
    calls: tuple[tuple, ...] | None
    can_fail: bool
    constants: tuple
    cost_us: float
    finals: tuple[int, ...]
    handle: Any  # pl_program *
    in_specs: tuple[Spec, ...]
    mutated: tuple[int, ...]
    n_in: int
    n_out: int
    naive_bytes: int
    named_by: list[str | None] | None  # the layers that the calls had last
    open_scalars: tuple[OpenScalar, ...]
    ops: tuple[Operator, ...]
    out_specs: tuple[Spec, ...]
    prepack: Any  # a Prepack, Prepacks, frozen.Fixed, or None
    reads: tuple[int, ...] | None
    tier: int

    def __del__(self, free=lib.pl_program_free):
        free(self.handle)

    def run(
        self,
        inputs: Sequence,
        outputs: Sequence = (),
        location: int = -1,
        scalars: Any = (),
        held: Sequence = (),
    ) -> list:
        """Pushes one run on arrays. outputs: arrays to write the first outputs into, or nothing:
        all are made new. scalars: what the open scalars of the graph are computed from. held: the
        inputs after those, one and the same list as long as they are the same. Returns every output
        array. Raises MemoryError."""
        scalars = [s.of(scalars) for s in self.open_scalars] if self.open_scalars else ()
        if self.prepack is not None:
            inputs = self._prepacked(inputs, held, location)
        elif self.constants or held:
            inputs = [*inputs, *held, *self.constants]
        apart = outputs and not all(
            self._may_share(i, j, same) for i, j, same in shared(inputs, outputs)
        )
        made = run(
            self.handle,
            self.in_specs,
            self.out_specs,
            inputs,
            () if apart else outputs,
            scalars,
            location,
        )
        if apart:
            for j, target in enumerate(outputs):
                plan = make_plan(lookup("_copy"), {}, [self.out_specs[j]], self.out_specs[j].device)
                invoke(plan.handle, plan.in_specs, plan.out_specs, [made[j]], [target], (), -1)
                made[j] = target
        if self.can_fail and is_naive():
            for a in [*made, *(inputs[i] for i in self.mutated)]:
                wait(a._handle)
        return made

    def _prepacked(self, inputs: Sequence, held: Sequence, location: int) -> list:
        """The inputs of the core's program."""
        made = self.prepack.results(inputs, location, held)
        if self.reads is None:
            return [*inputs, *held, *self.constants, *made]
        if self.reads and self.reads[-1] >= len(inputs):
            inputs = [*inputs, *held, *self.constants]
        return [*[inputs[i] for i in self.reads], *made]

    def name_layers(self, of_steps: Sequence[tuple]) -> None:
        """Gives the instructions of runs from now on the names of their layers."""
        names = [layers.c_name(", ".join(found) or None) for found in of_steps]
        if lib.pl_program_set_layers(self.handle, names):
            raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())

    def _may_share(self, i: int, j: int, same_address: bool) -> bool:
        """May output j lie in the memory of input i? Not if it is written before the last read of
        the input."""
        read, write = self._last_read[i], self._first_write[j]
        return read < write or read == write and same_address and (i, j) in self._inplace


class Prepack:
    """What programs of one graph compute from their stable inputs alone: once, and again when one
    of them was written."""

    __slots__ = ("__weakref__", "_state", "inputs", "keys", "program")

    def __init__(self, program: Program, inputs: Sequence[int], keys: Sequence[Any]):
        """inputs: of the main program, by number. keys: of the results; see prepacked."""
        self.program, self.inputs, self.keys = program, tuple(inputs), tuple(keys)
        # versions, the arrays they are of, results; what they were `held` in, and pl_watched_writes
        self._state: tuple = (None, (), (), None, 0)

    def results(self, inputs: Sequence, location: int, held: Sequence = ()) -> list:
        """The arrays that the main program reads, for its inputs as they are now."""
        before, _, made, known, written = self._state
        if held and held is known and lib.pl_watched_writes() == written:
            return made
        inputs = [*inputs, *held]
        given = [inputs[i] for i in self.inputs]
        now, written = versions(given)  # before the run: what is written after it shows
        if now != before:
            made = self.program.run(given, (), location)
        self._state = now, given, made, held, written
        return made

    @property
    def specs(self) -> Sequence[Spec]:
        """Of the results."""
        return self.program.out_specs


class Prepacks:
    """Results of several. places: for each, the number of its Prepack and its number there."""

    __slots__ = ("parts", "places")

    def __init__(self, parts: Sequence[Prepack], places: Sequence[tuple[int, int]]):
        self.parts, self.places = tuple(parts), tuple(places)

    def results(self, inputs: Sequence, location: int, held: Sequence = ()) -> list:
        """As of a Prepack."""
        made = [p.results(inputs, location, held) for p in self.parts]
        return [made[i][j] for i, j in self.places]

    @property
    def specs(self) -> Sequence[Spec]:
        """Of the results."""
        return [self.parts[i].specs[j] for i, j in self.places]


def prepacked(
    wanted: Sequence[Value],
    variables: Mapping[Value, int],
    constants: Mapping[Value, Any],
    device: Any,
    name: str,
    known: MutableMapping[tuple, Prepack],
) -> Prepack | Prepacks:
    """What computes these values. variables: their numbers among the inputs of the main program.
    known: what other programs of the same graph prepack, by the keys of the results; gets what is
    new. So programs for many sizes share their weights, but for those whose expression has no exact
    digest."""
    expressions = [expression(v, variables, constants) for v in wanted]
    keys = [(e.key, str(device)) if e.exact else (object(),) for e in expressions]
    found = [known.get(key) for key in keys]
    new = [i for i, part in enumerate(found) if part is None]
    parts = list(dict.fromkeys([part for part in found if part is not None]))
    if new:
        values = fused([wanted[i] for i in new], device)
        used = dict.fromkeys(v for i in new for v in expressions[i].used)
        program = assemble(values, [*used, *constants], device, name + ".prepack", 1)
        program.constants = tuple(constants.values())
        made = Prepack(program, [variables[v] for v in used], [keys[i] for i in new])
        known.update(dict.fromkeys(made.keys, made))
        parts.append(made)
    place = {key: (i, j) for i, part in enumerate(parts) for j, key in enumerate(part.keys)}
    places = [place[key] for key in keys]
    one = len(parts) == 1 and places == [(0, j) for j in range(len(parts[0].keys))]
    return parts[0] if one else Prepacks(parts, places)


def lower(
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    device: Any,
    name: str = "program",
    *,
    tier: int = 0,
    stable: Sequence[Value] = (),
    free: Sequence[int] = (),
    layouts: dict[Value, str] | None = None,
    first: Sequence[int] = (),
    prepacks: MutableMapping[tuple, Prepack] | None = None,
) -> Program:
    """Lowers a typed graph. Every variable of the graph must be among `inputs` (variables, or
    values computed elsewhere).

    tier: 0 runs the exact passes only; 1 also those that compile, and differ in rounding.
    stable: inputs that seldom change: at tier 1 what depends on them alone is prepacked.
    free: numbers of outputs whose memory layout the passes may choose; `out_specs` tell it.
    layouts: of inputs that are not row-major. first: numbers of outputs that others wait for: what
    they need runs before the rest. The others come in their order. prepacks: what other programs of
    the graph prepack; see prepacked.

    Operators that mutate inputs write into the given arrays. An output that is an input or appears
    twice is copied.
    """
    if not tier:
        exact = optimized(outputs, inputs, device, layouts, tier)
        return exact_program(exact, evaluate(exact.constants, device), device, name, first)
    outputs, variables, constants, wanted, results = compiled_parts(
        outputs, inputs, device, stable, free, layouts
    )
    given: list[Value] = [*variables, *constants]
    prepack = reads = None
    outputs = fused(outputs, device)
    if wanted:
        seldom = set(stable)
        numbers = {variables[i]: i for i, v in enumerate(inputs) if v in seldom}
        known = {} if prepacks is None else prepacks
        prepack = prepacked(wanted, numbers, constants, device, name, known)
        if seldom:
            nodes = set(topological(outputs))
            reads = tuple([i for i, v in enumerate(given) if v.node in nodes])
            given = [given[i] for i in reads]
        given += results
    program = assemble(outputs, given, device, name, tier, at_once(device), first)
    program.n_in, program.tier, program.reads = len(inputs), tier, reads
    program.constants, program.prepack = tuple(constants.values()), prepack
    return program


class Exact(NamedTuple):
    """A graph after the exact passes. steps: its outputs; given: the variables in the place of its
    inputs; stand_ins: variables for the constants, which are values of a graph without inputs."""

    steps: list[Value]
    given: list[Value]
    stand_ins: list[Value]
    constants: list[Value]


def exact_program(
    graph: Exact, constants: Sequence, device: Any, name: str, first: Sequence[int] = ()
) -> Program:
    """The program of tier 0. constants: arrays; first: see lower."""
    program = assemble(graph.steps, [*graph.given, *graph.stand_ins], device, name, 0, 1, first)
    program.n_in, program.constants = len(graph.given), tuple(constants)
    return program


def optimized(
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    device: Any,
    layouts: dict[Value, str] | None,
    tier: int,
) -> Exact:
    """A graph by the exact passes; see lower."""
    outputs, variables = extract(outputs, inputs)
    if layouts:
        outputs, variables = _stored(outputs, variables, [layouts.get(v, "") for v in inputs])
    backend = backends.of(device)
    if backend.decomposes:
        outputs = expand(outputs, backend.kernels)
    outputs, constants = optimize(control(outputs, tier))
    return Exact(outputs, variables, list(constants), list(constants.values()))


def compiled_parts(
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    device: Any,
    stable: Sequence[Value] = (),
    free: Sequence[int] = (),
    layouts: dict[Value, str] | None = None,
) -> tuple[list[Value], list[Value], dict[Value, Any], list[Value], list[Value]]:
    """A graph at tier 1, before pointwise groups are made: (outputs, variables in the place of
    inputs, arrays of constants, what is prepared, the variables that stand for that in outputs).
    See lower."""
    from .passes.prepack import split_prepack

    outputs, variables, stand_ins, values = optimized(outputs, inputs, device, layouts, 1)
    constants = dict(zip(stand_ins, evaluate(values, device)))
    seldom = set(stable)
    kept = [v for v, given in zip(variables, inputs) if given in seldom]
    outputs = compile_passes(outputs, device, free, [*kept, *constants])
    outputs, wanted, results = split_prepack(outputs, [*kept, *constants])
    return outputs, variables, constants, wanted, results


def _stored(outputs: Sequence[Value], variables: Sequence[Value], layouts: Sequence[str]):
    """Variables as they lie in memory, with the nodes that make them row-major."""
    stored = [
        variable(v.node.name, v.type._replace(layout=tag)) if tag else v
        for v, tag in zip(variables, layouts)
    ]
    plain = {
        v.node: [Value(typed_node(lookup("_reorder"), {"layout": ""}, [s]))]
        for v, s in zip(variables, stored)
        if s is not v
    }
    return rewrite(outputs, None, plain), stored


def assemble(
    outputs: Sequence[Value],
    given: Sequence[Value],
    device: Context,
    name: str,
    tier: int,
    threads: int = 1,
    first: Sequence[int] = (),
) -> Program:
    """A program of the graph as it is. tier: from 1 on it waits for compilers. threads: that its
    branches may use. first: see lower."""
    assigned = Assignment(outputs, given, device, threads, tier, first)
    if watched.seen is not None:
        watched.seen.append((name, assigned))
    specs, plans = assigned.specs, assigned.plans
    scalars: list[float] = []
    by_place: dict[int, OpenScalar] = {}  # among the scalars
    in_modes = bytearray(max(1, len(assigned.given)))
    dynamic = [
        scalars_of(n.operation, n.attrs) if n.operation.has_dynamic else () for n in assigned.alike
    ]
    unknown = [
        open_scalars(n.operation, n.attrs) if d else () for n, d in zip(assigned.alike, dynamic)
    ]
    if any(dynamic):
        for kind in assigned.kinds:
            if dynamic[kind]:
                found = enumerate(unknown[kind], len(scalars))
                by_place.update((k, n) for k, n in found if n is not None)
                scalars += dynamic[kind]
    if any(n.operation.mutates for n in assigned.alike):
        for node, plan in zip(assigned.steps, plans):
            for i in plan.mutated:
                at = assigned.given.get(assigned.base(node.inputs[i]))
                if at is not None:
                    in_modes[at] = READWRITE

    program = Program.__new__(Program)
    program.handle = 0
    program.ops, program.arena_bytes = _one(tuple([p.op for p in plans])), assigned.arena_bytes
    program.naive_bytes = sum(rounded(b.nbytes) for b in assigned.buffers)
    program.constants, program.prepack, program.reads, program.tier = (), None, None, 0
    program._last_read, program._inplace = _one(assigned.last_read), _one(assigned.inplace)
    program._first_write, program.finals = _one(assigned.first_write), _one(assigned.finals)
    program.n_in, program.n_out = len(given), len(outputs)
    program.in_specs = tuple([specs[v.type] for v in assigned.given])
    program.out_specs = tuple([specs[v.type] for v in outputs])
    program.mutated = tuple([i for i, m in enumerate(in_modes) if m])
    program.cost_us = sum(p.cost_us for p in plans)
    brief = all([p.brief for p in plans])
    # an array that a run makes for itself may find no memory
    program.can_fail = any(p.can_fail for p in plans) or assigned.arena_bytes >= LARGE_BYTES
    program.handle = lib.pl_program_new(
        len(assigned.given),
        ffi.from_buffer("uint8_t *", in_modes),
        program.n_out,
        [s.nbytes for s in program.out_specs],
        len(plans),
        [p.handle for p in plans],
        ffi.from_buffer("pl_slot[]", assigned.slots),
        scalars,
        program.arena_bytes,
        (lib.PL_PLAN_INLINE if program.cost_us < INLINE_US else 0)
        | (lib.PL_PLAN_BRIEF if program.cost_us < BRIEF_US and brief else 0)
        | place_flag(device),
        device.lane,
        device.device_id,
        name.encode(),
    )
    program.open_scalars = tuple(by_place.values())
    if (
        not program.handle
        or (by_place and lib.pl_program_set_dynamic(program.handle, len(by_place), [*by_place]))
        or (
            assigned.ends
            and lib.pl_program_split(
                program.handle, threads, len(assigned.ends), assigned.ends, assigned.sections
            )
        )
    ):
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    _name_layers(program, assigned.steps)
    return program


def _name_layers(program: Program, steps: Sequence[Node]) -> None:
    """Tells the core which layers each instruction computes."""
    program.calls = program.named_by = None
    of_steps = [n.source.layers if n.source.__class__ is Origin else () for n in steps]
    if not any(of_steps):
        return
    of_steps = _one(tuple(of_steps))
    if any([k.__class__ is int for found in of_steps for k in found]):
        program.calls = of_steps
    else:
        program.name_layers(of_steps)


_shared = Recent(256)


def _one(value):
    """The one object that equal values of programs share: a graph's programs for many shapes differ
    in sizes, not in what happens when."""
    return _shared.setdefault(value, value)


class _Specs(dict):
    """The Spec of each Type on one device."""

    def __init__(self, device: Any):
        self._device = device

    def __missing__(self, t: Type) -> Spec:
        made = self[t] = spec(t.shape, t.dtype, self._device, t.layout)
        return made


class Assignment:
    """The steps of a program and where every value lives: in an input, an output, or a buffer of
    the arena.

    times: of each step. kinds: the number of each step's kind; alike: the first node of each, see
        _graph.kinds. ends, sections: as the core wants branches; empty where no steps run at once.
        Times are numbers of steps, or of sections. slots: as the core wants them. offsets: of the
        buffers. last_read: the last time at which each given value is read. finals: the time from
        which each output of the program stays as it is. first_write: the time at which each output
        is written. inplace: pairs (input, output) that may be the same memory although the step
        that writes the one reads the other.
    """

    def __init__(
        self,
        outputs: Sequence[Value],
        given: Sequence[Value],
        device: Any,
        threads: int,
        tier: int,
        first: Sequence[int] = (),
    ):
        self.given = {v: i for i, v in enumerate(given)}
        specs = self.specs = _Specs(device)
        order = live(outputs, given)
        effects = Effects(order)
        # writes keep their order, and so do draws of random numbers
        if first and not effects.written and not any(n.operation.is_random(n.attrs) for n in order):
            order = live([*(outputs[i] for i in first), *outputs], given)
        # views take no step; but a view of memory that is written is a copy, made when the graph
        # looks
        self._bases = {v: base for v, base in effects.bases.items() if base not in effects.written}
        owned = self._owned(outputs, order)
        viewing = {v.node for v in self._bases}
        self.steps = [n for n in order if n not in viewing] if viewing else order
        self.kinds, self.alike = kinds(self.steps)
        made = make_plans(
            [
                (n.op, n.attrs, [specs[v.type] for v in n.inputs], device, n.types)
                for n in self.alike
            ],
            tier > 0,
        )
        self.plans = [made[k] for k in self.kinds]
        times = list(range(len(self.steps)))
        self.ends: list[int] = []
        self.sections: list[int] = []
        if threads > 1:
            times = self._branch(
                find_sections(self.steps, self.plans, effects.pinned, self.base, threads, device)
            )
        slots, buffers, last_read, finals, first_write, inplace = assign_buffers(
            self.steps,
            self.kinds,
            times,
            list(self.given),
            owned,
            self._bases,
            self._joined(owned, effects, device),
            [tuple([s.nbytes for s in plan.out_specs]) for plan in made],
            [_overwritable(plan) for plan in made],
        )
        self.last_read, self.first_write = tuple(last_read), tuple(first_write)
        self.finals, self.inplace = tuple(finals), frozenset(inplace)
        self.buffers = [Buffer(*b) for b in buffers]
        self.times = times
        self.offsets, self.arena_bytes = plan_memory(self.buffers)
        self.slots = np.frombuffer(bytearray(slots), SLOT)
        arena = self.slots["kind"] == lib.PL_SLOT_ARENA
        self.slots["offset_bytes"][arena] += np.array(self.offsets, int)[self.slots["index"][arena]]
        self.slots["index"][arena] = 0

    def _branch(self, sections: list[list[list[int]]]) -> list[int]:
        """Puts the steps in the order of their branches; the time of each."""
        if all(len(branches) == 1 for branches in sections):
            return list(range(len(self.steps)))
        order: list[int] = []
        times: list[int] = []
        for time, branches in enumerate(sections):
            for steps in branches:
                order += steps
                times += [time] * len(steps)
                self.ends.append(len(order))
                self.sections.append(time)
        self.steps = [self.steps[i] for i in order]
        self.plans = [self.plans[i] for i in order]
        self.kinds = [self.kinds[i] for i in order]
        return times

    def _joined(self, owned, effects: Effects, device) -> dict[Value, tuple[Value, int, int]]:
        """Values that are made where a join wants them, so that it has nothing to copy: value ->
        (the joined array, the offset in it and its size, in bytes). For larger joined arrays
        the memory would be taken long before the result is complete; that of outputs is taken
        when a run starts."""
        found: dict[Value, tuple[Value, int]] = {}
        steps = set(self.steps)
        given_out = {self.base(v) for v in owned}
        kept = given_out | effects.written
        nbytes = lambda v: self.specs[v.type].nbytes
        for node in self.steps if backends.of(device).joins_in_place else ():
            offsets = join_offsets(
                node.operation, [v.type for v in node.inputs], node.types[0], node.attrs
            )
            whole = Value(node)
            if offsets is None or whole in effects.written:
                continue
            if nbytes(whole) > MAX_JOINED_BYTES and whole not in given_out:
                continue
            for given, offset in zip(node.inputs, offsets):
                v = self.base(given)
                own = v.node in steps and v not in kept and nbytes(v) == nbytes(given)
                if own and v not in found and offset % ALIGN_BYTES == 0:
                    found[v] = (whole, offset)
        joined: dict[Value, tuple[Value, int, int]] = {}
        for v, (whole, offset) in reversed(found.items()):  # what it is joined into comes first
            root, more, size = joined.get(whole, (whole, 0, nbytes(whole)))
            joined[v] = (root, offset + more, size)
        return joined

    def base(self, v: Value) -> Value:
        """The value in whose memory v lies."""
        return self._bases.get(v, v)

    def _owned(self, outputs: Sequence[Value], order: list[Node]) -> list[Value]:
        """The outputs, each in memory of its own: inputs, views of them and repeated ones are
        copied at the end."""
        taken: set[Value] = set()
        owned = []
        for v in outputs:
            if self.base(v) in self.given or self.base(v) in taken:
                order.append(Node(lookup("_copy"), {}, (v,), "copy", (v.type,)))
                v = Value(order[-1])
            taken.add(self.base(v))
            owned.append(v)
        return owned


def _overwritable(plan: Plan) -> tuple[tuple[int, int], ...]:
    """The pairs (input, output) of a call that may share memory, element by element, and are of one
    size."""
    ins, outs = plan.in_specs, plan.out_specs
    return tuple(
        (a, b)
        for a, b in plan.op.inplace
        if a < len(ins) and b < len(outs) and ins[a].nbytes == outs[b].nbytes
    )
