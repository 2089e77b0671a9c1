"""Nested lists of arrays as a flat list and a format, and back: `gluon.block._flatten`, `_regroup`.

A format is 0 for one array, -1 for None, n for a Symbol of n outputs, a list for a list.
"""

from __future__ import annotations

from ..engine.error import InvalidValue
from ..ndarray.ndarray import NDArray
from ..symbol.symbol import Symbol


def _flatten(args, inout_str: str) -> tuple[list, int | list]:
    """(all arrays of nested lists in order, their format).

    inout_str: "input" or "output", for the error. Raises ValueError for anything else inside.
    """
    if args is None:
        return [None], -1
    if isinstance(args, NDArray):
        return [args], 0
    if isinstance(args, Symbol):
        n = len(args.list_outputs())
        return [args], n if n > 1 else 0
    if not isinstance(args, (list, tuple)):
        raise InvalidValue(
            f"When hybridized, the {inout_str} of HybridBlock must be a (nested) list of Symbol or"
            f" NDArray, but got {args!r} of type {type(args).__name__}"
        )
    flat: list = []
    formats: list = []
    for arg in args:
        part, form = _flatten(arg, inout_str)
        flat += part
        formats.append(form)
    return flat, formats


def _regroup(args, fmt):
    """The arrays nested as the format says."""
    return _take(iter(args), fmt)


def _take(args, fmt):
    if isinstance(fmt, list):
        return [_take(args, form) for form in fmt]
    if fmt == -1:
        return next(args)
    return next(args) if fmt == 0 else [next(args) for _ in range(fmt)]


def list_format(structure):
    """The format of a structure of trace.flatten; a constant stands for itself."""
    if isinstance(structure, tuple):
        return [list_format(s) for s in structure]
    return structure if structure in (0, -1) else structure.value
