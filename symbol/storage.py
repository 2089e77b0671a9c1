"""Executors with sparse arrays: storage types of arguments and gradients, and execution node by
node, with the tape for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.graph import Node, Value, topological
from ..kernels.spec import STYPES
from ..kernels.traits import RowGradient
from ..ndarray import autograd
from ..ndarray.interpreter import Compute, run_nodes
from ..ndarray.launch import copy_into
from ..ndarray.ndarray import NDArray
from ..ndarray.sparse.storage import DENSE
from ..ndarray.tape import Variable, shadow


def declared(node: Node, stype_dict: dict) -> str:
    """The storage type of a variable: stype_dict's, else that of sym.var(stype=)."""
    given = (node.extra or {}).get("__storage_type__", "0")
    found = STYPES[int(given)] if given in ("0", "1", "2") else given
    return stype_dict.get(node.name, found)


def gradient_stypes(
    outputs: Sequence[Value], stypes: dict[Value, str], variables: Sequence[Node]
) -> list[str]:
    """The storage types that gradients of variables have: row_sparse if all readers of a variable
    produce such gradients, or if the variable itself is row_sparse."""
    readers: dict[Value, list[tuple[Node, int]]] = {}
    for node in topological(outputs):
        for i, v in enumerate(node.inputs):
            readers.setdefault(v, []).append((node, i))
    found = []
    for variable in variables:
        v = Value(variable)
        uses = readers.get(v, [])
        by_rows = bool(uses) and all(_makes_rows(node, i, stypes) for node, i in uses)
        found.append("row_sparse" if by_rows or stypes.get(v) == "row_sparse" else DENSE)
    return found


def _makes_rows(node: Node, i: int, stypes: dict[Value, str]) -> bool:
    found = node.op.trait(RowGradient) if node.op is not None and i == 1 else None
    return found is not None and found.when(stypes.get(node.inputs[0], DENSE), **node.attrs)


class StorageRun:
    """Execution of an executor with sparse arguments or gradients."""

    def __init__(self, outputs: Sequence[Value], nodes: Sequence[Node]):
        self._outputs, self._nodes = list(outputs), list(nodes)
        self._heads: list[NDArray] = []

    def forward(
        self, arrays: Any, grads: Any, requests: Any, train: bool, compute: Compute
    ) -> list[NDArray]:
        """The outputs for arrays of the variables; grads, requests: of the first of them; compute:
        of a node."""
        known = {Value(n): a for n, a in zip(self._nodes, arrays)}
        wants = train and any(r != "null" for r in requests)
        if wants:
            for n, a, g, r in zip(self._nodes, arrays, grads, requests):
                if r != "null":
                    x = known[Value(n)] = shadow(a)
                    x._tape = Variable(x, g, r)
        with autograd.record(train) if wants else autograd.pause(train):
            self._heads = run_nodes(self._outputs, known, compute)
        return [h.detach() for h in self._heads]

    def backward(self, head_grads: Sequence[NDArray | None]) -> None:
        """Gradients of the last forward, written to the arrays given to it."""
        pairs = [(h, g) for h, g in zip(self._heads, head_grads) if h._tape is not None]
        if pairs:
            heads, grads = (list(x) for x in zip(*pairs))
            autograd.backward(heads, grads, retain_graph=True)


def keep(results: Sequence[NDArray], targets: list[NDArray]) -> None:
    """Writes results to the executor's outputs: dense ones in place."""
    for i, (result, target) in enumerate(zip(results, targets)):
        if result._spec is target._spec and result.stype == DENSE:
            copy_into(result, target)
        else:
            targets[i] = result
