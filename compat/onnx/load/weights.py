"""Which constants of a graph are parameters: floats that no shape depends on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..types import OnnxError
from .graph import Graph, Node, check_attributes, read_function
from .run import RULES, Run, Scope, Weight, supported

# their operands of one element are numbers, not weights
POINTWISE = frozenset(
    "Add Sub Mul Div Pow Max Min Mod Equal Greater GreaterOrEqual Less LessOrEqual Where Clip"
    " HardSigmoid Sum Mean Expand Concat Unsqueeze Squeeze Reshape Cast".split()
)


def check_supported(graph: Graph) -> None:
    """Raises OnnxError with all nodes that nothing can compute, and for wrong attributes."""
    unknown: dict[str, list[str]] = {}
    stack, seen = [graph], set()
    while stack:
        for node in stack.pop().all_nodes():
            if not supported(node, graph.functions):
                kind = f"{node.domain}.{node.op}" if node.domain else f"{node.op}-{node.opset}"
                unknown.setdefault(kind, []).append(node.name or (node.outputs or ["?"])[0])
            local = graph.functions.get((node.domain, node.op))
            if local is not None and (node.domain, node.op) not in seen:
                seen.add((node.domain, node.op))
                stack.append(read_function(local, node, graph.functions, True))
    if unknown:
        rows = [
            f"{kind}: {', '.join(names[:8])}" + (", ..." * (len(names) > 8))
            for kind, names in sorted(unknown.items())
        ]
        raise OnnxError("onnx: these nodes are not supported\n  " + "\n  ".join(rows))
    for node in graph.all_nodes():
        if (node.domain, node.op) not in graph.functions:
            check_attributes(node)


def take_weights(graph: Graph) -> tuple[dict[str, np.ndarray], set[str]]:
    """Replaces the constants that are weights, of inner graphs too: (them by name, the names of
    those that are running statistics)."""
    static = _static(graph)
    found: dict[str, np.ndarray] = {}
    moments: set[str] = set()
    stack = [graph]
    while stack:
        g = stack.pop()
        nodes = list(g.all_nodes())
        readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        for name, x in list(g.constants.items()):
            if name not in readers and name not in g.outputs:
                del g.constants[name]
            elif _is_weight(x, readers.get(name, ()), name in static):
                unique = name
                while unique in found:
                    unique += "_"
                found[unique] = x
                g.constants[name] = Weight(unique)
                if any(
                    n.op == "BatchNormalization" and name in n.inputs[3:]
                    for n in readers.get(name, ())
                ):
                    moments.add(unique)
        stack += [inner for node in g.nodes for inner in node.graphs()]
    return found, moments


def _is_weight(x: np.ndarray, readers: Sequence[Node], static: bool) -> bool:
    if static or x.size == 0 or x.ndim == 0 or x.dtype.kind != "f" and x.dtype.kind != "V":
        return False
    return x.size > 1 or any(n.op not in POINTWISE for n in readers)


def _static(graph: Graph) -> set[str]:
    """Names whose values decide shapes."""
    made: dict[str, list[str]] = {}
    wanted: list[str] = []
    for node in graph.all_nodes():
        known = RULES.get(node.op)
        positions = known.static if known is not None else ()
        wanted += [node.inputs[i] for i in positions if -len(node.inputs) <= i < len(node.inputs)]
        if node.op in ("If", "Loop"):
            wanted += node.inputs[: 1 if node.op == "If" else 2]
        if node.op not in ("Shape", "Size"):
            reads = [*node.inputs, *(o for g in node.graphs() for o in g.outputs)]
            for name in node.outputs:
                made.setdefault(name, []).extend(reads)
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += made.get(name, ())
    return found - {""}


def fold(graph: Graph, but: Collection[str] = ()) -> None:
    """Computes nodes of the main graph that depend on constants alone. but: operators that stay."""
    run, scope, rest = Run({}), Scope(None, graph.functions), []
    scope.update(graph.constants)
    for node in graph.nodes:
        values = [scope.get(n) if n else None for n in node.inputs]
        known = all(isinstance(v, np.ndarray) for v, n in zip(values, node.inputs) if n)
        rule = RULES.get(node.op)
        if not known or rule is None or rule.random or rule.raw or node.domain or node.op in but:
            rest.append(node)
            continue
        made = run.node(node, scope)
        if all(isinstance(v, np.ndarray) for v in made):
            scope.update((n, v) for n, v in zip(node.outputs, made) if n)
            graph.constants.update((n, v) for n, v in zip(node.outputs, made) if n)
        else:
            rest.append(node)
    graph.nodes = rest


def static_inputs(graph: Graph) -> list[str]:
    """The inputs whose values decide shapes."""
    static = _static(graph)
    return [name for name in graph.inputs if name in static]
