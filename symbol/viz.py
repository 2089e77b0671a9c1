"""mx.viz: print_summary and plot_network, of a Symbol, a Block or a -symbol.json file."""

from __future__ import annotations

import os
from math import prod
from typing import Any

from ..engine.error import InvalidType
from ..graph.graph import Node, Value, topological
from ..kernels.record import dtype_name
from ..kernels.spec import DType
from .blocks import Calls
from .draw import draw, hidden_nodes, shapes_of
from .picture import Drawing
from .plot_error import plot_error as plot_error
from .plot_program import plot_backward as plot_backward
from .plot_program import plot_memory as plot_memory
from .plot_program import plot_program as plot_program
from .symbol import Group, Symbol, load, tracing, var


def _symbol(network, shape) -> Symbol:
    """The Symbol of a Symbol, of a file's path, or of a Block called on variables. Raises
    TypeError."""
    if isinstance(network, Symbol):
        return network
    if isinstance(network, (str, os.PathLike)):
        return load(os.fspath(network))
    if not callable(network):
        raise InvalidType(
            "symbol must be a Symbol, a Block or the path of a -symbol.json file, got"
            f" {type(network).__name__}"
        )
    if not shape:
        return _group(network(var("data")))
    with tracing(False):
        return _group(network(*[var(n, shape=s) for n, s in shape.items()]))


def _group(outputs) -> Symbol:
    if isinstance(outputs, Symbol):
        return outputs
    flat, stack = [], [outputs]
    while stack:
        item = stack.pop(0)
        stack[:0] = item if isinstance(item, (list, tuple)) else []
        flat += [item] if isinstance(item, Symbol) else []
    return Group(flat)


def _shapes(shape) -> dict[str, tuple[int, ...]]:
    if shape is None:
        return {}
    return (
        {"data": tuple(shape)}
        if isinstance(shape, (tuple, list))
        else {k: tuple(s) for k, s in shape.items()}
    )


def plot_network(
    symbol: Any,
    title: str = "plot",
    save_format: str = "svg",
    shape: Any = None,
    dtype: DType | None = None,
    node_attrs: Any = None,
    hide_weights: bool = True,
    collapse: bool = False,
) -> Drawing:
    """A drawing of a network; shows itself in Jupyter, `.render("file")` writes it, `.source` is
    its DOT text.

    symbol: a Symbol, a Block, or the path of a -symbol.json file. shape: of the inputs by name, or
        of `data` alone;
    puts shapes on the edges. node_attrs: DOT attributes of all nodes. hide_weights: omits
    parameters. collapse: draws consecutive equal blocks once. save_format: svg or png.
    Raises TypeError, OperatorError for shapes that do not fit, MXNetError (on rendering) without a
    renderer.
    """
    shapes = _shapes(shape)
    dtypes = {k: dtype_name(t) for k, t in dtype.items()} if isinstance(dtype, dict) else None
    with Calls(symbol) as calls:
        outputs = _symbol(symbol, shapes)._outputs
    return draw(
        outputs,
        shapes,
        title,
        save_format,
        dtypes,
        node_attrs,
        hide_weights,
        collapse,
        paths=calls.paths(),
    )


def parameters(node: Node, hidden: set[Node]) -> dict[Node, None]:
    """The parameters that a node reads, directly or through other hidden nodes; not those that
    operators write."""
    found: dict[Node, None] = {}
    stack = [v.node for v in node.inputs if v.node in hidden]
    while stack:
        n = stack.pop()
        if n.op is None:
            found[n] = None
        stack.extend(v.node for v in n.inputs if v.node in hidden)
    return found


def print_summary(
    symbol: Any, shape: Any = None, line_length: int = 120, positions: Any = (0.44, 0.64, 0.74, 1.0)
) -> None:
    """Prints a table of layers: output shape without the batch, parameters, previous layers.

    symbol, shape: as in plot_network. positions: ends of the columns, as parts of line_length if at
        most 1.
    """
    shapes = _shapes(shape)
    symbol = _symbol(symbol, shapes)
    outputs = symbol._outputs
    known = shapes_of(outputs, shapes)
    hidden = hidden_nodes(outputs)
    auxiliary = set(symbol.list_auxiliary_states())
    if positions[-1] <= 1:
        positions = [int(line_length * p) for p in positions]

    def row(fields):
        line = ""
        for field, end in zip(fields, positions):
            line = (line + str(field))[:end].ljust(end)
        print(line)

    print("_" * line_length)
    row(["Layer (type)", "Output Shape", "Param #", "Previous Layer"])
    print("=" * line_length)
    total: dict[Node, int] = {}
    nodes = [
        n
        for n in topological(outputs)
        if n not in hidden and not (n.op is None and n.name.endswith("label"))
    ]
    for i, node in enumerate(nodes):
        sizes = {
            p: prod(known[Value(p)])
            for p in parameters(node, hidden)
            if Value(p) in known and p.name not in auxiliary
        }
        total.update(sizes)
        shape_text = "x".join(map(str, known[Value(node)][1:])) if Value(node) in known else ""
        before = [v.node.name for v in node.inputs if v.node in nodes]
        row(
            [
                f"{node.name}({node.op.name if node.op else 'null'})",
                shape_text,
                sum(sizes.values()),
                before[0] if before else "",
            ]
        )
        for name in dict.fromkeys(before[1:]):
            row(["", "", "", name])
        print(("=" if i == len(nodes) - 1 else "_") * line_length)
    print(f"Total params: {sum(total.values())}")
    print("_" * line_length)
