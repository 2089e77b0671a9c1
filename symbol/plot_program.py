"""Drawings of what is compiled: the steps of a network's programs, the plan of their memory, and
the graph of the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..engine import hooks, lib, svg
from ..engine.error import InvalidType
from ..engine.log import size
from ..graph import program as programs
from ..graph.graph import Node, Value, rewrite, topological, values_of, variable
from ..graph.passes.gradient import gradient
from ..graph.runner import FUSED, Forward
from .draw import Canvas, Graph, new_drawing
from .label import (
    NAME,
    TEXT,
    TITLE,
    VARIABLE,
    color,
    common_prefix,
    listed,
    pill,
    shape_text,
    shown_attributes,
    table,
)
from .picture import Drawing
from .units import arrange, paths_of_names

WIDTH, HEIGHT = 860, 420  # of a memory plan, in pixels
GREY, GREEN = "#eeeeee", "#2e7d32"
PREPARED = "prepared"  # the name of what is worked out from parameters
GIVEN = {"": "constant", "given": "kept by forward", "dy0": "gradient of output 0"}


def _signature(net: Any, args: Sequence[Any], training: bool) -> Any:
    if not hasattr(net, "memory_report"):
        raise InvalidType(f"net must be a HybridBlock, got {type(net).__name__}")
    return hooks.get("signature of a block")(net, net._arguments(*args), training)


def _compiled(
    net: Any, args: Sequence[Any], training: bool
) -> tuple[list[tuple[str, Any]], set[str]]:
    """(name, Assignment) of each program of a call or a training step, compiled as in the end; and
    the names of the parameters."""
    signature = _signature(net, args, training)
    variables = signature.source.whole("variables")[0]
    weights = {v.node.name for i, v in enumerate(variables) if i not in signature.data}
    with programs.watched as seen:
        forward = signature.forward(1)
        assert isinstance(forward, Forward)
        if training:
            forward.gradient((True,) * forward.n_out)
        return list(seen), {*weights, PREPARED}


# ---- programs ------------------------------------------------------------------------------------


def plot_program(
    net: Any,
    *args: Any,
    training: bool = False,
    prepared: bool = False,
    save_format: str = "svg",
) -> Drawing:
    """A drawing of the compiled programs of a call: one box for each instruction, with the
    operators that a fused one computes; what overwrites its input is marked; shapes, dtypes and
    memory layouts stand on the edges. Compiles, and runs nothing.

    net: a HybridBlock. args: as it is called. training: of a training step, with its backward.
        prepared: also what is worked out from parameters, once.
    Raises TypeError, and what tracing raises.
    """
    found, weights = _compiled(net, args, training)
    picture = new_drawing("program", save_format, None)
    canvas = Canvas(picture, hide_weights=True)
    for name, assigned in found:
        once = name.endswith(".prepack")
        what, n = "prepared once" if once else name, len(assigned.steps)
        title = f"{what}: {n} steps, {size(assigned.arena_bytes)} of memory"
        if assigned.steps and (prepared or not once):
            with canvas.frame(picture, title) as frame:
                _Steps(canvas, frame, assigned, weights).draw()
    return picture


class _Steps:
    """The steps of one program."""

    def __init__(self, canvas: Canvas, frame: Any, assigned: Any, weights: set[str]):
        """weights: names of what is not drawn."""
        self._canvas, self._frame, self._assigned = canvas, frame, assigned
        self._weights = weights
        self._prefix = common_prefix([n for n in assigned.steps if n.name])
        self._ids: dict[Node, str] = {}

    def draw(self) -> None:
        calls = list(calls_of(self._assigned))
        for node, ins, outs in calls:
            label = _step_label(node, self._prefix, not set(ins).isdisjoint(outs))
            self._ids[node] = self._canvas.node(self._frame, label, fillcolor=color(node))
        for node, ins, outs in calls:
            for v, slot in zip(node.inputs, ins):
                style = {"color": GREEN, "penwidth": "2"} if slot in outs else {}
                self._edge(self._assigned.base(v), self._ids[node], v, style)
            for v, (kind, number, _) in zip(values_of(node), outs):
                if kind == lib.PL_SLOT_OUTPUT:
                    end = self._canvas.node(self._frame, pill(f"output {number}"), fillcolor=GREY)
                    self._canvas.edge(self._ids[node], end, _type_text(v), v)

    def _edge(self, base: Value, target: str, v: Value, style: dict[str, str]) -> None:
        source, name = self._ids.get(base.node), base.node.name
        if name in self._weights:
            return
        if source is None:
            source = self._ids[base.node] = self._canvas.node(
                self._frame, pill(GIVEN.get(name, name), self._prefix), fillcolor=VARIABLE
            )
        self._canvas.edge(source, target, _type_text(v), v, **style)


def calls_of(assigned: Any) -> Iterator[tuple[Node, list[tuple], list[tuple]]]:
    """Each step with the slots (kind, number, offset in bytes) of its inputs and of its outputs. An
    output in an input's slot is written in place."""
    at, slots = 0, assigned.slots.tolist()
    for node, plan in zip(assigned.steps, assigned.plans):
        middle = at + len(node.inputs)
        end = middle + len(plan.out_specs)
        yield node, slots[at:middle], slots[middle:end]
        at = end


