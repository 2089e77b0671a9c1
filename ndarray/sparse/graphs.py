"""Graphs with sparse arrays: storage types of their values."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.graph import Node, Value, topological
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
