"""Names of outputs, as list_outputs gives them."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.record import Operator
from .graph import Value


def output_names(outputs: Sequence[Value]) -> list[str]:
    """Names of several outputs."""
    return [output_name(v) for v in outputs]


def given_names(op: Operator, attrs: dict) -> tuple[str, ...]:
    """The names that an operator gives to its outputs; may be fewer than these are."""
    names = op.output_names
    return names(**attrs) if callable(names) else names


def output_name(v: Value) -> str:
    """The name of an output: fc_output, split_output0, bn_mean; a variable's own name."""
    node = v.node
    if node.op is None:
        return node.name
    names = given_names(node.op, node.attrs)
    if v.index < len(names):
        return f"{node.name}_{names[v.index]}"
    return f"{node.name}_output" + (
        str(v.index) if node.n_outputs > 1 and node.n_visible > 1 else ""
    )
