"""Placement: a bound graph on several devices (group2ctx). The graph is cut into segments, each of
one device and one program, with copies between them."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import Context
from ..kernels.spec import spec
from ..ndarray.invoke import copy_into
from ..ndarray.ndarray import NDArray
from .graph import Node, Value, topological, values_of
from .passes.dead_code import live
from .program import Program, lower

GROUP = "__ctx_group__"


class Placement:
    """Which device each node of a graph runs on: that of its group, else the default one. A
    variable without a group goes where it is read first."""

    def __init__(self, values: Sequence[Value], default: Context, group2ctx: dict[str, Context]):
        self._groups, self.default = group2ctx, default
        self._devices: dict[Node, Context] = {}
        order = topological(values)
        for node in order:
            if node.op is not None or self._group(node) is not None:
                self._devices[node] = self._group(node) or default
        for node in order:
            if node.op is not None:
                for v in node.inputs:
                    self._devices.setdefault(v.node, self._devices[node])

    def _group(self, node: Node) -> Context | None:
        return self._groups.get((node.extra or {}).get(GROUP, ""))

    def of(self, node: Node) -> Context:
        """The device of a node; a node of a gradient runs where the parameters or values that it
        reads are."""
        found = self._devices.get(node) or self._group(node)
        if found is None:
            known = [v.node for v in node.inputs if v.node in self._devices]
            known.sort(key=lambda n: n.op is not None)  # parameters first
            found = self._devices[known[0]] if known else self.default
            self._devices[node] = found
        return found

    def spans_devices(self) -> bool:
        """Is anything away from the default device?"""
        return any(d != self.default for d in self._devices.values())

    def lower(
        self, outputs: Sequence[Value], inputs: Sequence[Value], device, name="program", **_
    ) -> PlacedProgram:
        """As `lower`, over all devices; without the passes that compile."""
        return PlacedProgram(self, outputs, inputs, name)

    def segments(self, order: Sequence[Node]) -> list[tuple[Context, list[Node]]]:
        """Nodes in runs of one device, each run as long as its inputs allow."""
        place = {node: i for i, node in enumerate(order)}
        waits = {n: len({v.node for v in n.inputs if v.node in place}) for n in order}
        users: dict[Node, list[Node]] = {n: [] for n in order}
        for n in order:
            for source in {v.node for v in n.inputs if v.node in place}:
                users[source].append(n)
        ready = [n for n in order if not waits[n]]
        found: list[tuple[Context, list[Node]]] = []
        while ready:
            device = self.of(min(ready, key=place.__getitem__))
            run: list[Node] = []
            here = [n for n in ready if self.of(n) == device]
            ready = [n for n in ready if self.of(n) != device]
            while here:
                node = here.pop()
                run.append(node)
                for user in users[node]:
                    waits[user] -= 1
                    if not waits[user]:
                        (here if self.of(user) == device else ready).append(user)
            found.append((device, sorted(run, key=place.__getitem__)))
        return found


class PlacedProgram:
    """Programs of several devices, run one after the other; each waits only for what it reads."""

    def __init__(self, placement: Placement, outputs, inputs, name: str):
        self._outputs, self._inputs = list(outputs), list(inputs)
        order = [n for n in live(outputs, inputs) if n.op is not None]
        segments = placement.segments(order)
        segment_of = {n: k for k, (_, nodes) in enumerate(segments) for n in nodes}
        given, used = set(inputs), set(outputs)
        used |= {v for n in order for v in n.inputs if segment_of.get(v.node) != segment_of[n]}
        self._parts: list[tuple[Context, list[Value], list[Value], Program]] = []
        for k, (device, nodes) in enumerate(segments):
            read = [v for n in nodes for v in n.inputs if v in given or segment_of[v.node] != k]
            reads = list(dict.fromkeys(read))
            made = [v for n in nodes for v in values_of(n) if v in used and v not in given]
            self._parts.append((device, reads, made, lower(made, reads, device, name)))
        self.out_specs = tuple(spec(v.shape, v.dtype, placement.of(v.node)) for v in self._outputs)
        programs = self.programs = [p for *_, p in self._parts]
        self.can_fail = any(p.can_fail for p in programs)
        self.arena_bytes = sum(p.arena_bytes for p in programs)
        self.naive_bytes = sum(p.naive_bytes for p in programs)

    def run(self, inputs: Sequence[NDArray], outputs=(), location: int = -1, numbers=()) -> list:
        """As Program.run."""
        known = dict(zip(self._inputs, inputs))
        for device, reads, made, program in self._parts:
            here = [known[v].as_in_context(device) for v in reads]
            known.update(zip(made, program.run(here, (), location)))
            for i in program.mutated:
                if here[i] is not known[reads[i]]:
                    copy_into(here[i], known[reads[i]])
        results = []
        for i, (v, s) in enumerate(zip(self._outputs, self.out_specs)):
            value = known[v]
            if i < len(outputs):
                copy_into(value, outputs[i])
                value = outputs[i]
            elif value.context != s.device or v in self._inputs:
                value = value.copyto(s.device)
            results.append(value)
        return results
