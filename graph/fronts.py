"""Fronts in graphs: each node of one is replaced by what it stands for, before anything else reads
a typed graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kernels.record import Operator, Type
from ..kernels.traits import Front
from .graph import Builder, Node, Value, rewrite, topological, variable


def outputs_of(
    op: Operator, inputs: Sequence[Value], attrs: dict[str, Any], like: Node | None = None
) -> list[Value]:
    """What a front stands for on typed values. attrs: complete. like: the node that it replaces,
    whose line and attributes of the user the new ones get."""
    found = op.trait(Front)
    assert found is not None
    attrs = dict(attrs)
    train = bool(attrs.get("train"))
    if not op.train_aware:
        attrs.pop("train", None)
    made = found.rule(Builder(train, like), *inputs, **attrs)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def types(op: Operator, ins: Sequence[Type], attrs: dict[str, Any]) -> list[Type]:
    """The types of a front's outputs."""
    xs = [variable(f"x{i}", t) for i, t in enumerate(ins)]
    return [v.type for v in outputs_of(op, xs, attrs)]


def has_fronts(nodes: Sequence[Node]) -> bool:
    return any([n.op is not None and n.op.has(Front) for n in nodes])


def expanded(outputs: Sequence[Value]) -> list[Value]:
    """A typed graph without fronts."""
    order = topological(outputs)
    if not has_fronts(order):
        return list(outputs)

    def replace(node: Node, inputs: Sequence[Value]) -> list[Value] | None:
        if node.op is None or not node.op.has(Front):
            return None
        return outputs_of(node.op, inputs, node.attrs, node)

    return rewrite(outputs, replace, order=order)
