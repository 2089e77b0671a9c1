"""A bound graph run operator by operator, so that a monitor sees what each computes: forward, and
the gradients that each gives to its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..engine import Context
from ..graph.graph import Node, Value, topological, typed_node, values_of, variable, with_inputs
from ..graph.names import given_names, output_name
from ..graph.passes.gradient import gradient
from ..graph.placement import TO_DEVICE, lower
from ..kernels.record import lookup, mutated_inputs
from ..ndarray.autograd import pause
from ..ndarray.interpreter import Compute, run_nodes, run_plan
from ..ndarray.ndarray import NDArray

See = Callable[[str, NDArray], None]
Known = dict[Value, NDArray]


def watched(compute: Compute, see: See, inputs_too: bool) -> Compute:
    """`compute` of a node, with what it computes shown: see(name, array)."""

    def shown(node: Node, inputs: list[NDArray]) -> Sequence[NDArray]:
        op = node.op
        if op is TO_DEVICE:
            return compute(node, inputs)
        assert op is not None
        if inputs_too:  # variables under their names, others as fc1_data
            names = op.names_in(node.attrs, len(inputs))
            for name, v, a in zip(names, node.inputs, inputs):
                see(v.node.name if v.node.op is None else f"{node.name}_{name}", a)
        outputs = compute(node, inputs)
        # also mean and var of BatchNorm, which are hidden
        named = max(node.n_visible, len(given_names(op, node.attrs)))
        for i, a in enumerate(outputs[:named]):
            see(output_name(Value(node, i)), a)
        return outputs

    return shown


def run_forward(
    values: Sequence[Value], known: Known, device_of: Callable, see: See, inputs_too: bool
) -> None:
    """Computes every node below values on its device. known: arrays of the variables; those of all
    other values are added."""

    def compute(node: Node, inputs: list[NDArray]) -> Sequence[NDArray]:
        device = device_of(node)
        with pause(bool(node.attrs.get("train"))):
            return run_plan(node, [a.as_in_context(device) for a in inputs], device)

    run_nodes(values, known, watched(compute, see, inputs_too))


def run_backward(
    values: Sequence[Value],
    known: Known,
    head_grads: Sequence[NDArray | None],
    device_of: Callable,
    see: See,
) -> None:
    """Shows see("fc1_backward_output0", the gradient that node fc1 gives to its input 0), last
    nodes first. known: arrays of all values, as run_forward leaves them."""
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
        see(f"{node.name}_backward_output" + (str(i) if n_shown[node] > 1 else ""), array)


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
