"""A bound graph run operator by operator, so that a monitor sees what each computes: forward, and
the gradients that each gives to its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..kernels.plan import make_plan, mutated_inputs, scalars_of
from ..kernels.record import FLOATS, lookup
from ..ndarray.autograd import pause
from ..ndarray.invoke import run_all
from ..ndarray.ndarray import NDArray
from .graph import Node, Value, topological, typed_node, values_of, variable, with_inputs
from .names import output_name
from .passes.gradient import gradient

See = Callable[[str, NDArray], None]
Known = dict[Value, NDArray]


def run_forward(
    values: Sequence[Value], known: Known, device_of: Callable, see: See, inputs_too: bool
) -> None:
    """Computes every node below values on its device. known: arrays of the variables; those of all
    other values are added."""
    for node in topological(values):
        if node.op is None:
            continue
        device = device_of(node)
        inputs = [known[v].as_in_context(device) for v in node.inputs]
        if inputs_too:
            show_inputs(node, inputs, see)
        plan = make_plan(node.op, node.attrs, [a._spec for a in inputs], device)
        with pause(bool(node.attrs.get("train"))):
            outputs = run_all(plan, inputs, scalars_of(node.op, node.attrs))
        known.update((Value(node, i), a) for i, a in enumerate(outputs))
        named = max(node.n_visible, min(len(node.op.output_names), len(outputs)))
        for i in range(named):  # also mean and var of BatchNorm, which are hidden
            see(output_name(Value(node, i)), outputs[i])


def show_inputs(node: Node, inputs: Sequence[NDArray], see: See) -> None:
    """Shows a node's inputs: variables under their names, others as fc1_data."""
    for name, v, a in zip(node.op.names_in(node.attrs, len(inputs)), node.inputs, inputs):
        see(v.node.name if v.node.op is None else f"{node.name}_{name}", a)


def run_backward(
    values: Sequence[Value],
    known: Known,
    head_grads: Sequence[NDArray | None],
    lower: Callable,
    device,
    see: See,
) -> None:
    """Shows see("fc1_backward_output0", the gradient that node fc1 gives to its input 0), last
    nodes first. known: arrays of all values, as run_forward leaves them."""
    apart, reads, arrays = _with_copies(values, known)
    heads = [
        (v, None if g is None else variable("dy", v.type), g)
        for v, g in zip(apart, head_grads)
        if v.dtype in FLOATS
    ]
    found = gradient([v for v, _, _ in heads], [dy for _, dy, _ in heads], [v for *_, v in reads])
    shown = [(node, i, g) for (node, i, _), g in zip(reads, found) if g is not None]
    if not shown:
        return
    arrays |= {dy: g for _, dy, g in heads if dy is not None}
    program = lower([g for *_, g in shown], list(arrays), device, "monitor")
    results = program.run(list(arrays.values()), (), -1)
    n_shown = Counter(node for node, *_ in shown)
    place = {node: k for k, node in enumerate(topological(values))}
    order = sorted(zip(shown, results), key=lambda pair: (-place[pair[0][0]], pair[0][1]))
    for (node, i, _), array in order:
        see(f"{node.name}_backward_output" + (str(i) if n_shown[node] > 1 else ""), array)


def _with_copies(
    values: Sequence[Value], known: Known
) -> tuple[list[Value], list[tuple[Node, int, Value]], Known]:
    """The graph with a copy before every input of every node, so that what two readers of a value
    give to it stays apart: (values, (node, input, its copy), arrays of all values)."""
    new: dict[Value, Value] = {}
    reads: list[tuple[Node, int, Value]] = []
    arrays: Known = {}
    for node in topological(values):
        made = node
        if node.op is not None:
            written = mutated_inputs(node.op, node.attrs, len(node.inputs))
            inputs = []
            for i, v in enumerate(node.inputs):
                source = new[v]
                if v.dtype in FLOATS and i not in written:
                    source = Value(typed_node(lookup("_copy"), {}, [source]))
                    arrays[source] = known[v]
                    reads.append((node, i, source))
                inputs.append(source)
            made = with_inputs(node, inputs)
        for v, twin in zip(values_of(node), values_of(made)):
            new[v] = twin
            arrays[twin] = known[v]
    return [new[v] for v in values], reads, arrays
