"""Operators on arrays with a blocked layout, run as row-major operators on the memory."""

from __future__ import annotations

from math import prod

from ..layouts import parse, physical_shape
from ..loops import LOOPS
from ..native import Native, Wanted
from ..record import REGISTRY, Attrs, Operator, Type, Types
from ..shapes import one_axis
from . import CPU, on_cpu, pool


def stored_type(t: Type, tag: str) -> Type | None:
    """The row-major array that broadcasts against arrays stored as `tag` as t does.

    None where there is none: t must have the layout itself, or size 1 along the blocked axes.
    """
    if t.layout == tag:
        return Type(physical_shape(t.shape, tag), t.dtype)
    layout = parse(tag)
    shape = (1,) * (len(layout.order) - len(t.shape)) + tuple(t.shape)
    moved = [a for a in layout.order if shape[a] != 1]
    if t.layout or moved != sorted(moved) or any(shape[a] != 1 for _, a in layout.blocks):
        return None
    return Type((*(shape[a] for a in layout.order), *[1] * len(layout.blocks)), t.dtype)


def pointwise_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    """The first layout among the inputs, if no blocked axis is broadcast. Where the last block is
    not full, what lies in the rest of it is computed too, and nobody reads it."""
    tag, shape = next((t.layout for t in ins if t.layout), ""), outs[0].shape
    if not tag or len(outs) > 1 or len(parse(tag).order) != len(shape):
        return None
    blocked = {axis for _, axis in parse(tag).blocks}
    tags = []
    for t in ins:
        full = len(t.shape) == len(shape) and all(t.shape[a] == shape[a] for a in blocked)
        tags.append(tag if full else "")
    stored = [stored_type(t._replace(layout=x), tag) for t, x in zip((*ins, *outs), (*tags, tag))]
    memory = [t for t in stored if t is not None]
    return Wanted(tags, [tag], memory) if len(memory) == len(stored) else None


_of_loops = {name.partition(":")[0] for name in LOOPS if ":" in name}
CPU.wants(
    *(op.name for op in REGISTRY.values() if op.pointwise or op.name in _of_loops),
    *("Cast", "amp_cast"),
)(pointwise_wants)


def _whole(t: Type, tag: str) -> bool:
    """Do the blocks of `tag` hold an array without padding?"""
    return prod(physical_shape(t.shape, tag)) == prod(t.shape)


@CPU.wants("Concat")
def concat_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    tag = next((t.layout for t in ins if t.layout), "")
    if not tag or not all(_whole(t, tag) for t in ins):
        return None
    return Wanted([tag] * len(ins), [tag])


@on_cpu("Concat", layouts=True)
def concat_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    tag = outs[0].layout
    if not tag or any(t.layout != tag or not _whole(t, tag) for t in ins):
        return None
    axis = one_axis(op.name, attrs["dim"], len(outs[0].shape))
    given = [Type(physical_shape(t.shape, tag), t.dtype) for t in (*ins, *outs)]
    at = parse(tag).order.index(axis)
    return CPU.choose(op, given[:-1], given[-1:], {**attrs, "dim": at})


def _is_by_channels(tag: str) -> bool:
    """Are channels last in memory, all or in blocks, and the other axes in their order?"""
    order, blocks = parse(tag)
    if not blocks:
        return order == (0, *range(2, len(order)), 1)
    return len(blocks) == 1 and blocks[0][1] == 1 and order == tuple(range(len(order)))


@CPU.wants("Pooling")
def pooling_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    tag = ins[0].layout
    last = (attrs["layout"] or "").endswith("C")
    if not tag or last or not _is_by_channels(tag):
        return None
    return Wanted([tag], [tag])


@on_cpu("Pooling", layouts=True)
def pooling_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    """Each block of channels, or all of them, is pooled as an image of its own, channels last."""
    x, y = ins[0], outs[0]
    if not x.layout or x.layout != y.layout or not _is_by_channels(x.layout):
        return None
    shape = physical_shape(x.shape, x.layout)
    images = shape[0] * shape[1] if parse(x.layout).blocks else shape[0]
    return pool.channels_last(attrs, x.shape, images, shape[-1], (x, y))
