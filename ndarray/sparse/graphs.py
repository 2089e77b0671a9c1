"""Graphs with sparse arrays: storage types of their values, and how to run them: node by node,
through the operators as a user calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...symbol.graph import Node, Value, topological
from ..invoke import invoke
from ..ndarray import NDArray
from .storage import DENSE, output_stype


def infer_storage(outputs: Sequence[Value], given: dict[Node, str]) -> dict[Value, str]:
    """The storage type of every value of a graph. given: those of variables that are not dense."""
    found: dict[Value, str] = {}
    for node in topological(outputs):
        if node.op is None:
            found[Value(node)] = given.get(node, DENSE)
            continue
        stypes = [found[v] for v in node.inputs]
        made = output_stype(node.op, stypes, node.attrs)
        found.update((Value(node, i), made if i == 0 else DENSE) for i in range(node.n_outputs))
    return found


def has_sparse(arrays: Sequence[NDArray | None]) -> bool:
    """Is any of them stored sparse?"""
    return any(a is not None and a._spec.stype != DENSE for a in arrays)


def run_nodes(
    outputs: Sequence[Value],
    known: dict[Value, NDArray],
    device,
    told: Callable[[Node, list, list], None] | None = None,
) -> list[NDArray]:
    """Computes the outputs of a graph by calling its operators, as the user would. known: arrays of
    the variables. told: is called with each node, its inputs and outputs."""
    for node in topological(outputs):
        if node.op is None:
            continue
        inputs = [known[v] for v in node.inputs]
        attrs = {k: x for k, x in node.attrs.items() if k != "train"}
        made = invoke(node.op, inputs, attrs, None, None if inputs else device)
        results = made if isinstance(made, list) else [made]
        known.update((Value(node, i), a) for i, a in enumerate(results))
        if told is not None:
            told(node, inputs, results)
    return [known[v] for v in outputs]
