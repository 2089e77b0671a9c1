"""The drawing of an error in a graph: the node that failed, red, and what it reads."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from ..engine.error import InvalidValue, OperatorError, compose
from ..graph.graph import Node
from ..graph.inference import is_known
from .draw import Canvas, Graph, new_drawing
from .label import table
from .picture import Drawing
from .units import Unit

MAX_NODES, MAX_DEPTH = 24, 4
RED = "#b00020"


def plot_error(error: BaseException | None = None, save_format: str = "svg") -> Drawing:
    """After an OperatorError in a graph or a trace: the failing node in red, the nodes before it,
    and the shapes that were known.

    error: by default the one that is handled, or the last that ended a cell or the interpreter's
        line. Errors that it came from are looked at too.
    Raises ValueError if there is no error of a graph.
    """
    found = next((e for e in _chain(error or _last()) if getattr(e, "failed", None)), None)
    if not isinstance(found, OperatorError) or found.failed is None:
        raise InvalidValue(
            compose(
                "plot_error: there is no error of an operator in a graph",
                fix="call it after one, or give it: plot_error(error)",
            )
        )
    node, shapes = found.failed
    near = _near(node)
    known = {v: v.shape for n in near if n.is_typed for v in n.inputs if v.node.is_typed}
    known |= {v: s for v, s in shapes.items() if s is not None and is_known(s)}
    picture = new_drawing("error", save_format, None)
    canvas = Canvas(picture, hide_weights=False)
    red = {"fillcolor": "#ff8a80", "color": RED, "penwidth": "3"}
    graph = Graph(canvas, [], known, styles={node: red})
    graph.nodes = [n for n in reversed(near)]
    cut = {v.node for n in near for v in n.inputs} - set(near)
    graph.hidden = cut
    graph.draw(picture, Unit("", list(graph.nodes)))
    texts = enumerate(str(found).split("\n"))
    lines = [(part, 10.0, i == 0, RED) for i, text in texts for part in textwrap.wrap(text, 90)]
    note = canvas.node(
        picture,
        table(lines, "LEFT"),
        style="filled",
        fillcolor="#fff5f5",
        color=RED,
    )
    canvas.edge(graph.id_of(node), note, "", style="dashed", color=RED, arrowhead="none")
    return picture


def _near(node: Node) -> list[Node]:
    """The node and those before it, the nearest first, consumers before what they read."""
    found: dict[Node, None] = {node: None}
    border = [node]
    for _ in range(MAX_DEPTH):
        border = [v.node for n in border for v in n.inputs]
        for n in border:
            if len(found) < MAX_NODES:
                found.setdefault(n)
    return list(found)


def _last() -> BaseException | None:
    return sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _chain(error: Any) -> Iterator[BaseException]:
    """An error and those it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
