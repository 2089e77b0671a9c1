"""Drawing: a graph as DOT, rendered by `dot` or the wheel graphviz-pure; without both, the DOT text
and a hint."""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from typing import Any

import graphviz

from ..engine import files
from ..engine.error import InvalidValue, MXNetError
from ..graph.graph import Node, Value, topological
from ..graph.inference import Inference, is_known
from ..kernels.partial import from_zeros
from ..kernels.record import REQUIRED, mutated_inputs
from .json import text_attrs

HINT = "pip install graphviz-pure (or install Graphviz), to draw pictures"
TIMEOUT_S = 120
MAX_ATTRIBUTES = 5

# fill colour by the family of the operator: the module of its record
COLORS = {
    "conv": "#fb8072",
    "dense": "#fb8072",
    "recurrent": "#bc80bd",
    "norm": "#bebada",
    "activation": "#ffffb3",
    "pool": "#80b1d3",
    "loss": "#b3de69",
    "shape": "#fdb462",
    "index": "#fdb462",
    "sequence": "#fdb462",
    "reduce": "#ccebc5",
    "dropout": "#d9d9d9",
    "create": "#eeeeee",
    "sample": "#eeeeee",
}
OTHER, VARIABLE = "#fccde5", "#8dd3c7"
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


class Drawing(graphviz.Digraph):
    """A graphviz.Digraph that can be rendered without Graphviz; shows itself in Jupyter. `source`
    is the DOT text."""

    def pipe(
        self,
        format: Any = None,
        renderer: Any = None,
        formatter: Any = None,
        neato_no_op: Any = None,
        quiet: bool = False,
        *,
        engine: Any = None,
        encoding: Any = None,
    ) -> Any:
        """The picture as bytes (text with an encoding). format: svg, png ... Raises MXNetError with
        the hint."""
        made = run_dot(self.source, format or self.format, engine or self.engine)
        return made.decode(encoding) if encoding else made

    def render(
        self,
        filename: str | None = None,
        directory: Any = None,
        view: bool = False,
        cleanup: bool = False,
        format: Any = None,
        **kwargs: Any,
    ) -> str:
        """Writes the DOT text to `filename` and the picture beside it. Returns the picture's path.

        cleanup: removes the text. If no renderer is found, the text remains, and MXNetError gives
            the hint.
        """
        text_file = self.save(filename, directory=directory)
        format = format or self.format
        path = f"{text_file}.{format}"
        try:
            made = self.pipe(format)
        except MXNetError as error:
            raise MXNetError(f"{error}\n  the drawing's text is in {text_file}") from None
        files.write(path, made)
        if cleanup:
            os.remove(text_file)
        if view:
            graphviz.view(path)
        return path

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        try:
            return {"image/svg+xml": self.pipe("svg", encoding="utf-8")}
        except MXNetError as error:
            return {"text/plain": f"{error}\n\n{self.source}"}


def command() -> str | None:
    """The rendering program: dot on PATH, else graphviz-pure on PATH or beside this Python; None
    without one."""
    beside = os.pathsep.join([sysconfig.get_path("scripts"), os.path.dirname(sys.executable)])
    return (
        shutil.which("dot")
        or shutil.which("graphviz-pure")
        or shutil.which("graphviz-pure", path=beside)
    )


