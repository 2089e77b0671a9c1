"""Memory layouts: how a Program may store the values that lie between its operators.

A layout is a tag: the axes a, b, c ... in the order of memory, an upper-case one split into blocks,
then the blocks, outermost first, each as size and axis. "aBcd8b" stores (n, c, h, w) as
(n, ceil(c / 8), h, w, 8). Where c ends inside a block, the rest of the block holds anything, and
nothing that is read depends on it. "" is row-major.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..engine.error import InvalidValue, shown

TAG = re.compile(r"([a-zA-Z]+)((?:\d+[a-z])*)")


class Layout(NamedTuple):
    """A tag taken apart: axes in the order of memory, and (size, axis) of each block."""

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]

    def block_of(self, axis: int) -> int:
        """Elements of an axis that lie in one block; 1 where it is not split."""
        return prod(size for size, a in self.blocks if a == axis)


@functools.cache
def parse(tag: str) -> Layout:
    """The parts of a tag. Raises InvalidValue for a text that is none."""
    found = TAG.fullmatch(tag)
    axes = found[1].lower() if found else ""
    if not found or sorted(axes) != [chr(ord("a") + i) for i in range(len(axes))]:
        raise InvalidValue(f"layout {shown(tag)}: must name each axis once, as in 'aBcd8b'")
    number = lambda letter: ord(letter.lower()) - ord("a")
    blocks = tuple((int(n), number(a)) for n, a in re.findall(r"(\d+)([a-z])", found[2]))
    if {a for _, a in blocks} != {number(a) for a in found[1] if a.isupper()}:
        raise InvalidValue(f"layout {shown(tag)}: upper-case axes and blocks must be the same")
    return Layout(tuple(map(number, axes)), blocks)


def physical_shape(shape: Sequence[int], tag: str) -> tuple[int, ...]:
    """The row-major shape of the memory that holds an array of `shape`; its product counts the
    padding."""
    if not tag:
        return tuple(shape)
    layout = parse(tag)
    if len(layout.order) != len(shape):
        raise InvalidValue(f"layout {tag!r}: must name the axes of shape {tuple(shape)}")
    outer = [-(-shape[a] // layout.block_of(a)) for a in layout.order]
    return (*outer, *(size for size, _ in layout.blocks))


def to_physical(values: np.ndarray, tag: str) -> np.ndarray:
    """A row-major array as it lies in memory: shape `physical_shape`, padding zero."""
    if not tag:
        return values
    layout = parse(tag)
    padding = [(0, -n % layout.block_of(a)) for a, n in enumerate(values.shape)]
    padded = np.pad(values, padding) if any(p for _, p in padding) else values
    split, at = _split(padded.shape, layout)
    return np.ascontiguousarray(padded.reshape(split).transpose(at))


def to_plain(memory: np.ndarray, shape: Sequence[int], tag: str) -> np.ndarray:
    """The row-major array of `shape` that memory (of `physical_shape`) holds."""
    if not tag:
        return memory
    layout = parse(tag)
    padded = [n + -n % layout.block_of(a) for a, n in enumerate(shape)]
    _, at = _split(padded, layout)
    plain = memory.transpose(np.argsort(at)).reshape(padded)
    return np.ascontiguousarray(plain[tuple(slice(n) for n in shape)])


def strides(
    shape: Sequence[int], source: str, to: str
) -> tuple[list[int], list[int], list[int]] | None:
    """How a copy changes the layout: its shape, strides in the source and in the result, in
    elements. None where a block is not full or the two cut an axis differently."""
    tags = [parse(tag) if tag else Layout(tuple(range(len(shape))), ()) for tag in (source, to)]
    cuts = []
    for axis, n in enumerate(shape):
        here, there = (tuple(s for s, a in tag.blocks if a == axis) for tag in tags)
        if n % prod(here or there) or here and there and here != there:
            return None
        cuts.append(here or there)
    sizes = {(axis, i): size for axis, cut in enumerate(cuts) for i, size in enumerate(cut, 1)}
    sizes |= {(axis, 0): n // prod(cut) for axis, (n, cut) in enumerate(zip(shape, cuts))}

    def steps(tag: Layout) -> dict[tuple[int, int], int]:
        order = []
        for axis in tag.order:
            whole = tag.block_of(axis) == 1
            order += [(axis, i) for i in range(1 + whole * len(cuts[axis]))]
        seen = dict.fromkeys(tag.order, 0)
        for _, axis in tag.blocks:
            seen[axis] += 1
            order.append((axis, seen[axis]))
        return {piece: prod(sizes[p] for p in order[i:]) for i, piece in enumerate(order, 1)}

    read, written = map(steps, tags)
    return [sizes[p] for p in written], [read[p] for p in written], list(written.values())


class Piece(NamedTuple):
    """One dimension of a blocked array's memory: it counts `unit` elements of an axis."""

    axis: int
    size: int
    unit: int


def pieces(shape: Sequence[int], tag: str) -> list[Piece]:
    """The dimensions of the memory of an array, in their order."""
    layout = parse(tag)
    units = [layout.block_of(a) for a in range(len(shape))]
    found = [Piece(a, -(-shape[a] // units[a]), units[a]) for a in layout.order]
    for size, a in layout.blocks:
        units[a] //= size
        found.append(Piece(a, size, units[a]))
    return found


def _split(padded: Sequence[int], layout: Layout) -> tuple[list[int], list[int]]:
    """A padded shape with every axis followed by its blocks, and the order of these in memory."""
    shape: list[int] = []
    place: dict[tuple[int, int], int] = {}  # (axis, level) -> position in the split shape
    for axis, n in enumerate(padded):
        place[axis, 0] = len(shape)
        shape.append(n // layout.block_of(axis))
        for level, size in enumerate((s for s, a in layout.blocks if a == axis), 1):
            place[axis, level] = len(shape)
            shape.append(size)
    order = [place[a, 0] for a in layout.order]
    seen = dict.fromkeys(layout.order, 0)
    for _, axis in layout.blocks:
        seen[axis] += 1
        order.append(place[axis, seen[axis]])
    return shape, order
