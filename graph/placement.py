"""Placement: where the nodes of a graph run. A node runs where its inputs are; a `_to_device` node
copies to another device. A graph on several devices is cut into segments of one device, each one
program, with the copies between them. So is a graph with collectives: they run between programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..engine import Context, hooks
from ..engine._array import invoke, shared
from ..engine.device import named
from ..engine.error import DeviceError
from ..kernels.plan import copy_plan
from ..kernels.record import lookup, mutated_inputs
from ..kernels.spec import Spec, spec
from ..kernels.traits import Collective
from .effects import Effects
from .graph import Node, Value, rewrite, topological, values_of, with_inputs
from .passes.dead_code import extract, live
from .program import Program
from .program import lower as lower_here

TO_DEVICE = lookup("_to_device")
GROUP = "__ctx_group__"
SEGMENT_STEPS = 1 << 30  # more than any segment has; see Program.finals


def crosses(outputs: Sequence[Value]) -> bool:
    """Does a graph hold copies to other devices?"""
    return TO_DEVICE in [n.op for n in topological(outputs)]


def is_cut(node: Node) -> bool:
    """Does a node run between two programs?"""
    return node.op is TO_DEVICE or node.op is not None and node.op.has(Collective)


class Placement:
    """The device of each node of a graph.

    known: devices of variables. What depends on none of them runs where it is read, and so do
    variables that are not in `known`: `readers` gives the devices of each. wanted: of values whose
    device nothing else decides. default: for the rest. Raises DeviceError for a node whose
    inputs are on several devices.
    """

    def __init__(
        self,
        outputs: Sequence[Value],
        known: Mapping[Value, Context],
        default: Context,
        wanted: Mapping[Value, Context] | None = None,
    ):
        order = topological(outputs)
        of: dict[Node, Context | None] = dict.fromkeys(order)
        of.update((v.node, device.home) for v, device in known.items())
        of.update((n, _target(n)) for n in order if n.op is TO_DEVICE)
        self._of = of
        while self._spread(order):
            pass
        for v, device in (wanted or {}).items():
            if of[v.node] is None:
                of[v.node] = device.home
        while self._spread(order):
            pass
        of.update((n, default.home) for n in order if of[n] is None)
        self._where: dict[Node, Context] = {n: d for n, d in of.items() if d is not None}
        self.readers: dict[Value, list[Context]] = {}
        for node in order:
            here = self.of(node)
            for v in node.inputs if node.op is not TO_DEVICE else ():
                if of[v.node] == here:
                    pass
                elif v.node.op is not None or v in known:
                    raise DeviceError(
                        f"{node.operation.name}: all inputs must be on one device, got"
                        f" {of[v.node]} and {here}\n  fix: x.as_in_context(mx.{here})"
                    )
                if v.node.op is None and v not in known:
                    devices = self.readers.setdefault(v, [])
                    if here not in devices:
                        devices.append(here)

    def _spread(self, order: Sequence[Node]) -> bool:
        """Gives nodes of no device that of what they read, or of what reads them. Were there
        any?"""
        of, before = self._of, list(self._of.values()).count(None)
        for node in order:
            if of[node] is None:
                of[node] = next((of[v.node] for v in node.inputs if of[v.node]), None)
        for node in reversed(order):
            device = of[node] if node.op is not TO_DEVICE else _source(node)
            for v in node.inputs if device else ():
                of[v.node] = of[v.node] or device
        return 0 < list(of.values()).count(None) < before

    def of(self, node: Node) -> Context:
        """The device of a node."""
        return self._where[node]

    def resolve(self, outputs: Sequence[Value]) -> list[Value]:
        """The graph with the source of every copy; without copies to where an array is already."""

        def replace(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            source, target = self.of(node.inputs[0].node), self.of(node)
            if source == target:
                return inputs
            return [_copy_of(inputs[0], source, target)]

        return rewrite(outputs, replace, asked={TO_DEVICE})


def _copy_of(v: Value, source: Context, target: Context) -> Value:
    attrs = {"ctx": str(target), "source": str(source)}
    types = (v.type,) if v.node.is_typed else None
    return Value(Node(TO_DEVICE, attrs, (v,), f"{v.node.name}_on_{target}", types))


def without_copies(outputs: Sequence[Value]) -> list[Value]:
    """The graph for one device."""
    if not crosses(outputs):
        return list(outputs)
    return rewrite(outputs, lambda node, inputs: inputs, asked={TO_DEVICE})


def grouped(
    values: Sequence[Value], default: Context, group2ctx: dict[str, Context] | None
) -> tuple[list[Value], Placement | None]:
    """A graph over the devices of its groups (group2ctx), with copies where an edge leaves a
    device, and where its nodes run; None where all runs on the default device. A variable without a
    group, and one that is written, goes where it is used first. Copies that were traced go."""
    values = without_copies(values)
    if not group2ctx:
        return values, None
    order = topological(values)
    group = lambda node: group2ctx.get((node.extra or {}).get(GROUP, ""))
    of = {n: (group(n) or default).home for n in order if n.op is not None or group(n)}
    for node in order:
        if node.op is not None:
            written = mutated_inputs(node.op, node.attrs, len(node.inputs))
            for i, v in enumerate(node.inputs):
                if v.node.op is None and i in written:
                    of[v.node] = of[node]
                of.setdefault(v.node, of[node])
    if all(d == default.home for d in of.values()):
        return values, None
    copies: dict[tuple[Value, Context], Value] = {}

    def replace(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        here, near = of[node], list(inputs)
        for i, v in enumerate(node.inputs):
            if of[v.node] != here:
                if (v, here) not in copies:
                    copies[v, here] = _copy_of(inputs[i], of[v.node], here)
                near[i] = copies[v, here]
        if near == list(inputs):
            return None
        return values_of(with_inputs(node, near))

    made = rewrite(values, replace)
    known = {Value(n): of.get(n, default.home) for n in order if n.op is None}
    return made, Placement(made, known, default)


def _target(copy: Node) -> Context | None:
    return named(copy.attrs["ctx"]).home if copy.attrs["ctx"] else None


def _source(copy: Node) -> Context | None:
    return named(copy.attrs["source"]).home if copy.attrs["source"] else None


# ---- programs ------------------------------------------------------------------------------------


def lower(
    outputs: Sequence[Value],
    inputs: Sequence[Value],
    devices: Context | Sequence[Context],
    name: str = "program",
    *,
    wanted: Sequence[Context] = (),
    **options: Any,
) -> Program | PlacedProgram:
    """As program.lower, with inputs on these devices. wanted: see PlacedProgram."""
    if isinstance(devices, Context):
        devices = [devices]
    one = one_device(outputs, devices, wanted)
    if one is not None:
        return lower_here(outputs, inputs, one, name, **options)
    return PlacedProgram(outputs, inputs, devices, name, wanted=wanted, **options)


def one_device(
    outputs: Sequence[Value], devices: Sequence[Context], wanted: Sequence[Context] = ()
) -> Context | None:
    """The device of a graph that is one program; see lower."""
    if len({d.home for d in (*devices, *wanted)}) > 1 or any(
        [is_cut(n) for n in topological(outputs)]
    ):
        return None
    return devices[0] if len(set(devices)) == 1 else devices[0].home


class _Copy(NamedTuple):
    """A step that copies an array to another device."""

    source: Value
    made: Value
    device: Context


class _Message(NamedTuple):
    """A step that runs a collective."""

    source: Value
    made: Value
    kind: str
    attrs: dict[str, Any]


class _Part(NamedTuple):
    """A step that runs a program. targets: of the outputs of the whole, the numbers of those that
    its first outputs are."""

    device: Context
    reads: list[Value]
    made: list[Value]
    targets: list[int]
    program: Program


class PlacedProgram:
    """Programs of one or several devices, and the copies and collectives between them, pushed one
    after the other; each waits only for what it reads. Stands where a Program stands."""

    def __init__(
        self,
        outputs: Sequence[Value],
        inputs: Sequence[Value],
        devices: Sequence[Context],
        name: str,
        *,
        tier: int = 0,
        stable: Sequence[Value] = (),
        free: Sequence[int] = (),
        layouts: Mapping[Value, str] | None = None,
        wanted: Sequence[Context] = (),
        prepacks: Any = None,
    ):
        """wanted: devices of outputs for which no input decides. prepacks: not used, as programs of
        one graph may be cut in other places."""
        outputs, variables = extract(outputs, inputs)
        place = Placement(
            outputs, dict(zip(variables, devices)), devices[0], dict(zip(outputs, wanted))
        )
        self._inputs, self._outputs, self.tier = variables, outputs, tier
        renamed = dict(zip(inputs, variables))
        seldom = {renamed[v] for v in stable}
        tags = {renamed[v]: tag for v, tag in (layouts or {}).items()}
        number = {v: i for i, v in reversed(list(enumerate(outputs)))}
        order = [n for n in live(outputs, variables) if n.op is not None]
        segments = _segments(order, place)
        step_of = {n: k for k, nodes in enumerate(segments) for n in nodes}
        crossing = {v for n in order for v in n.inputs if step_of.get(v.node) != step_of[n]}
        awaited = {v for n in order if is_cut(n) for v in n.inputs}
        loose = {outputs[i] for i in free} - crossing
        last_read: dict[Value, int] = {}
        self._steps: list[_Copy | _Message | _Part] = []
        for k, nodes in enumerate(segments):
            inside = set(nodes)
            reads = dict.fromkeys(v for n in nodes for v in n.inputs if v.node not in inside)
            last_read.update(dict.fromkeys(reads, k))
            if nodes[0].op is TO_DEVICE:
                (source,) = reads
                self._steps.append(_Copy(source, Value(nodes[0]), place.of(nodes[0])))
                continue
            collective = nodes[0].operation.trait(Collective)
            if collective is not None:
                (source,) = reads
                attrs = nodes[0].attrs
                self._steps.append(_Message(source, Value(nodes[0]), collective.kind, attrs))
                continue
            values = [v for n in nodes for v in values_of(n)]
            final = sorted((v for v in values if v in number), key=number.__getitem__)
            made = [*final, *(v for v in values if v in crossing and v not in number)]
            device = place.of(nodes[0])
            program = lower_here(
                made,
                list(reads),
                device,
                name,
                tier=tier,
                stable=[v for v in reads if v in seldom],
                free=[i for i, v in enumerate(made) if v in loose],
                # another device or rank waits for it, and starts as soon as it is there
                first=[i for i, v in enumerate(made) if v in awaited],
                layouts={v: tags[v] for v in reads if v in tags},
            )
            self._steps.append(
                _Part(device, list(reads), made, [number[v] for v in final], program)
            )
        # an input that is read after an output is written must not lie in its memory
        step = {i: k for k, s in enumerate(self._steps) if isinstance(s, _Part) for i in s.targets}
        self._step_of_output = [step.get(i, -1) for i in range(len(outputs))]
        self._last_read = [last_read.get(v, -1) for v in variables]
        parts = self.parts
        made_by = {v: (k, p.program, j) for k, p in enumerate(parts) for j, v in enumerate(p.made)}
        finals: list[int] = []
        self.out_specs: list[Spec] = []
        for v in outputs:
            time, layout = 0, ""
            if v in made_by:
                k, program, j = made_by[v]
                time = k * SEGMENT_STEPS + min(program.finals[j], SEGMENT_STEPS - 1)
                layout = program.out_specs[j].layout
            finals.append(time)
            self.out_specs.append(spec(v.shape, v.dtype, place.of(v.node), layout))
        self.finals = tuple(finals)
        self.ops = tuple([op for p in parts for op in p.program.ops])
        self.constants = tuple(a for p in parts for a in p.program.constants)
        self.prepack = None
        self.cost_us = sum(p.program.cost_us for p in parts)
        self.can_fail = any(p.program.can_fail for p in parts)
        self.arena_bytes = sum(p.program.arena_bytes for p in parts)
        self.naive_bytes = sum(p.program.naive_bytes for p in parts)

    @property
    def parts(self) -> list[_Part]:
        """The programs, in the order in which they are pushed."""
        return [s for s in self._steps if isinstance(s, _Part)]

    def run(
        self,
        inputs: Sequence,
        outputs: Sequence = (),
        location: int = -1,
        scalars: Any = (),
        held: Sequence = (),
    ) -> list:
        """As Program.run."""
        inputs = [*inputs, *held]

        def copied(a, device: Context, targets: Sequence = ()):
            plan = copy_plan(a._spec, device)
            return invoke(plan.handle, plan.in_specs, plan.out_specs, [a], targets, (), location)[0]

        known = dict(zip(self._inputs, inputs))
        direct = self._direct(inputs, outputs)
        for step in self._steps:
            if isinstance(step, _Copy):
                known[step.made] = copied(known[step.source], step.device)
                continue
            if isinstance(step, _Message):
                run = hooks.get("collective")
                known[step.made] = run(step.kind, known[step.source], step.attrs)
                continue
            device, reads, made, targets, program = step
            arrays = [known[v] for v in reads]
            here = [a if a._spec.device.home == device else copied(a, device) for a in arrays]
            given = [outputs[i] for i in targets if i < len(outputs)]
            if not all(i in direct for i in targets[: len(given)]):
                given = []
            known.update(zip(made, program.run(here, given, location, scalars)))
            for i in program.mutated:
                if here[i] is not arrays[i]:
                    copied(here[i], arrays[i]._spec.device, [arrays[i]])
        results: list = []
        for i, (v, s) in enumerate(zip(self._outputs, self.out_specs)):
            value = known[v]
            if i < len(outputs):
                if value is not outputs[i]:
                    copied(value, outputs[i]._spec.device, [outputs[i]])
                value = outputs[i]
            elif v in self._inputs or any(value is r for r in results):
                value = copied(value, s.device)
            results.append(value)
        return results

    def _direct(self, inputs, outputs) -> set[int]:
        """The numbers of the arrays to write into that the programs themselves may write."""
        found = {
            i
            for i, (a, s) in enumerate(zip(outputs, self.out_specs))
            if a._spec.stype == "default" and a._spec.device.home == s.device
        }
        for i, j, _ in shared(inputs, outputs) if outputs else ():
            if self._last_read[i] > self._step_of_output[j]:
                found.discard(j)
        return found


def _segments(order: Sequence[Node], place: Placement) -> list[list[Node]]:
    """Nodes in steps, in an order in which they may run: a copy, a collective, or nodes of one
    device.

    Before a copy runs what it waits for, right after it what now waits for no other copy; a
    collective is a copy from a device to itself. So
    devices start as soon as they can, and micro-batches stay apart although the sums of their
    gradients connect them: a sum goes with the last one.
    """
    before = _before(order)
    copies = [n for n in order if is_cut(n)]
    number = {n: k for k, n in enumerate(copies)}
    first: dict[Node, int] = {}  # of the copies that wait for a node
    for node in reversed(order):
        k = number.get(node, first.get(node))
        if k is not None:
            for n in before[node]:
                first[n] = min(k, first.get(n, k))
    # copies between the same devices for which nothing more must run start together
    path = [(place.of(c.inputs[0].node), place.of(c)) for c in copies]
    waited = {k for n, k in first.items() if n not in number}
    turn, last = [], -1
    for k in range(len(copies)):
        last += k == 0 or k in waited or path[k] != path[k - 1]
        turn.append(last)
    end = last + 1

    time: dict[Node, int] = {}
    for node in order:
        k = number.get(node, first.get(node))
        if k is not None:
            time[node] = turn[k]
            continue
        # what writes over the source of a copy runs after the copy, in the next turn
        after = [time[n] + (n in number and place.of(n) != place.of(node)) for n in before[node]]
        time[node] = max([-1, *after])
    users: dict[Node, int] = {}  # the earliest one
    for node in reversed(order):
        if time[node] < 0:  # it waits for nothing: as late as possible
            time[node] = users.get(node, end)
        for n in before[node]:
            users[n] = min(time[node], users.get(n, end))

    # of each device: what the copies of a turn wait for, and the rest
    there: list[dict[Context, tuple[list[Node], list[Node]]]] = [{} for _ in range(end + 1)]
    starts: list[list[Node]] = [[] for _ in there]
    for node in order:
        if node in number:
            starts[time[node]].append(node)
        else:
            nodes = there[time[node]].setdefault(place.of(node), ([], []))
            nodes[node not in first].append(node)
    steps: list[list[Node]] = []
    for t, groups in enumerate(there):
        started = starts[t]
        target = place.of(started[0]) if started else None
        behind: list[Node] = []
        for device, (waited_for, rest) in groups.items():
            if device != target:
                _run(steps, waited_for + rest, place)
            elif started[0].op is TO_DEVICE:
                behind = waited_for + rest
            else:
                _run(steps, waited_for, place)
                behind = rest
        steps += [[c] for c in started]
        _run(steps, behind, place)
    return steps


def _run(steps: list[list[Node]], nodes: list[Node], place: Placement) -> None:
    """Adds nodes of one device to steps; what the step before runs there is one with them."""
    if not nodes:
        return
    there = steps and not is_cut(steps[-1][0])
    if there and place.of(steps[-1][0]) == place.of(nodes[0]):
        steps[-1] += nodes
    else:
        steps.append(nodes)


def _before(order: Sequence[Node]) -> dict[Node, list[Node]]:
    """The nodes that each node runs after: those that it reads, and of those that use memory that
    is written in place the one before it."""
    inside, effects = set(order), Effects(order)
    found = {n: [v.node for v in n.inputs if v.node in inside] for n in order}
    last: dict[Value, Node] = {}
    for node in order if effects.written else ():
        for v in {effects.base(v) for v in node.inputs} & effects.written:
            if v in last:
                found[node].append(last[v])
            last[v] = node
    return found
