"""A graph run operator by operator, so that a monitor of an executor or a hook of a block sees what
each computes: forward, and the gradients that each gives to its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..engine import Context
from ..graph.graph import Node, Value, topological, typed_node, values_of, variable, with_inputs
from ..graph.names import given_names, output_name
from ..graph.passes.gradient import gradient
from ..graph.placement import TO_DEVICE, lower
from ..kernels.record import lookup, mutated_inputs
from .interpreter import Compute, run_nodes, run_plan
from .ndarray import NDArray

Known = dict[Value, NDArray]


class Watcher(NamedTuple):
    """Sees what is computed: see(name, node, array). inputs_too: the inputs of each operator before
    its outputs. bound: as monitors of executors do, inputs that are variables under their own names
    and hidden outputs also in prediction; otherwise as hooks of blocks."""

    see: Callable[[str, Node, NDArray], None]
    inputs_too: bool
    bound: bool

    def watch(self, compute: Compute) -> Compute:
        """`compute` of a node, with what it computes shown."""

        def shown(node: Node, inputs: list[NDArray]) -> Sequence[NDArray]:
            op = node.op
            if op is TO_DEVICE:
                return compute(node, inputs)
            assert op is not None
            if self.inputs_too:
                names = op.names_in(node.attrs, len(inputs))
                for name, v, a in zip(names, node.inputs, inputs):
                    own = self.bound and v.node.op is None
                    self.see(v.node.name if own else f"{node.name}_{name}", node, a)
            outputs = compute(node, inputs)
            named = node.n_visible
            if self.bound or node.attrs.get("train"):  # also mean and var of BatchNorm
                named = max(named, len(given_names(op, node.attrs)))
            for i, a in enumerate(outputs[:named]):
                self.see(output_name(Value(node, i)), node, a)
            return outputs

        return shown


def run_forward(
    values: Sequence[Value], known: Known, device_of: Callable, watchers: Sequence[Watcher]
) -> list[NDArray]:
    """The values, with every node below them computed on its device. known: arrays of the
    variables; arrays of all other values are added to it."""

    def plain(node: Node, inputs: list[NDArray]) -> Sequence[NDArray]:
        device = device_of(node)
        near = [a.as_in_context(device) for a in inputs]
        return near if node.op is TO_DEVICE else run_plan(node, near, device)

    compute: Compute = plain
    for watcher in reversed(watchers):
        compute = watcher.watch(compute)
    return run_nodes(values, known, compute)


def run_backward(
    values: Sequence[Value],
    known: Known,
    head_grads: Sequence[NDArray | None],
    device_of: Callable,
    watcher: Watcher,
) -> None:
    """Shows as "fc1_backward_output0" the gradient that node fc1 gives to its input 0, last nodes
    first. known: arrays of all values, as run_forward leaves them."""
    apart, reads, arrays, devices = _with_copies(values, known, device_of)
    heads = [
        (v, None if g is None else variable("dy", v.type), g) for v, g in zip(apart, head_grads)
    ]
    found = gradient([v for v, _, _ in heads], [dy for _, dy, _ in heads], [v for *_, v in reads])
    shown = [(node, i, g) for (node, i, _), g in zip(reads, found) if g is not None]
    if not shown:
        return
    arrays |= {dy: g for _, dy, g in heads if dy is not None and g is not None}
    devices |= {dy: devices[v] for v, dy, _ in heads if dy is not None}
    places = [devices[v] for v in arrays]
    program = lower([g for *_, g in shown], list(arrays), places, "monitor")
    results = program.run(list(arrays.values()), (), -1)
    n_shown = Counter(node for node, *_ in shown)
    place = {node: k for k, node in enumerate(topological(values))}
    order = sorted(zip(shown, results), key=lambda pair: (-place[pair[0][0]], pair[0][1]))
    for (node, i, _), array in order:
        name = f"{node.name}_backward_output" + (str(i) if n_shown[node] > 1 else "")
        watcher.see(name, node, array)


def _with_copies(
    values: Sequence[Value], known: Known, device_of: Callable
) -> tuple[list[Value], list[tuple[Node, int, Value]], Known, dict[Value, Context]]:
    """The graph with a copy before every input of every node, so that each consumer's
    gradient contribution is kept separate: (values, (node, input, its copy), arrays of all
    values, their devices)."""
    new: dict[Value, Value] = {}
    reads: list[tuple[Node, int, Value]] = []
    arrays: Known = {}
    devices: dict[Value, Context] = {}
    for node in topological(values):
        made = node
        if node.op is not None:
            written = mutated_inputs(node.op, node.attrs, len(node.inputs))
            inputs = []
            for i, v in enumerate(node.inputs):
                source = new[v]
                if i not in written and node.op is not TO_DEVICE:
                    source = Value(typed_node(lookup("_copy"), {}, [source]))
                    arrays[source], devices[source] = known[v], device_of(v.node)
                    reads.append((node, i, source))
                inputs.append(source)
            made = with_inputs(node, inputs)
        for v, twin in zip(values_of(node), values_of(made)):
            new[v] = twin
            arrays[twin], devices[twin] = known[v], device_of(node)
    return [new[v] for v in values], reads, arrays, devices
