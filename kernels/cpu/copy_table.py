"""Entries of operators that only move elements. Their references give NumPy views: a view's strides
*are* the copy."""

from __future__ import annotations

from math import prod

import numpy as np

from ...engine import lib
from ..native import Native, native
from ..ops.slicing import slices
from ..shapes import one_axis
from .layout import ITEM_BYTES, MAX_DIMS, code, collapse, contiguous, cost

# the second input only tells a shape
LIKE = ("reshape_like", "broadcast_like", "slice_like", "_identity_with_attr_like_rhs")


def _strides(view, like, item_bytes):
    """(offset, strides) in elements of a view into `like`; None where it is not a view."""
    if view.size and not np.may_share_memory(view, like):
        return None
    offset = (
        view.__array_interface__["data"][0] - like.__array_interface__["data"][0]
    ) // item_bytes
    return (offset if view.size else 0), [s // item_bytes for s in view.strides]


def copy_native(
    function, shape, in_strides, out_strides, in_offset, out_offset, dtype, out_n, types
):
    dims, (a, b) = collapse(shape, in_strides, out_strides)
    if len(dims) > MAX_DIMS:
        return None
    fields = {
        "size": ITEM_BYTES[dtype],
        "ndim": len(dims),
        "n": prod(shape),
        "shape": dims,
        "in_strides": a,
        "out_strides": b,
        "in_offset": in_offset,
        "out_offset": out_offset,
        "out_n": out_n,
    }
    steps = 0.0 if not dims or a[-1] == b[-1] == 1 else prod(shape)
    return Native(function, ("plk_copy", fields), cost(*types, steps=steps))


def _probe(t):
    """An array of the type's shape and item size whose memory is never touched."""
    return np.empty(t.shape, f"V{ITEM_BYTES[t.dtype]}")


@native(
    "Reshape",
    "reshape_to",
    "Flatten",
    "expand_dims",
    "squeeze",
    "transpose",
    "SwapAxis",
    "reverse",
    "broadcast_to",
    "broadcast_axis",
    "slice",
    "slice_axis",
    "diag",
    "_linalg_extractdiag",
    *LIKE,
)
def move_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype != y.dtype or len(outs) != 1:
        return None
    probe = _probe(x)
    view = op.ref(np, probe, *(_probe(t) for t in ins[1:]), **attrs)
    found = _strides(view, probe, ITEM_BYTES[x.dtype])
    if found is None or view.shape != y.shape:
        return None
    offset, strides = found
    function = "plk_copy_like" if op.name in LIKE else "plk_copy_run"
    return copy_native(
        function, y.shape, strides, contiguous(y.shape), offset, 0, x.dtype, prod(y.shape), (x, y)
    )


@native("_slice_grad")
def slice_grad_entry(op, ins, outs, attrs):
    dy, dx = ins[0], outs[0]
    probe = _probe(dx)
    found = _strides(probe[slices(op.name, **attrs)], probe, ITEM_BYTES[dx.dtype])
    return found and copy_native(
        "plk_copy_into_zeros",
        dy.shape,
        contiguous(dy.shape),
        found[1],
        0,
        found[0],
        dx.dtype,
        prod(dx.shape),
        (dx, dx),
    )


@native("_linalg_makediag")
def makediag_entry(op, ins, outs, attrs):
    a, y = ins[0], outs[0]
    probe = _probe(y)
    offset, strides = _strides(
        np.diagonal(probe, attrs["offset"], -2, -1), probe, ITEM_BYTES[y.dtype]
    )
    return copy_native(
        "plk_copy_into_zeros",
        a.shape,
        contiguous(a.shape),
        strides,
        0,
        offset,
        y.dtype,
        prod(y.shape),
        (y, y),
    )


@native("_slice_assign")
def slice_assign_entry(op, ins, outs, attrs):
    lhs, rhs = ins
    probe, source = _probe(lhs), _probe(rhs)
    view = probe[slices(op.name, lhs.shape, **attrs)]
    found = _strides(view, probe, ITEM_BYTES[lhs.dtype])
    spread = _strides(np.broadcast_to(source, view.shape), source, ITEM_BYTES[rhs.dtype])
    if found is None or spread is None or lhs.dtype != rhs.dtype:
        return None
    return copy_native(
        "plk_copy_into_base",
        view.shape,
        spread[1],
        found[1],
        spread[0],
        found[0],
        lhs.dtype,
        prod(lhs.shape),
        (lhs, lhs),
    )


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


@native("tile", "repeat")
def repeat_entry(op, ins, outs, attrs):
    """A copy from a view with repeated axes of size 0 stride: tile puts them before each axis,
    repeat after one."""
    x, y = ins[0], outs[0]
    if op.name == "tile":
        n = max(len(x.shape), len(attrs["reps"]))
        sizes = (1,) * (n - len(x.shape)) + x.shape
        reps = (1,) * (n - len(attrs["reps"])) + tuple(attrs["reps"])
        pairs = [
            pair
            for size, rep, step in zip(sizes, reps, contiguous(sizes))
            for pair in ((rep, 0), (size, step))
        ]
    else:
        axis, shape = attrs["axis"], x.shape
        if axis is None:
            axis, shape = 0, (prod(shape),)
        pairs = list(zip(shape, contiguous(shape)))
        pairs.insert(one_axis(op.name, axis, len(shape)) + 1, (attrs["repeats"], 0))
    shape, strides = [p[0] for p in pairs], [p[1] for p in pairs]
    return copy_native(
        "plk_copy_run", shape, strides, contiguous(shape), 0, 0, x.dtype, prod(y.shape), (x, y)
    )


@native("_zeros", "_ones", "_full")
def fill_entry(op, ins, outs, attrs):
    y = outs[0]
    fields = {
        "n": prod(y.shape),
        "dtype": code(y.dtype),
        "dynamic": op.name == "_full",
        "value": float(op.name == "_ones"),
    }
    return Native("plk_fill_run", ("plk_fill", fields), cost(y))
