"""Entries of operators that only move elements."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..record import Type
from ..shapes import one_axis
from ..strided_copies import (
    FIRST,
    IN,
    LIKE,
    NEW,
    OUT,
    STRIDED_COPIES,
    ZEROS,
    StridedCopy,
    contiguous,
    strided_copy,
    strided_slice,
)
from ..traits import Constant
from .layout import ITEM_BYTES, MAX_DIMS, code, collapse, cost
from .table import native

FUNCTIONS = {NEW: "plk_copy_run", ZEROS: "plk_copy_into_zeros", FIRST: "plk_copy_into_base"}

PLACED = {"": lib.PLK_PLACED_FIRMLY, IN: lib.PLK_PLACED_IN, OUT: lib.PLK_PLACED_OUT}


def copy_native(function: str, found: StridedCopy, y: Type, types) -> Native | None:
    """The kernel of a copy into y; types: of the arrays that memory moves for it."""
    dims, (a, b) = collapse(found.shape, found.in_strides, found.out_strides)
    if len(dims) > MAX_DIMS:
        return None
    n = prod(found.shape)
    fields = {
        "size": ITEM_BYTES[y.dtype],
        "dtype": code(y.dtype),
        "ndim": len(dims),
        "n": n,
        "shape": dims,
        "in_strides": a,
        "out_strides": b,
        "in_offset": found.in_offset,
        "out_offset": found.out_offset,
        "out_n": prod(y.shape),
        "placed": PLACED[found.placed],
        "lowest": found.span[0],
        "highest": found.span[1],
    }
    steps = 0.0 if not dims or a[-1] == b[-1] == 1 else n
    return Native(function, ("plk_copy", fields), cost(*types, steps=steps))


@native(*STRIDED_COPIES)
def move_entry(op, ins, outs, attrs):
    found = strided_copy(op, ins, outs, attrs)
    if found is None:
        return None
    y = outs[0]
    function = "plk_copy_like" if op.name in LIKE else FUNCTIONS[found.base]
    return copy_native(function, found, y, (ins[0] if found.base == NEW else y, y))


@native("MakeLoss", "LinearRegressionOutput", "MAERegressionOutput", "SVMOutput")
def loss_entry(op, ins, outs, attrs):
    """Losses that only have a gradient: their input."""
    x = ins[0]
    found = StridedCopy(x.shape, contiguous(x.shape), contiguous(x.shape))
    return copy_native("plk_copy_run" if len(ins) == 1 else "plk_copy_like", found, x, (x, x))


@native("_slice_assign_scalar")
def slice_assign_scalar_entry(op, ins, outs, attrs):
    y = outs[0]
    shape, strides, offset = strided_slice(
        op.name, y, {k: attrs[k] for k in ("begin", "end", "step")}
    )
    found = StridedCopy(shape, [0] * len(shape), strides, 0, offset, FIRST)
    return copy_native("plk_scalar_into_base", found, y, (y, y))


def _join(function, parts, whole, axis, types):
    if len(parts) > lib.PLK_MAX_PARTS:
        return None
    item = ITEM_BYTES[whole.dtype]
    outer = prod(whole.shape[:axis])
    sizes = [prod(t.shape) // outer * item if outer else 0 for t in parts]
    fields = {"outer": outer, "total": sum(sizes), "bytes": sizes, "n_parts": len(parts)}
    return Native(function, ("plk_join", fields), cost(*types, steps=2 * outer * len(parts)))


@native("Concat", "stack")
def concat_entry(op, ins, outs, attrs):
    y = outs[0]
    axis = one_axis(op.name, attrs["axis" if op.name == "stack" else "dim"], len(y.shape))
    return _join("plk_join_run", ins, y, axis, (*ins, y))


@native("SliceChannel", "_split_v2")
def split_entry(op, ins, outs, attrs):
    x = ins[0]
    return _join(
        "plk_join_split", outs, x, one_axis(op.name, attrs["axis"], len(x.shape)), (x, *outs)
    )


@native("_zeros", "_ones", "_full")
def fill_entry(op, ins, outs, attrs):
    y, value = outs[0], op.trait(Constant).value
    fields = {
        "n": prod(y.shape),
        "dtype": code(y.dtype),
        "dynamic": value is None,
        "value": value or 0.0,
    }
    return Native("plk_fill_run", ("plk_fill", fields), cost(y))
