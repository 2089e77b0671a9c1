"""`gluon.block._flatten` and `_regroup`: nested lists of arrays or Symbols as a flat list and a
format, and back. The format: see ndarray.nesting."""

from __future__ import annotations

from ..engine.error import InvalidValue
from ..ndarray.ndarray import NDArray
from ..ndarray.nesting import flatten, regroup
from ..symbol.symbol import Symbol


def _leaf(x):
    if x is None:
        return [None], -1
    if isinstance(x, NDArray):
        return [x], 0
    if isinstance(x, Symbol):
        n = len(x.list_outputs())
        return [x], n if n > 1 else 0
    return None


def _flatten(args, inout_str: str) -> tuple[list, int | list]:
    """(all arrays of nested lists in order, their format).

    inout_str: "input" or "output", for the error. Raises ValueError for anything else inside.
    """

    def refuse(x):
        return InvalidValue(
            f"When hybridized, the {inout_str} of HybridBlock must be a (nested) list of Symbol or"
            f" NDArray, but got {x!r} of type {type(x).__name__}"
        )

    return flatten(args, _leaf, refuse)


def _regroup(args, fmt):
    """The arrays nested as the format says."""
    return regroup(args, fmt)


def list_format(structure):
    """The format of a structure of trace.flatten; a constant stands for itself."""
    if isinstance(structure, tuple):
        return [list_format(s) for s in structure]
    return structure if structure in (0, -1) else structure.value