def run_dot(source: str, format: str, engine: str = "dot") -> bytes:
    """A picture of a DOT text. Raises MXNetError."""
    program = command()
    if program is None:
        raise MXNetError(f"no renderer of DOT files was found\n  fix: {HINT}")
    try:
        done = subprocess.run(
            [program, f"-K{engine}", f"-T{format}"],
            input=source.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MXNetError(f"{program} failed: {error}") from None
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip()
        raise MXNetError(
            f"{program} cannot make format {format!r}: {reason}\n  fix: format='svg' or"
            " format='png'"
        )
    return done.stdout


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
    only from them."""
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
    return hidden


def label(node: Node) -> str:
    """A node's label, in DOT's HTML: the operator, its name, the parameters that are not the
    default."""
    if node.op is None:
        return f"<{html.escape(node.name)}>"
    shown = shown_attributes(node)
    lines = [f"<B>{html.escape(node.op.name.lstrip('_'))}</B>"]
    if shown:
        lines.append(
            f'<FONT POINT-SIZE="10">{html.escape(", ".join(shown[:MAX_ATTRIBUTES]))}</FONT>'
        )
    lines.append(f'<FONT POINT-SIZE="9" COLOR="#555555">{html.escape(node.name)}</FONT>')
    return f"<{'<BR/>'.join(lines)}>"


def shown_attributes(node: Node) -> list[str]:
    """Parameters to show, required ones first: given, not the default, and not a neutral (1, 1) or
    (0, 0)."""
    texts, found, op = text_attrs(node), [], node.op
    assert op is not None
    for p in sorted(op.params, key=lambda p: p.default is not REQUIRED):
        value = node.attrs.get(p.name)
        if p.name not in texts or p.name == op.variadic_key or value == p.default:
            continue
        if isinstance(value, tuple) and value:
            if p.default == () and set(value) in ({0}, {1}):
                continue
            found.append(f"{p.name} " + "\u00d7".join(map(str, value)))
        else:
            found.append(f"{p.name} {texts[p.name]}")
    return found


def color(node: Node) -> str:
    return (
        VARIABLE
        if node.op is None
        else COLORS.get(node.op.ref.__module__.rpartition(".")[2], OTHER)
    )


class Repeat:
    """`times` consecutive equal units of `length` nodes, from `first` in the list of drawn
    nodes."""

    def __init__(self, first: int, length: int, times: int):
        self.first, self.length, self.times = first, length, times


def find_repeats(nodes: Sequence[Node], shapes: dict, least: int = 3) -> list[Repeat]:
    """Runs of equal units of at least `least` nodes: same operators, parameters, shapes and
    wiring."""
    place = {n: i for i, n in enumerate(nodes)}

    def token(i):
        node = nodes[i]
        wiring = tuple((i - place[v.node], v.index) for v in node.inputs if v.node in place)
        return (node.op, repr(node.attrs), wiring, shapes.get(Value(node)))

    tokens = [token(i) if n.op is not None else (n,) for i, n in enumerate(nodes)]
    found, i = [], 0
    while i < len(tokens):
        best = None
        for length in range(least, (len(tokens) - i) // 2 + 1):
            times = 1
            while tokens[i + times * length : i + (times + 1) * length] == tokens[i : i + length]:
                times += 1
            if times > 1 and (best is None or times * length > best.times * best.length):
                best = Repeat(i, length, times)
        if best:
            found.append(best)
            i += best.length * best.times
        else:
            i += 1
    return found


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
) -> Drawing:
    """A drawing of a graph, inputs above outputs, with shapes on the edges if known.

    node_attrs: DOT attributes of every node. collapse: consecutive equal blocks are drawn once, "x
        3". boxes: (title, colour, nodes) of nodes that are drawn in one box; edges between boxes
        are red.
    """
    known = shapes_of(outputs, shapes, dtypes)
    hidden = hidden_nodes(outputs) if hide_weights else set()
    nodes = [n for n in topological(outputs) if n not in hidden]
    repeats = find_repeats(nodes, known) if collapse else []
    number = {n: i for i, n in enumerate(nodes)}
    stand_in: dict[int, int] = {}  # a node that is not drawn -> the equal one that is
    for r in repeats:
        for i in range(r.first + r.length, r.first + r.length * r.times):
            stand_in[i] = r.first + (i - r.first) % r.length
    picture = Drawing(
        title,
        format=save_format,
        graph_attr={"rankdir": "TB", "nodesep": "0.3", "ranksep": "0.45"},
        node_attr={
            "shape": "box",
            "style": "filled,rounded",
            "fontname": "Helvetica",
            "penwidth": "0.8",
            "fontsize": "12",
            "margin": "0.15,0.07",
            **(node_attrs or {}),
        },
        edge_attr={
            "fontname": "Helvetica",
            "fontsize": "9",
            "fontcolor": "#555555",
            "color": "#666666",
            "arrowsize": "0.6",
        },
    )

    def add(where, i):
        shape = {"shape": "oval"} if nodes[i].op is None else {}
        where.node(
            f"n{i}",
            label(nodes[i]),
            fillcolor=color(nodes[i]),
            tooltip=tooltip(nodes[i], known),
            **shape,
        )

    inside: set[int] = set(stand_in)
    for k, r in enumerate(repeats):
        with picture.subgraph(name=f"cluster_{k}") as cluster:
            cluster.attr(
                label=f"\u00d7 {r.times}",
                labeljust="r",
                fontname="Helvetica-Bold",
                color="#999999",
                style="dashed,rounded",
            )
            for i in range(r.first, r.first + r.length):
                add(cluster, i)
                inside.add(i)
    box_of = {n: k for k, (_, _, members) in enumerate(boxes) for n in members}
    for k, (name, fill, members) in enumerate(boxes):
        with picture.subgraph(name=f"cluster_box{k}") as cluster:
            cluster.attr(label=name, labeljust="l", fontname="Helvetica", fontsize="12")
            cluster.attr(style="filled", fillcolor=fill)
            for i, node in enumerate(nodes):
                if node in members and i not in inside:
                    add(cluster, i)
                    inside.add(i)
    for i in range(len(nodes)):
        if i not in inside:
            add(picture, i)
    drawn: set[tuple] = set()
    for i, node in enumerate(nodes):
        if i in stand_in:
            continue
        for v in node.inputs:
            if v.node in hidden:
                continue
            source = stand_in.get(number[v.node], number[v.node])
            if (source, i, v.index) not in drawn:
                drawn.add((source, i, v.index))
                text = "\u00d7".join(map(str, known[v])) if v in known else ""
                between = box_of.get(v.node, box_of.get(node)) != box_of.get(node)
                red = {"color": "#d32f2f", "penwidth": "2"} if between else {}
                picture.edge(f"n{source}", f"n{i}", label=f" {text}" if text else None, **red)
    return picture


def tooltip(node: Node, shapes: dict) -> str:
    """The tooltip of a node: name, parameters, output shape."""
    parts = [node.name, *(f"{k}={v}" for k, v in text_attrs(node).items())]
    shape = shapes.get(Value(node))
    return "\n".join([*parts, f"output {shape}"] if shape is not None else parts).replace(
        "\\", "\\\\"
    )
