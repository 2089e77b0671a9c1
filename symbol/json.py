"""Graphs as MXNet's JSON: writes exactly what 1.9.1 writes, and reads files of any version since
0.8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.error import MXNetError, OperatorError, parse_json
from ..graph.graph import Node, Value, rewrite, topological
from ..graph.placement import without_copies
from ..kernels import ops  # noqa: F401  (ops fills the registry)
from ..kernels.record import Operator, lookup, mutated_inputs
from ..kernels.traits import PrecisionCast, Specialised, Subgraphs
from ..ndarray.numpy_mode import is_np_shape
from . import attribute
from .compose import variable_attrs

VERSION = 10901  # MXNet 1.9.1
OLDEST = 800  # files without a version
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
INLINE_ITEMS = 10  # longer lists have one item per line


# ---- writing -------------------------------------------------------------------------------------


def to_json(outputs: Sequence[Value]) -> str:
    """The JSON text of a graph."""
    attrs = {"is_np_shape": ["int", 1]} if is_np_shape() else {}
    graph = {**_graph(outputs), "attrs": attrs | {"mxnet_version": ["int", VERSION]}}
    return _write(graph, 0)


def _graph(outputs: Sequence[Value]) -> dict:
    """A graph, or one inside a node, for JSON: without devices."""
    outputs = without_copies(outputs)
    order = topological(outputs)
    number = {node: i for i, node in enumerate(order)}
    versions: dict[Node, int] = {}
    nodes = []
    for node in order:
        entry: dict[str, Any] = {"op": node.op.name if node.op else "null", "name": node.name}
        attrs = text_attrs(node)
        if attrs:
            entry["attrs"] = dict(sorted(attrs.items()))
        mutated = (
            mutated_inputs(node.op, node.attrs, len(node.inputs))
            if node.op is not None and node.op.mutates
            else ()
        )
        for i in mutated:
            versions[node.inputs[i].node] = versions.get(node.inputs[i].node, 0) + 1
        entry["inputs"] = [[number[v.node], v.index, versions.get(v.node, 0)] for v in node.inputs]
        if node.op is not None and (found := node.op.trait(Subgraphs)) is not None and found.graphs:
            entry["subgraphs"] = [_graph(g) for g in found.graphs]
        nodes.append(entry)
    ends = [0]
    for node in order:
        ends.append(ends[-1] + node.n_outputs)
    return {
        "nodes": nodes,
        "arg_nodes": [i for i, node in enumerate(order) if node.op is None],
        "node_row_ptr": ends,
        "heads": [[number[v.node], v.index, versions.get(v.node, 0)] for v in outputs],
    }


def text_attrs(node: Node) -> dict[str, str]:
    """A node's attributes as text: as given, or those that differ from their defaults."""
    if node.extra is not None or node.op is None:
        return node.extra or {}
    return {
        p.name: str(node.attrs[p.name])
        for p in node.op.params
        if p.name in node.attrs and node.attrs[p.name] != p.default
    }


def _write(value, depth: int) -> str:
    """A value in the layout of MXNet's writer: `, ` between items, lines for graphs, nodes and long
    lists."""
    if isinstance(value, str):
        return f'"{value.translate(ESCAPES)}"'
    if isinstance(value, dict):
        lines = len(value) > 1
        parts = [f'"{k.translate(ESCAPES)}": {_write(v, depth + lines)}' for k, v in value.items()]
        return _join(parts, "{}", lines, depth)
    if isinstance(value, list):
        lines = len(value) > INLINE_ITEMS or any(isinstance(v, dict) for v in value)
        return _join([_write(v, depth + lines) for v in value], "[]", lines, depth)
    return str(value)


def _join(parts: list[str], brackets: str, lines: bool, depth: int) -> str:
    if not lines:
        return brackets[0] + ", ".join(parts) + brackets[1]
    indent = "\n" + "  " * (depth + 1)
    return brackets[0] + indent + f", {indent}".join(parts) + "\n" + "  " * depth + brackets[1]


def without_amp_cast(outputs: Sequence[Value]) -> list[Value]:
    """The graph without the casts inserted by mixed precision."""
    return rewrite(
        outputs,
        lambda node, inputs: (
            list(inputs) if node.op is not None and node.op.has(PrecisionCast) else None
        ),
    )


# ---- reading -------------------------------------------------------------------------------------


def from_json(text: str, where: str = "JSON text") -> list[Value]:
    """The graph of a JSON text. Raises MXNetError that names the fault and the node.

    where: what the text is, for errors (a file name).
    """
    graph = parse_json(text, f"{where}: is not a symbol, its JSON")
    if (
        not isinstance(graph, dict)
        or not isinstance(graph.get("nodes"), list)
        or not isinstance(graph.get("heads"), list)
    ):
        raise MXNetError(f'{where}: is not a symbol, it must have the lists "nodes" and "heads"')
    return _values(graph, _version(graph), where)