def _type_text(v: Value) -> str:
    parts = [shape_text(v.shape)]
    if v.type.dtype != "float32":
        parts.append(v.type.dtype)
    if v.type.layout:
        parts.append(v.type.layout)
    return " ".join(parts)


def members(node: Node) -> list[str]:
    """The operators that a fused instruction computes, in order."""
    if node.op is not FUSED:
        return []
    group = node.attrs["group"]
    reduced = [r.reduce for r in group.results if r.reduce]
    return [name.lstrip("_") for name in [*(s.op for s in group.steps), *reduced]]


def _step_label(node: Node, prefix: str, in_place: bool) -> str:
    assert node.op is not None
    inside = members(node)
    title = f"fused: {len(inside)} operators" if inside else node.op.name.lstrip("_")
    lines = [(title, float(TITLE), True, "black")]
    lines += listed(inside[:24] or shown_attributes(node)[:4])
    if len(inside) > 24:
        lines.append((f"and {len(inside) - 24} more", float(TEXT), False, "black"))
    if node.name and not inside:
        lines.append((node.name.removeprefix(prefix), float(NAME), False, "#555555"))
    if in_place:
        lines.append(("in place", float(NAME), False, GREEN))
    return table(lines)


# ---- memory --------------------------------------------------------------------------------------


def plot_memory(net: Any, *args: Any, training: bool = False) -> svg.Picture:
    """The plan of a call's memory as a chart: each buffer is a rectangle, from the step that writes
    it to the last that reads it, at its place in the memory that all of them share.

    net, args, training, errors: as for plot_program. Jupyter shows it; `save` writes an SVG.
    """
    every, _ = _compiled(net, args, training)
    found = [(name, a) for name, a in every if not name.endswith(".prepack")]
    charts = [_chart(name, a) for name, a in found if a.buffers]
    if not charts:
        note = "no buffers: every result is an output"
        return svg.Picture(svg.svg(WIDTH, 30, [svg.text(8, 19, note)]))
    parts = [f'<g transform="translate(0 {i * HEIGHT})">{c}</g>' for i, c in enumerate(charts)]
    return svg.Picture(svg.svg(WIDTH, HEIGHT * len(charts), parts))


