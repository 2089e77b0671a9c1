"""Programs: a typed graph lowered to C instructions over one arena. One run is one call and one
engine operation."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import ffi, is_naive, lib, wait
from ..engine._array import invoke, run, shared, stamps
from ..engine.error import OutOfMemory
from ..kernels.number import Number
from ..kernels.plan import INLINE_US, make_plan, numbers_of, scalars_of
from ..kernels.record import lookup
from ..kernels.spec import Spec, spec
from .effects import Effects
from .graph import Node, Value, rewrite, typed_node, variable
from .passes import compile_passes, fused, optimize
from .passes.dead_code import cut, live
from .passes.memory import Buffer, plan_memory, rounded
from .passes.prologue import split_prologue

READ, WRITE, READWRITE = 0, 1, 2


class Program:
    """A lowered graph. Inputs and outputs are array handles in the order given to `lower`."""

    __slots__ = (
        "_first_write",
        "_inplace",
        "_last_read",
        "arena_bytes",
        "can_fail",
        "constants",
        "cost_us",
        "handle",
        "in_modes",
        "mutated",
        "n_in",
        "n_out",
        "naive_bytes",
        "numbers",
        "out_specs",
        "plans",
        "prologue",
        "tier",
    )

    def __del__(self, free=lib.pl_program_free):
        free(self.handle)

    def run(
        self,
        inputs: Sequence,
        outputs: Sequence = (),
        location: int = -1,
        numbers: Sequence[float] = (),
    ) -> list:
        """Pushes one run on arrays. outputs: arrays to write the first outputs into, or nothing:
        all are made new. numbers: what the Numbers of the graph are computed from. Returns every
        output array. Raises MemoryError."""
        numbers = [n.of(numbers) for n in self.numbers] if self.numbers else ()
        if self.prologue is not None:
            inputs = [*inputs, *self.constants, *self.prologue.results(inputs, location)]
        elif self.constants:
            inputs = [*inputs, *self.constants]
        apart = outputs and not all(
            self._may_share(i, j, same) for i, j, same in shared(inputs, outputs)
        )
        made = run(self.handle, self.out_specs, inputs, () if apart else outputs, numbers, location)
        if apart:
            for j, target in enumerate(outputs):
                plan = make_plan(lookup("_copy"), {}, [self.out_specs[j]], self.out_specs[j].device)
                invoke(plan.handle, plan.out_specs, [made[j]], [target], (), -1)
                made[j] = target
        if self.can_fail and is_naive():
            for a in [*made, *(inputs[i] for i in self.mutated)]:
                wait(a._handle)
        return made

    def _may_share(self, i: int, j: int, same_address: bool) -> bool:
        """May output j lie in the memory of input i? Not if it is written before the last read of
        the input."""
        read, write = self._last_read[i], self._first_write[j]
        return read < write or read == write and same_address and (i, j) in self._inplace


class Prologue:
    """What a program computes from its stable inputs alone: once, and again when one of them was
    written."""

    __slots__ = ("_state", "inputs", "program")

    def __init__(self, program: Program, inputs: Sequence[int]):
        self.program, self.inputs = program, tuple(inputs)  # of the main program, by number
        self._state: tuple = (None, (), ())  # stamps, the arrays they are of, results

    def results(self, inputs: Sequence, location: int) -> list:
        """The arrays that the main program reads, for its inputs as they are now."""
        given = [inputs[i] for i in self.inputs]
        now = stamps(given)  # before the run: what is written after it shows
        before, _, made = self._state
        if now != before:
            made = self.program.run(given, (), location)
            self._state = now, given, made
        return made


def lower(
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    device,
    name: str = "program",
    *,
    tier: int = 0,
    stable: Sequence[Value] = (),
    free: Sequence[int] = (),
    layouts: dict[Value, str] | None = None,
) -> Program:
    """Lowers a typed graph. Every variable of the graph must be among `inputs` (variables, or
    values computed elsewhere).

    tier: 0 runs the exact passes only; 1 also those that compile, and differ in rounding.
    stable: inputs that seldom change: at tier 1 what depends on them alone becomes the prologue.
    free: numbers of outputs whose memory layout the passes may choose; `out_specs` tell it.
    layouts: of inputs that are not row-major.

    Operators that mutate inputs write into the given arrays. An output that is an input or appears
    twice is copied.
    """
    outputs, variables = cut(outputs, inputs)
    if layouts:
        outputs, variables = _stored(outputs, variables, [layouts.get(v, "") for v in inputs])
    outputs, constants = optimize(outputs, device)
    given = [*variables, *constants]
    prologue = None
    if tier:
        outputs = compile_passes(outputs, free)
        seldom = set(stable)
        places = [i for i, v in enumerate(inputs) if v in seldom]
        kept = [variables[i] for i in places]
        outputs, wanted, results = split_prologue(outputs, [*kept, *constants])
        if wanted:
            first = _assemble(fused(wanted), [*kept, *constants], device, name + ".prologue")
            first.constants = tuple(constants.values())
            prologue = Prologue(first, places)
            given += results
        outputs = fused(outputs)
    program = _assemble(outputs, given, device, name)
    program.n_in, program.tier = len(inputs), tier
    program.constants, program.prologue = tuple(constants.values()), prologue
    return program


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
    return rewrite(outputs, lambda node, new: None, plain), stored


def _assemble(outputs: Sequence[Value], given: Sequence[Value], device, name: str) -> Program:
    """A program of the graph as it is."""
    layout = _Layout(outputs, given, device)
    plans, slots, scalars = [], [], []
    numbers: dict[int, Number] = {}  # by their place among the scalars
    in_modes = bytearray(max(1, len(layout.given)))
    for node in layout.steps:
        in_specs = [_spec(v, device) for v in node.inputs]
        plan = make_plan(node.op, node.attrs, in_specs, device, node.types)
        plans.append(plan)
        found = enumerate(numbers_of(node.op, node.attrs), len(scalars))
        numbers.update((k, n) for k, n in found if n is not None)
        scalars.extend(scalars_of(node.op, node.attrs))
        slots.extend(layout.slot(v) for v in node.inputs)
        slots.extend(layout.slot(Value(node, i)) for i in range(len(node.types)))
        for i in plan.mutated:
            kind, index, _ = layout.slot(node.inputs[i])
            if kind == lib.PL_SLOT_INPUT:
                in_modes[index] = READWRITE

    program = Program.__new__(Program)
    program.handle = 0
    program.plans, program.arena_bytes = plans, layout.arena_bytes
    program.naive_bytes = sum(rounded(b.nbytes) for b in layout.buffers)
    program.constants, program.prologue, program.tier = (), None, 0
    program._last_read = [layout.last.get(v, -1) for v in layout.given]
    program._first_write, program._inplace = layout.first_write, layout.inplace
    program.n_in, program.n_out = len(given), len(outputs)
    program.out_specs = tuple(_spec(v, device) for v in outputs)
    program.in_modes = bytes(in_modes)
    program.mutated = [i for i, m in enumerate(in_modes) if m]
    program.cost_us = sum(p.cost_us for p in plans)
    program.can_fail = any(p.can_fail for p in plans)
    program.handle = lib.pl_program_new(
        len(layout.given),
        ffi.from_buffer("uint8_t *", in_modes),
        program.n_out,
        [s.nbytes for s in program.out_specs],
        len(plans),
        [p.handle for p in plans],
        ffi.new("pl_slot[]", slots or 1),
        scalars,
        program.arena_bytes,
        lib.PL_PLAN_INLINE if program.cost_us < INLINE_US else 0,
        lib.PL_LANE_CPU,
        device.device_id,
        name.encode(),
    )
    program.numbers = tuple(numbers.values())
    if not program.handle or (
        numbers and lib.pl_program_give(program.handle, len(numbers), [*numbers])
    ):
        raise OutOfMemory(ffi.string(lib.pl_error_last()).decode())
    return program


class _Layout:
    """The steps of a program and where every value lives: in an input, an output, or a buffer of
    the arena.

    last: the last step that reads a value. first_write: the step that writes each output. inplace:
        pairs (input, output)
    that may be the same memory although the step that writes the one reads the other.
    """

    def __init__(self, outputs: Sequence[Value], given: Sequence[Value], device):
        self.given = {v: i for i, v in enumerate(given)}
        self._device = device
        order = live(outputs, given)
        effects = Effects(order)
        # views take no step; but a view of memory that is written is a copy, made when the graph
        # looks
        self._bases = {
            Value(n): effects.base(Value(n))
            for n in order
            if n.op.view and effects.base(Value(n)) not in effects.written
        }
        owned = self._owned(outputs, order)
        self.steps = [n for n in order if Value(n) not in self._bases]
        self.last: dict[Value, int] = {}
        for step, node in enumerate(self.steps):
            self.last.update((self.base(v), step) for v in node.inputs)
            for i in range(len(node.types)):
                self.last.setdefault(Value(node, i), step)
        self._place = {v: (lib.PL_SLOT_INPUT, i) for v, i in self.given.items()}
        self._place.update((self.base(v), (lib.PL_SLOT_OUTPUT, j)) for j, v in enumerate(owned))
        self.buffers: list[Buffer] = []
        self.first_write, self.inplace = [0] * len(owned), set()
        for step, node in enumerate(self.steps):
            self._place_outputs(step, node)
        self._offsets, self.arena_bytes = plan_memory(self.buffers)

    def base(self, v: Value) -> Value:
        """The value in whose memory v lies."""
        return self._bases.get(v, v)

    def slot(self, v: Value) -> tuple[int, int, int]:
        """(kind, index, byte offset) as the core wants it."""
        kind, index = self._place[self.base(v)]
        return (kind, 0, self._offsets[index]) if kind == lib.PL_SLOT_ARENA else (kind, index, 0)

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

    def _place_outputs(self, step: int, node: Node) -> None:
        taken_over: set[int] = set()
        for i in range(len(node.types)):
            v = Value(node, i)
            sources = self._overwritable(node, i)
            if v in self._place:
                output = self._place[v][1]
                self.first_write[output] = step
                self.inplace.update((self.given[x], output) for x in sources if x in self.given)
                continue
            dying = [
                self._place[x][1]
                for x in sources
                if self._place[x][0] == lib.PL_SLOT_ARENA and self.last[x] == step
            ]
            reuse = next((b for b in dying if b not in taken_over), None)
            if reuse is None:
                reuse = len(self.buffers)
                self.buffers.append(Buffer(_spec(v, self._device).nbytes, step, self.last[v]))
            else:
                self.buffers[reuse] = self.buffers[reuse]._replace(last=self.last[v])
                taken_over.add(reuse)
            self._place[v] = (lib.PL_SLOT_ARENA, reuse)

    def _overwritable(self, node: Node, i: int) -> list[Value]:
        """Bases of the inputs that output i may overwrite element by element: of its size, read by
        no other input."""
        if not node.op.inplace:
            return []
        bases = [self.base(v) for v in node.inputs]
        nbytes = _spec(Value(node, i), self._device).nbytes
        return [
            bases[a]
            for a, b in node.op.inplace
            if b == i
            and a < len(bases)
            and bases.count(bases[a]) == 1
            and _spec(bases[a], self._device).nbytes == nbytes
        ]


def _spec(v: Value, device) -> Spec:
    t = v.type
    return spec(t.shape, t.dtype, device, t.layout)
