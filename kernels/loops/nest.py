"""Loop nests: where the nodes of a loop read, as sums of steps along the loop's axes.

A view of a view, of a transposition or of an expression is looked through: what is left are arrays
in memory that are read at `offset + sum of step * place` (Affine). Where a view merges axes, as
reshape does, the loop's axis is split instead. Then axes along which everything steps evenly become
one, and axes of one element go. So the innermost loop is as long as the memory allows, and nothing
is divided for an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from ..shapes import contiguous
from .nodes import (
    Assigned,
    Cast,
    Checked,
    Gather,
    Join,
    Leaf,
    Map,
    Node,
    Number,
    Place,
    Strided,
    Table,
    View,
    Write,
)

MAX_SPLITS = 8


class Affine(NamedTuple):
    """offset + sum of steps[d] * place along the loop's axis d + sum of step * node's element."""

    offset: int
    steps: tuple[int, ...]
    picked: tuple[tuple[Node, int], ...] = ()


class Spot:
    """An Affine that follows when the loop's axes change. printed: also where its offset is 0."""

    def __init__(self, affine: Affine, printed: bool):
        self.affine, self.printed = affine, printed or affine.offset != 0


class _Split(Exception):
    """A loop's axis must be two, of which the inner one has `inner` elements."""

    def __init__(self, axis: int, inner: int):
        self.axis, self.inner = axis, inner


