"""Entries of selections by indices."""

from __future__ import annotations

from math import prod

from ...engine import lib
from ..native import Native
from ..record import NATIVE, NATIVE_FLOATS
from ..shapes import lines, one_axis
from .layout import ITEM_BYTES, code, cost
from .table import native

INDEX_DTYPES = NATIVE
FLOATS = NATIVE_FLOATS


def _take(function, along, indices, dtype, mode, types):
    """A kernel on the lines `along` of an array; None for indices that it does not read or
    must check."""
    if (
        indices.dtype not in INDEX_DTYPES
        or mode == "raise"
        or (along.n == 0 and prod(indices.shape))
    ):
        return None
    count = prod(indices.shape)
    fields = {
        **along._asdict(),
        "n_indices": count,
        "size": ITEM_BYTES[dtype],
        "index_dtype": code(indices.dtype),
        "wrap": mode == "wrap",
    }
    return Native(function, ("plk_take", fields), cost(*types, steps=10 * count))


@native("take")
def take_entry(op, ins, outs, attrs):
    a, indices = ins
    return _take(
        "plk_take_run",
        lines(op.name, a.shape, attrs["axis"]),
        indices,
        a.dtype,
        attrs["mode"],
        (*outs, *outs),
    )


@native("Embedding", "_contrib_SparseEmbedding")
def embedding_entry(op, ins, outs, attrs):
    indices, weight = ins
    rows = lines(op.name, weight.shape, 0)
    found = _take("plk_take_run", rows, indices, weight.dtype, "clip", (*outs, *outs))
    return found and found._replace(function="plk_embedding_run")


@native("_take_grad")
def take_grad_entry(op, ins, outs, attrs):
    dy, indices = ins
    shape = attrs["shape"]
    if dy.dtype not in FLOATS:
        return None
    return _take(
        "plk_take_backward",
        lines(op.name, shape, attrs["axis"]),
        indices,
        dy.dtype,
        attrs["mode"],
        (dy, dy, *outs),
    )


ADDED = NATIVE


def _place(function, what, shape, indices, dtype, types):
    """A kernel on a table of `shape` whose first axes are indexed."""
    depth = indices.shape[0]
    if indices.dtype not in INDEX_DTYPES or what == lib.PLK_ADD and dtype not in ADDED:
        return None
    n = prod(indices.shape[1:])
    fields = {
        "n_places": n,
        "depth": depth,
        "shape": shape[:depth],
        "n_rows": prod(shape[:depth]),
        "inner": prod(shape[depth:]),
        "what": what,
        "size": ITEM_BYTES[dtype],
        "dtype": code(dtype),
        "index_dtype": code(indices.dtype),
    }
    us = cost(*types, steps=5 * n * depth)
    return Native(function, ("plk_points", fields), us, can_fail=True)


@native("gather_nd")
def gather_nd_entry(op, ins, outs, attrs):
    data, indices = ins
    return _place(
        "plk_gather_nd_run", lib.PLK_GATHER, data.shape, indices, data.dtype, (*outs, *outs)
    )


@native("scatter_nd", "_backward_gather_nd", "_scatter_set_nd")
def scatter_nd_entry(op, ins, outs, attrs):
    what = {"scatter_nd": lib.PLK_SET, "_scatter_set_nd": lib.PLK_SET_IN}.get(op.name, lib.PLK_ADD)
    y = outs[0]
    return _place("plk_scatter_nd_run", what, y.shape, ins[-1], y.dtype, (ins[-2], *outs))


@native("pick", "batch_take", "_pick_grad")
def pick_entry(op, ins, outs, attrs):
    backward = op.name == "_pick_grad"
    whole = outs[0] if backward else ins[0]
    return _take(
        "plk_pick_backward" if backward else "plk_pick_run",
        lines(op.name, whole.shape, attrs.get("axis", 1)),
        ins[1],
        whole.dtype,
        attrs.get("mode", "clip"),
        outs,
    )


@native("_pick_log_softmax_grad")
def pick_log_softmax_grad_entry(op, ins, outs, attrs):
    shape = outs[0].shape
    last = one_axis(op.name, attrs["axis"], len(shape)) == len(shape) - 1
    if not last or any(t.dtype != "float32" for t in (ins[0], ins[2])):
        return None
    return _take(
        "plk_pick_log_softmax_backward",
        lines(op.name, shape, -1),
        ins[1],
        "float32",
        attrs["mode"],
        (*ins, *outs),
    )


@native("one_hot")
def one_hot_entry(op, ins, outs, attrs):
    x, y = ins[0], outs[0]
    if x.dtype not in INDEX_DTYPES:
        return None
    fields = {
        "n_indices": prod(x.shape),
        "depth": attrs["depth"],
        "size": ITEM_BYTES[y.dtype],
        "index_dtype": code(x.dtype),
        "dtype": code(y.dtype),
        "on": attrs["on_value"],
        "off": attrs["off_value"],
    }
    return Native("plk_one_hot_run", ("plk_one_hot", fields), cost(x, y, steps=prod(y.shape)))


@native("SequenceMask")
def sequence_mask_entry(op, ins, outs, attrs):
    x = ins[0]
    if not attrs["use_sequence_length"] or ins[1].dtype not in INDEX_DTYPES:
        return None
    axis = attrs["axis"]
    fields = {
        "steps": x.shape[axis],
        "batch": x.shape[1 - axis],
        "inner": prod(x.shape[2:]),
        "size": ITEM_BYTES[x.dtype],
        "length_dtype": code(ins[1].dtype),
        "dtype": code(x.dtype),
        "batch_first": axis == 1,
        "value": attrs["value"],
    }
    return Native("plk_sequence_mask_run", ("plk_sequence_mask", fields), cost(x, x))


@native("SequenceReverse", "SequenceLast")
def sequence_end_entry(op, ins, outs, attrs):
    x, given = ins[0], attrs["use_sequence_length"]
    if given and ins[1].dtype not in INDEX_DTYPES:
        return None
    axis, last = attrs["axis"], op.name == "SequenceLast"
    fields = {
        "steps": x.shape[axis],
        "batch": x.shape[1 - axis],
        "inner": prod(x.shape[2:]),
        "size": ITEM_BYTES[x.dtype],
        "length_dtype": code(ins[1].dtype) if given else -1,
        "batch_first": axis == 1,
    }
    name = "plk_sequence_last_run" if last else "plk_sequence_reverse_run"
    return Native(name, ("plk_sequence_mask", fields), cost(*outs, *outs), can_fail=last and given)


@native("_take_along_axis", "_put_along_axis")
def along_axis_entry(op, ins, outs, attrs):
    put, (data, indices) = op.name == "_put_along_axis", ins
    shape = outs[0].shape if put else data.shape
    axis = one_axis(op.name, attrs["axis"], len(shape))
    along = lines(op.name, shape, axis)
    if indices.dtype not in INDEX_DTYPES or along.n == 0 or put and data.dtype not in FLOATS:
        return None
    fields = {
        **along._asdict(),
        "n_indices": indices.shape[axis],
        "size": ITEM_BYTES[data.dtype],
        "index_dtype": code(indices.dtype),
    }
    us = cost(*ins, *outs, steps=2 * prod(indices.shape))
    name = "plk_put_along" if put else "plk_take_along"
    return Native(name, ("plk_take", fields), us, can_fail=True)