def _chart(name: str, assigned: Any) -> str:
    left, right, top, bottom = 80, WIDTH - 10, 30, HEIGHT - 34
    end = max(b.last for b in assigned.buffers) + 1
    total = assigned.arena_bytes or 1
    to_x = lambda t: left + (right - left) * t / end
    to_y = lambda offset: bottom - (bottom - top) * offset / total
    unshared = sum(programs.rounded(b.nbytes) for b in assigned.buffers)
    title = (
        f"{name}: {len(assigned.buffers)} buffers, {size(total)} planned,"
        f" {size(unshared)} if none shared memory"
    )
    parts = [svg.text(8, 17, title, more=' font-weight="bold"')]
    for k in range(5):
        y = to_y(total * k / 4)
        parts += [svg.line(left, y, right, y)]
        parts.append(svg.text(left - 5, y + 4, size(total * k // 4), "end"))
    writers = _writers(assigned)
    for i, (b, offset) in enumerate(zip(assigned.buffers, assigned.offsets)):
        x, y = to_x(b.first), to_y(offset + b.nbytes)
        wide, high = max(1, to_x(b.last + 1) - x), max(1, to_y(offset) - y)
        node = writers.get(i)
        label = _short(node) if node is not None else "buffer"
        fill = color(node) if node is not None else GREY
        when = f"steps {b.first} to {b.last}, {size(b.nbytes)} at {size(offset)}"
        tip = svg.escape(f"{label}: {when}")
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{fill}"'
            f' stroke="#555" stroke-width=".5"><title>{tip}</title></rect>'
        )
        if high > 12 and wide > 7 * len(label) + 6:
            parts.append(
                svg.text(x + 4, y + min(high / 2 + 4, 14), label, more=' style="fill:#111"')
            )
    parts.append(svg.text(left, HEIGHT - 16, "step 0"))
    parts.append(svg.text(right, HEIGHT - 16, f"step {end}", "end"))
    return "".join(parts)


def _short(node: Node) -> str:
    inside = members(node)
    assert node.op is not None
    return "+".join(inside[:3]) + "+..." * (len(inside) > 3) if inside else node.op.name.lstrip("_")


def _writers(assigned: Any) -> dict[int, Node]:
    """The step that first writes each buffer."""
    by_place = {(b.first, o): i for i, (b, o) in enumerate(zip(assigned.buffers, assigned.offsets))}
    found: dict[int, Node] = {}
    for time, (node, _, outs) in zip(assigned.times, calls_of(assigned)):
        for kind, _, offset in outs:
            i = by_place.get((time, offset)) if kind == lib.PL_SLOT_ARENA else None
            if i is not None:
                found.setdefault(i, node)
    return found


# ---- gradients -----------------------------------------------------------------------------------


def plot_backward(net: Any, *args: Any, save_format: str = "svg") -> Drawing:
    """A drawing of the graph of a network's gradients, as it is derived: the operators that compute
    them are named after the operator that they are the gradient of, in frames of their blocks. What
    they read of forward is drawn as an input.

    net, args, errors: as for plot_program.
    """
    source = _signature(net, args, True).source
    outputs, variables = source.whole("outputs", "variables")
    wanted = [v for v, r in zip(variables, source.requests) if r != "null"]
    forward = set(topological(outputs))
    heads = [variable(f"{v.node.name}_output_grad", v.type) for v in outputs]
    inner = [v for n in forward if n.op is not None for v in values_of(n)]
    found = gradient(outputs, heads, [*wanted, *inner])
    names = {g.node: v.node.name for v, g in zip([*wanted, *inner], found) if g is not None}
    grads = [(v, g) for v, g in zip(wanted, found) if g is not None]
    named = _named([g for _, g in grads], forward, names)
    known = {x: x.shape for n in topological(named) for x in values_of(n)}
    picture = new_drawing("backward", save_format, None)
    canvas = Canvas(picture, hide_weights=False)
    prefix = common_prefix([n for n in forward if n.op is not None])
    graph = Graph(canvas, named, known, prefix=prefix)
    paths = paths_of_names(graph.nodes)
    titles = {
        p[:n]: p[n - 1].removeprefix(prefix) for p in paths.values() for n in range(1, len(p) + 1)
    }
    graph.draw(picture, arrange(graph.nodes, paths, titles))
    for (v, _), g in zip(grads, named):
        end = canvas.node(
            picture, pill(f"gradient of {v.node.name.removeprefix(prefix)}"), fillcolor=VARIABLE
        )
        for start in graph.sources(g):
            canvas.edge(start, end, shape_text(g.shape))
    return picture


def _named(
    outputs: Sequence[Value], forward: Iterable[Node], names: dict[Node, str]
) -> list[Value]:
    """The graph above forward, of which it reads variables, with a name for each node: that of the
    value whose gradient it is, or leads to."""
    order = [n for n in topological(outputs) if n not in forward]
    found: dict[Node, str] = {}
    for node in reversed(order):
        name = names.get(node) or found.get(node, "")
        found[node] = name
        for v in node.inputs:
            found.setdefault(v.node, name)
    leaves = {
        n: [
            variable(n.name if i == 0 else f"{n.name}:{i}", v.type)
            for i, v in enumerate(values_of(n))
        ]
        for n in forward
        if n.op is not None
    }

    def replace(node: Node, inputs: Any):
        if node.op is None:
            return None
        return values_of(Node(node.op, node.attrs, inputs, f"{found[node]}_grad", node.types))

    return rewrite(outputs, replace, leaves)