class Nest:
    """Nodes at the places of a loop: `nodes` have no axes of their own.

    shape: of the loop; origin: for each of its axes the axis that was given, of which it is a part.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        shape: Sequence[int],
        merge: bool,
        groups: Sequence[int] = (),
        region: Strided | None = None,
    ):
        """groups: axes are merged with those of the same group only, in their order. region: where
        the results go; its place is `to`."""
        groups = groups or [0] * len(shape)
        factors = [[n] for n in shape]
        self._merge = merge
        for _ in range(MAX_SPLITS):
            try:
                self._place(nodes, factors, region)
                break
            except _Split as split:
                axis, at = self._owner(factors, split.axis)
                outer = factors[axis][at] // split.inner
                factors[axis][at : at + 1] = [outer, split.inner]
        else:
            self._may_split = False
            self._place(nodes, factors, region)
        self.groups = [groups[d] for d, parts in enumerate(factors) for _ in parts]
        if merge:
            self._drop()
            self._join()

    _may_split = True

    def _place(
        self, nodes: Sequence[Node], factors: list[list[int]], region: Strided | None
    ) -> None:
        self.shape = [n for parts in factors for n in parts]
        self._spots: list[Spot] = []
        self._made: dict[Any, tuple[Node, Any]] = {}
        at, shape = self._coordinates(factors), [prod(parts) for parts in factors]
        self.nodes = [self.at(x, self._own(x, at, shape)) for x in nodes]
        self.to = self._spot(self._sum(at, *region), True) if region else None

    def _owner(self, factors: list[list[int]], axis: int) -> tuple[int, int]:
        for d, parts in enumerate(factors):
            if axis < len(parts):
                return d, axis
            axis -= len(parts)
        raise IndexError(axis)

    def _coordinates(self, factors: list[list[int]]) -> list[Affine]:
        found, first = [], 0
        for parts in factors:
            steps = [0] * len(self.shape)
            for d, stride in enumerate(contiguous(parts)):
                steps[first + d] = stride
            found.append(Affine(0, tuple(steps)))
            first += len(parts)
        return found

    # ---- places ----------------------------------------------------------------------------------

    @property
    def _zero(self) -> Affine:
        return Affine(0, (0,) * len(self.shape))

    def _sum(self, coordinates: Sequence[Affine], strides: Sequence[int], offset: int) -> Affine:
        steps = [0] * len(self.shape)
        picked: dict[Node, int] = {}
        for c, stride in zip(coordinates, strides):
            offset += c.offset * stride
            steps = [s + own * stride for s, own in zip(steps, c.steps)]
            for node, own in c.picked:
                picked[node] = picked.get(node, 0) + own * stride
        return Affine(offset, tuple(steps), tuple(picked.items()))

    def _own(
        self, x: Node, coordinates: Sequence[Affine], shape: Sequence[int]
    ) -> tuple[Affine, ...]:
        """The place in a node that broadcasts to `shape`."""
        lead = len(coordinates) - len(x.shape)
        return tuple(
            self._zero if n == 1 and (self._merge or whole != 1) else c
            for n, whole, c in zip(x.shape, tuple(shape)[lead:], coordinates[lead:])
        )

    def _split(self, flat: Affine, shape: Sequence[int]) -> list[Affine] | None:
        """The coordinates of a flat place, None where they are no sums of steps. Raises _Split."""
        axes = [j for j, n in enumerate(shape) if n != 1]
        if flat.picked and len(axes) > 1 or flat.offset < 0:
            return None
        strides = contiguous(shape)
        offsets, found = {}, {j: [0] * len(self.shape) for j in axes}
        rest = flat.offset
        for j in axes:
            offsets[j], rest = divmod(rest, strides[j])
        for d, step in enumerate(flat.steps):
            rest = abs(step)
            for j in axes:
                digit, rest = divmod(rest, strides[j])
                found[j][d] = digit if step >= 0 else -digit
        for j in axes:
            offset, steps = offsets[j], found[j]
            reach = [s * (n - 1) for s, n in zip(steps, self.shape)]
            low, high = (offset + sum(f(r, 0) for r in reach) for f in (min, max))
            if low >= 0 and high < shape[j] or flat.picked:
                continue
            for d, (step, n) in enumerate(zip(steps, self.shape)):
                if step > 0 and n > 1 and not offset and shape[j] % step == 0:
                    inner = shape[j] // step
                    if 1 < inner < n and n % inner == 0 and self._may_split:
                        raise _Split(d, inner)
            return None
        zero = self._zero
        return [
            Affine(offsets[j], tuple(found[j]), flat.picked) if j in found else zero
            for j in range(len(shape))
        ]

    def _spot(self, affine: Affine, printed: bool) -> Spot:
        if self._merge:
            steps = tuple(0 if n == 1 else s for s, n in zip(affine.steps, self.shape))
            affine = affine._replace(steps=steps)
        self._spots.append(Spot(affine, printed))
        return self._spots[-1]

    # ---- nodes -----------------------------------------------------------------------------------

    def at(self, x: Node, coordinates: Sequence[Affine]) -> Node:
        """A node at a place."""
        key = id(x), *coordinates
        if key not in self._made:
            self._made[key] = self._placed(x, coordinates), x
        return self._made[key][0]

    def _placed(self, x: Node, coordinates: Sequence[Affine]) -> Node:
        if isinstance(x, Number):
            return x
        if isinstance(x, Leaf):
            flat = self._sum(coordinates, x.strides, x.offset)
            return Load(x, self._spot(flat, not x.is_whole))
        if isinstance(x, Place):
            return Steps(x, self._spot(self._sum(coordinates, x.steps, x.start), True))
        if isinstance(x, Table):
            flat = self._sum(coordinates, contiguous(x.shape), 0)
            return Listed(x, self._spot(flat, False))
        if isinstance(x, Map):
            return x.of_others([self.at(y, self._own(y, coordinates, x.shape)) for y in x.of])
        if isinstance(x, Cast):
            return Cast(self.at(x.of[0], coordinates), x.dtype)
        if isinstance(x, Checked):
            return Checked(self.at(x.of[0], coordinates), x.n)
        if isinstance(x, View):
            inside = self._split(self._sum(coordinates, x.strides, x.offset), x.of[0].shape)
            if inside is not None:
                return self.at(x.of[0], inside)
        if isinstance(x, Gather):
            return self.at(x.of[0], self._picked(x, coordinates))
        return At(x, [self._spot(c, False) for c in coordinates])

    def _picked(self, x: Gather, coordinates: Sequence[Affine]) -> list[Affine]:
        own = slice(x.first, x.first + x.n_dims)
        found = []
        for n, key in zip(x.of[0].shape, x.keys):
            if not isinstance(key, Node):
                found.append(coordinates[key])
                continue
            index = self.at(key, self._own(key, coordinates[own], x.shape[own]))
            name = "index", n, id(index)
            if name not in self._made:
                self._made[name] = Index(index, n), index
            found.append(self._zero._replace(picked=((self._made[name][0], 1),)))
        return found

    # ---- axes ------------------------------------------------------------------------------------

    def _drop(self) -> None:
        """Without the axes of one element."""
        kept = [d for d, n in enumerate(self.shape) if n != 1]
        for spot in self._spots:
            spot.affine = spot.affine._replace(steps=tuple(spot.affine.steps[d] for d in kept))
        self.shape = [self.shape[d] for d in kept]
        self.groups = [self.groups[d] for d in kept]

    def _join(self) -> None:
        """Two axes are one where every array is walked so."""
        for b in reversed(range(1, len(self.shape))):
            a = next((d for d in reversed(range(b)) if self.groups[d] == self.groups[b]), None)
            if a is None:
                continue
            if all(s.affine.steps[a] == s.affine.steps[b] * self.shape[b] for s in self._spots):
                for spot in self._spots:
                    steps = list(spot.affine.steps)
                    steps[a] = steps.pop(b)
                    spot.affine = spot.affine._replace(steps=tuple(steps))
                self.shape[a] *= self.shape.pop(b)
                del self.groups[b]


class _Placed(Node):
    """A node that has its place in the loop."""

    def __init__(self, x: Node, *of: Node):
        super().__init__((), x.dtype)
        self.of, self.weight = of, x.weight


class Load(_Placed):
    """An element of an array in memory."""

    def __init__(self, leaf: Leaf, spot: Spot):
        super().__init__(leaf)
        self._leaf, self._spot = leaf, spot

    def text(self, k: Any, at: Sequence[str]) -> str:
        return k.read(self._leaf, k.spot(self._spot))


class Steps(_Placed):
    """A number that is a sum of steps."""

    def __init__(self, x: Place, spot: Spot):
        super().__init__(x)
        self._spot = spot

    def text(self, k: Any, at: Sequence[str]) -> str:
        return k.value(self.kind, f"({self.kind})({k.spot(self._spot)})")


class Listed(_Placed):
    """An element of an array that is known now."""

    def __init__(self, x: Table, spot: Spot):
        super().__init__(x)
        self._values, self._spot = x.values, spot

    def text(self, k: Any, at: Sequence[str]) -> str:
        return k.value(self.kind, k.table(self._values, k.spot(self._spot)))


class Index(_Placed):
    """A place along an axis of n elements, which an index array names; as Gather has it."""

    def __init__(self, index: Node, n: int):
        super().__init__(index, index)
        self._n = n

    def text(self, k: Any, at: Sequence[str]) -> str:
        return k.index(k.element(self.of[0], ()), self._n)


class At(_Placed):
    """Another node at a place: one that finds its own way."""

    def __init__(self, x: Node, spots: Sequence[Spot]):
        super().__init__(x, x)
        self._spots = spots

    def text(self, k: Any, at: Sequence[str]) -> str:
        return k.element(self.of[0], tuple(k.spot(s) for s in self._spots))


def parts(step: Write) -> list[Write]:
    """A loop for each part of an array that is joined or assigned to, so that none decides for each
    element which part it is in."""
    if len(step.nodes) > 1:
        return [step]
    shape = step.nodes[0].shape
    found = list(_parts(step.nodes[0], shape, Strided(contiguous(shape), 0)))
    if len(found) == 1:
        return [step]
    return [Write([x], step.to, region) for x, region in found if prod(x.shape)]


def _parts(x: Node, shape: Sequence[int], to: Strided) -> Iterator[tuple[Node, Strided]]:
    """(a node, where it goes)"""
    if isinstance(x, Cast) and isinstance(x.of[0], Join):
        x = Join([Cast(part, x.dtype) for part in x.of[0].of], x.of[0].axis)
    if isinstance(x, Join):
        start = 0
        for part in x.of:
            yield from _parts(
                part, part.shape, Strided(to.strides, to.offset + start * to.strides[x.axis])
            )
            start += part.shape[x.axis]
    elif isinstance(x, Assigned):
        old, values = x.of
        yield from _parts(old, shape, to)
        strides, shape, offset = [], [], to.offset
        for stride, (start, step, n) in zip(to.strides, x.region):
            offset += start * stride
            if n != -1:
                strides.append(step * stride)
                shape.append(n)
        yield View(values, shape, _broadcast(values.shape, shape), 0), Strided(strides, offset)
    else:
        yield x, to


def _broadcast(shape: Sequence[int], to: Sequence[int]) -> list[int]:
    """The strides of a row-major array that is broadcast."""
    own = [0 if n == 1 else s for n, s in zip(shape, contiguous(shape))]
    return [0] * (len(to) - len(shape)) + own
