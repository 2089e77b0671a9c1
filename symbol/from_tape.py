"""Converts a tape to a Symbol, for autograd.get_symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.error import MXNetError
from ..graph.graph import Node, Value, rewrite
from ..ndarray.backward import Translation
from .symbol import Symbol


def symbol_of(tape: Any) -> Symbol:
    """The Symbol of a tape (ndarray.backward's TapeGraph): variables are var0, var1 ... in the
    order of their use.

    Raises MXNetError if the tape contains a Python function.
    """
    if any(getattr(node.plan, "python", False) for node in tape.nodes):
        raise MXNetError(
            "get_symbol: a Function with a Python backward has no Symbol\n  fix: write it in"
            " operators"
        )
    values = Translation(tape.structure, tape.scalars).heads
    counts = {"var": 0, "node": 0}

    def fresh(kind: str) -> str:
        counts[kind] += 1
        return f"{kind}{counts[kind] - 1}" if kind == "var" else f"{kind}_{counts[kind] - 1}"

    def replace(node: Node, inputs: Sequence[Value]) -> list[Value]:
        if node.op is None:
            return [Value(Node(None, {}, (), fresh("var")))]
        attrs = {k: v for k, v in node.attrs.items() if k != "train"}
        made = Node(node.op, attrs, inputs, fresh("node"))
        return [Value(made, i) for i in range(made.n_outputs)]

    return Symbol(rewrite(values, replace))
