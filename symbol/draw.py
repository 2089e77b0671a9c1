"""Drawing: a graph as DOT, with shapes on its edges, a frame for each block, and the bodies of
control flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..engine.error import InvalidValue, MXNetError
from ..graph.graph import Node, Value, topological
from ..graph.inference import Inference, is_known
from ..graph.names import output_name
from ..kernels.partial import from_zeros
from ..kernels.record import mutated_inputs
from ..kernels.traits import Constant, Subgraphs
from .label import (
    NAME,
    TIMES,
    VARIABLE,
    color,
    common_prefix,
    label,
    pill,
    shape_text,
    table,
    tooltip,
)
from .picture import FONT, Drawing
from .units import Folding, Path, Unit, arrange, paths_of_names

WEIGHT_SUFFIXES = (
    "_weight",
    "_bias",
    "_gamma",
    "_beta",
    "_moving_mean",
    "_moving_var",
    "_running_mean",
    "_running_var",
    "_parameters",
)


# ---- what to draw --------------------------------------------------------------------------------


def shapes_of(
    outputs: Sequence[Value], shapes: dict[str, tuple] | None, dtypes: dict[str, str] | None = None
) -> dict:
    """Known shapes by value, from shapes of variables by name. Raises OperatorError if given shapes
    do not fit."""
    variables = {n.name: n for n in topological(outputs) if n.op is None}
    if unknown := [n for n in shapes or () if n not in variables]:
        raise InvalidValue(
            f"shape: {unknown[0]!r} is no variable of the graph, there are {', '.join(variables)}"
        )
    try:
        found = Inference(
            outputs,
            {variables[k]: from_zeros(tuple(s)) for k, s in (shapes or {}).items()},
            {variables[k]: d for k, d in (dtypes or {}).items() if k in variables},
        )
    except MXNetError:
        if shapes:
            raise
        return {}
    return {v: s for v, s in found.shape.items() if is_known(s)}


def hidden_nodes(outputs: Sequence[Value]) -> set[Node]:
    """Weights: variables that operators write or that are named like weights, and values computed
    only from them; and constants."""
    order = topological(outputs)
    written = {
        n.inputs[i].node
        for n in order
        if n.op is not None and n.op.mutates
        for i in mutated_inputs(n.op, n.attrs, len(n.inputs))
    }
    heads = {v.node for v in outputs}
    hidden: set[Node] = set()
    for node in order:
        if node.op is None:
            if node in written or node.name.endswith(WEIGHT_SUFFIXES):
                hidden.add(node)
        elif node.inputs and node not in heads and all(v.node in hidden for v in node.inputs):
            hidden.add(node)
    return hidden | _constants(order, heads)


def _constants(order: Sequence[Node], heads: Collection[Node]) -> set[Node]:
    """Values all of whose elements are one number, such as the states that recurrent layers begin
    with, and what is computed for nothing else."""
    constant: set[Node] = set()
    readers: dict[Node, list[Node]] = {}
    for node in order:
        inputs = [v.node for v in node.inputs]
        if node.op is not None and (
            node.op.has(Constant) or inputs and constant.issuperset(inputs)
        ):
            constant.add(node)
        for n in inputs:
            readers.setdefault(n, []).append(node)
    found: set[Node] = set()
    for node in reversed(order):
        if node.op is None or node in heads:
            continue
        reads = readers.get(node)
        if node in constant or (reads and found.issuperset(reads)):
            found.add(node)
    return found


# ---- the picture ---------------------------------------------------------------------------------


def new_drawing(title: str, save_format: str, node_attrs: Mapping[str, str] | None) -> Drawing:
    """An empty drawing in the style of all."""
    return Drawing(
        title,
        format=save_format,
        graph_attr={"rankdir": "TB", "nodesep": "0.3", "ranksep": "0.4", "fontname": FONT},
        node_attr={
            "shape": "box",
            "style": "filled,rounded",
            "fontname": FONT,
            "penwidth": "0.8",
            "fontsize": "12",
            "margin": "0.08,0.07",
            "height": "0",
            "width": "0",
            **(node_attrs or {}),
        },
        edge_attr={
            "fontname": FONT,
            "fontsize": "9",
            "fontcolor": "#555555",
            "color": "#666666",
            "arrowsize": "0.6",
        },
    )


class Canvas:
    """Draws graphs into a Drawing: each into a frame of its own. node_ids: of what is drawn."""

    def __init__(self, picture: Drawing, hide_weights: bool):
        self.picture, self.hide_weights = picture, hide_weights
        self._n_frames = self._n_nodes = 0
        self._edges: set[tuple] = set()

    def frame(self, where: Any, title: str, **style: str) -> Any:
        """A cluster, to be used in `with`."""
        self._n_frames += 1
        made = where.subgraph(name=f"cluster_{self._n_frames}")
        return _Frame(made, title, style)

    def node(self, where: Any, text: str, **style: str) -> str:
        """A box; returns its id."""
        made = f"n{self._n_nodes}"
        self._n_nodes += 1
        where.node(made, text, **style)
        return made

    def edge(self, source: str, target: str, text: str, key: Any = None, **style: str) -> None:
        """An edge, once for each key."""
        if (source, target, key) not in self._edges:
            self._edges.add((source, target, key))
            shown = table([(text, NAME, False, "#555555")], "LEFT") if text else None
            self.picture.edge(source, target, label=shown, **style)


class _Frame:
    """The context manager of graphviz for a cluster, with a title at its left."""

    def __init__(self, made: Any, title: str, style: Mapping[str, str]):
        self._made, self._title, self._style = made, title, style

    def __enter__(self) -> Any:
        cluster = self._made.__enter__()
        text = table([(self._title, 10, True, "#444444")], "LEFT") if self._title else ""
        style = {"color": "#999999", "style": "rounded", "margin": "8", **self._style}
        cluster.attr(label=text, labeljust="l", **style)
        return cluster

    def __exit__(self, *error: Any) -> None:
        self._made.__exit__(*error)


class Graph:
    """A graph on a Canvas. ends: the ids of the boxes that a value comes from: of control flow
    several, one for each branch."""

    def __init__(
        self,
        canvas: Canvas,
        outputs: Sequence[Value],
        known: Mapping[Value, tuple],
        hidden: Collection[Node] = (),
        styles: Mapping[Node, dict[str, str]] | None = None,
        prefix: str | None = None,
    ):
        """styles: DOT attributes of single nodes. prefix: what names are shown without;
        None: what they begin with in common."""
        self.canvas, self.known, self.hidden = canvas, known, hidden
        self.nodes = [n for n in topological(outputs) if n not in hidden]
        self.prefix = common_prefix(self.nodes) if prefix is None else prefix
        self.styles = styles or {}
        self.ends: dict[Value, list[str]] = {}
        self._ids: dict[Node, str] = {}
        self._bodies: dict[Node, list[tuple[Graph, Any]]] = {}

    def draw(
        self,
        where: Any,
        unit: Unit,
        drawn: Callable[[Node], Node] = lambda n: n,
        red: Callable[[Node, Node], dict[str, str]] = lambda a, b: {},
    ) -> None:
        """Boxes of a tree of units, and all edges. drawn: the node that is drawn for one; red: the
        style of the edge between two nodes."""
        self._add(where, unit.items)
        self._drawn = drawn
        for node in self.nodes:
            if drawn(node) is node:
                self._connect(node, red)

    def _add(self, where: Any, items: Sequence[Node | Unit]) -> None:
        for item in items:
            if not isinstance(item, Unit):
                self._box(where, item)
                continue
            more = f"{TIMES} {item.times}" if item.times > 1 else ""
            style = {"style": "rounded,dashed"} if more else {}
            with self.canvas.frame(where, f"{item.title}  {more}".strip(), **style) as frame:
                self._add(frame, item.items)

    def _box(self, where: Any, node: Node) -> None:
        bodies = node.op.trait(Subgraphs) if node.op is not None else None
        if bodies is not None and bodies.control is not None:
            self._flow(where, node, bodies.control)
            return
        self._ids[node] = self.canvas.node(
            where,
            label(node, self.prefix),
            **{
                "fillcolor": color(node),
                "tooltip": tooltip(node, self.known),
                **self.styles.get(node, {}),
            },
        )

    def _flow(self, where: Any, node: Node, control: Any) -> None:
        """Control flow: a frame with one for each body."""
        parts = [(name, part, self._seen(node, part, control)) for name, part in _parts(control)]
        title = f"{control.name.lstrip('_')}  {node.name.removeprefix(self.prefix)}"
        if not hasattr(control, "ways"):
            shape = self.known.get(node.inputs[control.data[0]]) if control.data else None
            most = TIMES if control.test is None else "\u2264"
            times = control.length or (shape and shape[0])
            title += f"  {most} {times}" if times else ""
        drawn = self._bodies[node] = []
        with self.canvas.frame(where, title, bgcolor="#f4f4f4") as frame:
            for name, part, shapes in parts:
                hide = hidden_nodes(part.outputs) if self.canvas.hide_weights else set()
                states = getattr(control, "states", ())  # they change
                hide |= {
                    v.node
                    for v, i in zip(part.variables, part.at)
                    if i not in states and node.inputs[i].node in self.hidden
                }
                hide -= {v.node for v in part.outputs}
                known = _inferred(part.outputs, shapes)
                inner = Graph(self.canvas, part.outputs, known, hide, prefix=self.prefix)
                if name:
                    with self.canvas.frame(frame, name, style="rounded,dotted") as own:
                        inner.draw(own, Unit("", list(inner.nodes)))
                else:
                    inner.draw(frame, Unit("", list(inner.nodes)))
                drawn.append((inner, part))

    def _seen(self, node: Node, part: Any, control: Any) -> dict[Node, tuple]:
        """Known shapes of a body's variables: a loop over data sees slices."""
        sliced = getattr(control, "data", ())
        shapes = {}
        for v, i in zip(part.variables, part.at):
            shape = self.known.get(node.inputs[i])
            if shape is not None:
                shapes[v.node] = shape[1:] if i in sliced else shape
        return shapes

    def _connect(self, node: Node, red: Any) -> None:
        if node in self._bodies:
            for inner, part in self._bodies[node]:
                for v, i in zip(part.variables, part.at):
                    if v.node in inner._ids:
                        self._edges(node.inputs[i], inner._ids[v.node], {})
            return
        for v in node.inputs:
            self._edges(v, self._ids[node], red(v.node, node))

    def _edges(self, v: Value, target: str, style: Mapping[str, str]) -> None:
        if v.node in self.hidden:
            return
        text = shape_text(self.known[v]) if v in self.known else ""
        for source in self.sources(v):
            self.canvas.edge(source, target, text, v.index, **style)

    def id_of(self, node: Node) -> str:
        """The id of a drawn node's box."""
        return self._ids[node]

    def sources(self, v: Value) -> list[str]:
        """The ids of the boxes that a value comes from."""
        node = self._drawn(v.node)
        if node not in self._bodies:
            return [self._ids[node]]
        results = [(g, p) for g, p in self._bodies[node] if len(p.outputs) > v.index]
        if len(results) == len(self._bodies[node]) > 1:  # a branch: not its test
            results = results[1:] if len(results) == 3 else results
        return [s for g, p in results for s in g.sources(p.outputs[v.index])]


