"""Programs: a typed graph lowered to C instructions over one arena. One run is one call and one engine operation."""
from __future__ import annotations

from collections.abc import Sequence

from ..engine import ffi, is_naive, lib, wait
from ..engine._array import invoke, run, shared
from ..engine.error import OutOfMemory
from ..kernels.plan import INLINE_US, make_plan, scalars_of
from ..kernels.record import lookup
from ..kernels.spec import Spec, spec
from .effects import Effects
from .graph import Node, Value
from .passes import optimize
from .passes.dead_code import cut, live
from .passes.memory import Buffer, plan_memory, rounded

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
        "out_specs",
        "plans",
    )

    def __del__(self):
        lib.pl_program_free(self.handle)

    def run(self, inputs: Sequence, outputs: Sequence = (), location: int = -1) -> list:
        """Pushes one run on arrays. outputs: arrays to write the first outputs into, or nothing: all are made new.
        Returns every output array. Raises MemoryError."""
        if self.constants:
            inputs = [*inputs, *self.constants]
        if outputs and not all(self._may_share(i, j, same) for i, j, same in shared(inputs, outputs)):
            made = run(self.handle, self.out_specs, inputs, (), location)
            for j, target in enumerate(outputs):
                plan = make_plan(lookup("_copy"), {}, [self.out_specs[j]], self.out_specs[j].device)
                invoke(plan.handle, plan.out_specs, [made[j]], [target], (), -1)
                made[j] = target
            return made
        made = run(self.handle, self.out_specs, inputs, outputs, location)
        if self.can_fail and is_naive():
            for a in [*made, *(inputs[i] for i in self.mutated)]:
                wait(a._handle)
        return made

    def _may_share(self, i: int, j: int, same_address: bool) -> bool:
        """May output j lie in the memory of input i? Not if it is written before the last read of the input."""
        read, write = self._last_read[i], self._first_write[j]
        return read < write or read == write and same_address and (i, j) in self._inplace


def lower(outputs: Sequence[Value], inputs: Sequence[Value], device, name: str = "program") -> Program:
    """Lowers a typed graph. Every variable of the graph must be among `inputs` (variables, or values computed elsewhere).

    Operators that mutate inputs write into the given arrays. An output that is an input or appears twice is copied.
    """
    outputs, cut_inputs = cut(outputs, inputs)
    outputs, constants = optimize(outputs, device)
    given = {v: i for i, v in enumerate([*cut_inputs, *constants])}
    order = live(outputs, given)
    # an output must own its memory: copy inputs, views of inputs and repeated outputs
    copy = lookup("_copy")
    effects = Effects(order)
    # a view of memory that is written is a copy, made when the graph looks
    aliased = {Value(n) for n in order if n.op.view and effects.base(Value(n)) not in effects.written}

    def root(v: Value) -> Value:
        return effects.base(v) if v in aliased else v
    taken: set[Value] = set()
    final: list[Value] = []
    for v in outputs:
        r = root(v)
        if r in given or r in taken:
            made = Node(copy, {}, (v,), "copy", (v.type,))
            order.append(made)
            v = r = Value(made)
        taken.add(r)
        final.append(v)
    out_index = {root(v): j for j, v in enumerate(final)}

    steps = [n for n in order if Value(n) not in aliased]
    last: dict[Value, int] = {}
    for step, node in enumerate(steps):
        for v in node.inputs:
            last[root(v)] = step
        for i in range(len(node.types)):
            last.setdefault(Value(node, i), step)
    place: dict[Value, tuple[int, int]] = {v: (lib.PL_SLOT_INPUT, i) for v, i in given.items()}
    place.update({r: (lib.PL_SLOT_OUTPUT, j) for r, j in out_index.items()})
    buffers: list[list[int]] = []                # [nbytes, first, last] of arena buffers
    plans, slots, scalars = [], [], []
    first_write, inplace = [0] * len(final), set()
    in_modes = bytearray(max(1, len(given)))
    for step, node in enumerate(steps):
        plan = make_plan(node.op, node.attrs, [_spec(v, device) for v in node.inputs], device)
        plans.append(plan)
        scalars.extend(scalars_of(node.op, node.attrs))
        for i in plan.mutated:
            kind, index = place[root(node.inputs[i])]
            if kind == lib.PL_SLOT_INPUT:
                in_modes[index] = READWRITE
        taken_over: set[int] = set()
        for i, s in enumerate(plan.out_specs):
            v = Value(node, i)
            if v in place:
                first_write[place[v][1]] = step
                inplace.update((place[x][1], place[v][1]) for x in
                               (root(node.inputs[a]) for a, b in node.op.inplace if b == i and a < len(node.inputs))
                               if x in given and _once(node, x, root) and _spec(x, device).nbytes == s.nbytes)
                continue
            reuse = next((place[root(node.inputs[a])][1] for a, b in node.op.inplace
                          if b == i and a < len(node.inputs) and _reusable(node, a, s, place, root, last, step, device)
                          and place[root(node.inputs[a])][1] not in taken_over), None)
            if reuse is not None:
                buffers[reuse][2] = last[v]
                place[v] = (lib.PL_SLOT_ARENA, reuse)
                taken_over.add(reuse)
            else:
                place[v] = (lib.PL_SLOT_ARENA, len(buffers))
                buffers.append([s.nbytes, step, last[v]])
        slots.extend(place[root(v)] for v in node.inputs)
        slots.extend(place[Value(node, i)] for i in range(len(node.types)))
    offsets, arena_bytes = plan_memory([Buffer(*b) for b in buffers])

    program = Program.__new__(Program)
    program.handle = 0
    program.plans, program.arena_bytes = plans, arena_bytes
    program.naive_bytes = sum(rounded(b[0]) for b in buffers)
    program.constants = tuple(constants.values())
    program._last_read = [last.get(v, -1) for v in given]
    program._first_write, program._inplace = first_write, inplace
    program.n_in, program.n_out = len(inputs), len(final)
    program.out_specs = tuple(_spec(v, device) for v in final)
    program.in_modes = bytes(in_modes)
    program.mutated = [i for i, m in enumerate(in_modes) if m]
    program.cost_us = sum(p.cost_us for p in plans)
    program.can_fail = any(p.can_fail for p in plans)
    c_slots = ffi.new("pl_slot[]", [(k, 0 if k == lib.PL_SLOT_ARENA else i, offsets[i] if k == lib.PL_SLOT_ARENA else 0)
                                    for k, i in slots] or 1)
    program.handle = lib.pl_program_new(
        program.n_in + len(constants), ffi.from_buffer("uint8_t *", in_modes), program.n_out, [s.nbytes for s in program.out_specs],
        len(plans), [p.handle for p in plans], c_slots, scalars, arena_bytes,
        lib.PL_PLAN_INLINE if program.cost_us < INLINE_US else 0, lib.PL_LANE_CPU, device.device_id, name.encode())
    if not program.handle:
        raise OutOfMemory(ffi.string(lib.pl_error_last()).decode())
    return program


def _spec(v: Value, device) -> Spec:
    return spec(v.shape, v.dtype, device)


def _reusable(node, a, s, place, root, last, step, device) -> bool:
    """May the output of spec `s` overwrite input `a`? Its buffer must die here and be read by no other input."""
    r = root(node.inputs[a])
    kind, _ = place[r]
    return (kind == lib.PL_SLOT_ARENA and last[r] == step and _spec(node.inputs[a], device).nbytes == s.nbytes
            and _once(node, r, root))


def _once(node: Node, base: Value, root) -> bool:
    """Does only one input of the node lie in this memory?"""
    return sum(root(v) == base for v in node.inputs) == 1
