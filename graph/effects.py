"""What a typed graph writes in place: which values share memory, and which memory changes while the
graph runs.

Passes ask it before they merge, move or drop a node: a read of memory that some operator writes
must stay where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.record import mutated_inputs
from ..kernels.traits import Auxiliary, SameMemory
from .graph import Node, Value, topological


def mutated(node: Node) -> tuple[int, ...]:
    """Indices of the inputs that a node writes."""
    return (
        mutated_inputs(node.op, node.attrs, len(node.inputs))
        if node.op is not None and node.op.mutates
        else ()
    )


class Effects:
    """The effects of nodes in their order (inputs first).

    written: values whose memory an operator writes in place. pinned: nodes that make, read or write
        such memory. bases: the value that owns the memory of each view.
    """

    def __init__(self, order: Sequence[Node]):
        self._order = order
        self.bases: dict[Value, Value] = {}
        self.written: set[Value] = set()
        active = {
            op
            for op in {n.op for n in order}
            if op is not None and (op.mutates or op.has(SameMemory))
        }
        for node in order if active else ():
            op = node.op
            if op not in active:
                continue
            if op.mutates:
                for i in mutated(node):
                    self.written.add(self.base(node.inputs[i]))
            if op.has(SameMemory):
                self.bases[Value(node)] = self.base(node.inputs[0])
        self.pinned: set[Node] = set()
        self._after: set[Node] | None = None
        if self.written:
            self.pinned = {v.node for v in self.written if v.node.op is not None}
            self.pinned.update(
                n for n in order if any(self.base(v) in self.written for v in n.inputs)
            )

    def base(self, v: Value) -> Value:
        """The value whose memory v is a view of; v itself where it has its own."""
        return self.bases.get(v, v)

    def droppable(self, v: Value) -> bool:
        """May everything that only v needs be left out? Not where memory is written below it:
        others would see that, and the order of reads and writes elsewhere is the order of the graph
        with v in it."""
        if not self.pinned:
            return True
        if self._after is None:
            self._after = set()
            for node in self._order:
                if node in self.pinned or any(x.node in self._after for x in node.inputs):
                    self._after.add(node)
        return v.node not in self._after


def variables_of(outputs: Sequence[Value]) -> tuple[list[Node], list[Node]]:
    """(arguments, auxiliary states): variables in the graph's order; those that an operator writes,
    or would write in training, are auxiliary."""
    order = topological(outputs)
    written = {node.inputs[i].node for node in order for i in mutated(node)}
    for node in order:
        trait = None if node.op is None else node.op.trait(Auxiliary)
        if trait is not None:
            written |= {node.inputs[i].node for i in trait.inputs}
    nodes = [n for n in order if n.op is None]
    return [n for n in nodes if n not in written], [n for n in nodes if n in written]
