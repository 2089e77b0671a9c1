"""Which operators an export maps, and how."""

from __future__ import annotations

from collections.abc import Iterator

from ....kernels.record import REGISTRY, Operator
from ....kernels.traits import Decomposition, Front, RowForm, WeightUpdate
from ..types import DEFAULT_OPSET
from .rule import REASONS, RULES


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """The names of operators that export_model writes, in order. opset_version: accepted: what
    needs a higher opset than the model's is said by the error of the export."""
    from . import convert  # noqa: F401  (fills the table)

    return sorted(name for name, op in REGISTRY.items() if way(op)[0] != "none")


def way(op: Operator) -> tuple[str, str]:
    """How an operator is written: rule, decomposition, reference or none, with the reason."""
    if op.name in RULES:
        return "rule", ""
    if op.name in REASONS:
        return "none", REASONS[op.name]
    if op.has(WeightUpdate):
        return "none", "it trains"
    if op.has(Front) or op.has(Decomposition) or op.has(RowForm):
        return "decomposition", ""
    if op.random is True:
        return "none", "ONNX has no operator that draws so"
    return "reference", ""


def rows() -> Iterator[tuple[str, str, str]]:
    """(operator, way, reason) of every operator, by name."""
    for name in sorted({op.name for op in REGISTRY.values()}):
        yield (name, *way(REGISTRY[name]))


__all__ = ["DEFAULT_OPSET", "get_operator_support", "rows", "way"]