def _parts(control: Any) -> list[tuple[str, Any]]:
    """The bodies of control flow, each with what it is."""
    if hasattr(control, "ways"):
        return [("if", control.test), *zip(("then", "else"), control.ways)]
    return [("", control.body)] if control.test is None else [
        ("while", control.test), ("do", control.body)]  # fmt: skip


def _inferred(outputs: Sequence[Value], shapes: dict[Node, tuple]) -> dict[Value, tuple]:
    try:
        found = Inference(outputs, shapes, {})
    except MXNetError:
        return {}
    return {v: s for v, s in found.shape.items() if is_known(s)}


def draw(
    outputs: Sequence[Value],
    shapes: dict[str, tuple] | None = None,
    title: str = "plot",
    save_format: str = "svg",
    dtypes: dict[str, str] | None = None,
    node_attrs: dict[str, str] | None = None,
    hide_weights: bool = True,
    collapse: bool = False,
    boxes: Sequence[tuple[str, str, Collection[Node]]] = (),
    paths: tuple[Mapping[Node, Path], Mapping[Path, str]] | None = None,
) -> Drawing:
    """A drawing of a graph, inputs above outputs, with shapes on the edges if known.

    node_attrs: DOT attributes of every node. collapse: consecutive equal units are drawn once, "x
        3". boxes: (title, colour, nodes) of nodes that are drawn in one box; edges between boxes
        are red. paths: the blocks that nodes are in, and their titles, else names tell.
    """
    known = shapes_of(outputs, shapes, dtypes)
    hidden = hidden_nodes(outputs) if hide_weights else set()
    picture = new_drawing(title, save_format, node_attrs)
    canvas = Canvas(picture, hide_weights)
    graph = Graph(canvas, outputs, known, hidden)
    if boxes:
        _in_boxes(graph, boxes)
        return picture
    root, folding = units_of(outputs, graph.nodes, known, hidden, collapse, paths)
    graph.draw(picture, root, folding.drawn if folding else lambda n: n)
    for v in outputs:
        end = canvas.node(picture, pill(output_name(v), graph.prefix), fillcolor=VARIABLE)
        for source in graph.sources(v):
            canvas.edge(source, end, shape_text(known[v]) if v in known else "")
    return picture