def _values(graph: dict, version: int, where: str) -> list[Value]:
    """The outputs of a graph, or of one inside a node."""
    nodes: list[Node] = []
    try:
        for entry in graph["nodes"]:
            nodes.append(_node(entry, nodes, version, where))
        heads = [_value(nodes, head, where, "heads") for head in graph["heads"]]
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        if isinstance(error, MXNetError):
            raise
        raise MXNetError(
            f"{where}: is not a symbol, node {len(nodes)} is malformed ({type(error).__name__}:"
            f" {error})"
        ) from None
    if not heads:
        raise MXNetError(f'{where}: is not a symbol, "heads" must not be empty')
    return heads


def _version(graph: dict) -> int:
    try:
        return int(graph["attrs"]["mxnet_version"][1])
    except (LookupError, TypeError, ValueError, OverflowError):
        return OLDEST


def _value(nodes: list[Node], at: Sequence[int], where: str, who: str) -> Value:
    node, index = int(at[0]), int(at[1])
    if not 0 <= node < len(nodes) or not 0 <= index < nodes[node].n_outputs:
        raise MXNetError(
            f"{where}: {who} reads output {index} of node {node}, which does not exist before it"
        )
    return Value(nodes[node], index)


def _node(entry: dict, nodes: list[Node], version: int, where: str) -> Node:
    name, op_name = entry["name"], entry["op"]
    if not isinstance(name, str) or not isinstance(op_name, str):
        raise TypeError("its name and op must be texts")
    raw = {**entry.get("param", {}), **entry.get("attr", {}), **entry.get("attrs", {})}
    extra = attribute.hide({k: str(v) for k, v in raw.items()})
    if op_name == "null":
        return Node(None, {}, (), name, None, extra or None)
    inputs = [_value(nodes, at, where, f"node {name!r}") for at in entry["inputs"]]
    try:
        op = lookup(op_name)
    except MXNetError as error:
        raise MXNetError(f"{where}: node {name!r}: {error}") from None
    special = op.trait(Specialised)
    if special is not None:
        given = {k: v for k, v in extra.items() if not attribute.is_user_key(k)}
        graphs = [_values(g, version, where) for g in entry.get("subgraphs", ())]
        op = special.make(given, graphs)
    if version < 905 and op.name in ("argmin", "argmax") and extra.get("axis") == "-1":
        del extra["axis"]
    try:
        given = {k: v for k, v in extra.items() if k in op.param_index}
        attrs = op.parse(op.counted(given, len(inputs)))
    except OperatorError as error:
        raise type(error)(
            error.operator, error.rule, error.fix, f"{where}, node {name!r}"
        ) from None
    _upgrade(op, op.names_in(attrs, len(inputs)), inputs, extra, name, version)
    return Node(op, attrs, inputs, name, None, extra)


def _upgrade(
    op: Operator,
    names: Sequence[str],
    inputs: list[Value],
    extra: dict[str, str],
    name: str,
    version: int,
) -> None:
    """Upgrades a node of an older version: adds omitted inputs, and moves attributes of inputs from
    their user to them."""
    if len(inputs) < len(names):
        inputs += [
            Value(Node(None, {}, (), f"{name}_{n}", None, variable_attrs(op, extra, n)))
            for n in names[len(inputs) :]
        ]
    for n, v in zip(names, inputs):
        for key in attribute.HIDDEN:
            text = extra.pop(f"{n}_{key}", None)
            if text is not None and v.node.op is None:
                v.node.extra = {**(v.node.extra or {}), f"__{key}__": text}
        if version < 904 and v.node.op is None and "__init__" not in (v.node.extra or {}):
            start = variable_attrs(op, {}, n).get("__init__")
            if start is not None:
                v.node.extra = {**(v.node.extra or {}), "__init__": start}


def debug_text(outputs: Sequence[Value]) -> str:
    """The graph as text, one paragraph for each node."""
    lines = ["Symbol Outputs:"] + [
        f"\toutput[{i}]={v.node.name}({v.index})" for i, v in enumerate(outputs)
    ]
    for node in topological(outputs):
        if node.op is None:
            lines.append(f"Variable:{node.name}")
            continue
        lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}"]
        if node.inputs:
            lines += ["Inputs:"] + [
                f"\targ[{i}]={v.node.name}({v.index})" for i, v in enumerate(node.inputs)
            ]
        if attrs := text_attrs(node):
            lines += ["Attrs:"] + [f"\t{k}={v}" for k, v in sorted(attrs.items())]
    return "\n".join(lines) + "\n"