def units_of(
    outputs: Sequence[Value],
    nodes: Sequence[Node],
    known: Mapping[Value, tuple],
    hidden: Collection[Node],
    collapse: bool,
    paths: tuple[Mapping[Node, Path], Mapping[Path, str]] | None = None,
) -> tuple[Unit, Folding | None]:
    """The nodes as units, and how equal ones are folded."""
    if paths is None:
        found = paths_of_names(nodes)
        prefix = common_prefix(nodes)
        names = {p: p[-1].removeprefix(prefix) for path in found.values() for p in _heads_of(path)}
        paths = found, names
    root = arrange(nodes, *paths)
    return root, Folding(root, known, hidden) if collapse else None


def _heads_of(path: Path) -> list[Path]:
    return [path[:n] for n in range(1, len(path) + 1)]


def _in_boxes(graph: Graph, boxes: Sequence[tuple[str, str, Collection[Node]]]) -> None:
    """Boxes with a colour each; edges between them are red."""
    box_of = {n: k for k, (_, _, members) in enumerate(boxes) for n in members}
    picture = graph.canvas.picture
    for name, fill, members in boxes:
        with graph.canvas.frame(picture, name, style="filled", fillcolor=fill) as frame:
            graph._add(frame, [n for n in graph.nodes if n in members])

    def red(a: Node, b: Node) -> dict[str, str]:
        between = box_of.get(a, box_of.get(b)) != box_of.get(b)
        return {"color": "#d32f2f", "penwidth": "2"} if between else {}

    rest: list[Node | Unit] = [n for n in graph.nodes if n not in box_of]
    graph.draw(picture, Unit("", rest), red=red)
