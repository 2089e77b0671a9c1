"""Units of a drawing: nodes that belong together, because one block or one prefix made them, and
equal units in a row, which are drawn once.

A unit is equal to the one before it where its operators, parameters and shapes are the same and it
reads, operator by operator, the same: inside itself, from the unit before it, or the same values
from outside. Of these it may read another output, as the steps of an unrolled cell do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from ..graph.graph import Node, Value

LEAST = 3  # operators of a unit that is worth a frame, or is drawn once for several
MAX_TRIED = 12  # ways to repeat, from one place on
PREFIX = re.compile(r"[^_]*[A-Za-z][^_]*\d_")  # of a block: stage1_, conv0_, t3_
Path = tuple[str, ...]


class Unit:
    """Nodes and units, in the order of their last nodes. times: how many equal ones it stands for;
    title: "" for a frame without a name."""

    def __init__(self, title: str, items: list[Node | Unit], times: int = 1):
        self.title, self.items, self.times = title, items, times

    def nodes(self) -> Iterator[Node]:
        """Every node inside it, in the order of the drawing."""
        for item in self.items:
            if isinstance(item, Unit):
                yield from item.nodes()
            else:
                yield item


# ---- paths ---------------------------------------------------------------------------------------


def paths_of_names(nodes: Sequence[Node]) -> dict[Node, Path]:
    """The path of each operator, by the prefixes that blocks give to names:
    `net0_stage1_conv0_fwd` is in net0, net0_stage1 and net0_stage1_conv0."""
    found: dict[Node, Path] = {}
    for node in nodes:
        prefixes, at = [], 0
        while node.op is not None and (part := PREFIX.match(node.name, at)):
            at = part.end()
            prefixes.append(node.name[: at - 1])
        found[node] = tuple(prefixes)
    return found


def arrange(nodes: Sequence[Node], paths: Mapping[Node, Path], titles: Mapping[Path, str]) -> Unit:
    """The nodes, inputs first, as nested units. A unit without LEAST operators, one that is all of
    what it is in, and one that something outside it runs in the middle of, are none."""
    return _nested(nodes, (), _convex(nodes, paths), titles)


def _nested(nodes: Sequence[Node], path: Path, paths, titles) -> Unit:
    parts: dict[object, list[Node]] = {}
    for node in nodes:
        inside = paths.get(node, ())
        parts.setdefault(inside[: len(path) + 1] if len(inside) > len(path) else node, []).append(
            node
        )
    place = {n: i for i, n in enumerate(nodes)}
    items: list[Node | Unit] = []
    for key, members in sorted(parts.items(), key=lambda part: place[part[1][-1]]):
        if isinstance(key, Node):
            items.append(key)
            continue
        assert isinstance(key, tuple)
        unit = _nested(members, key, paths, titles)
        if key in titles and LEAST <= _n_operators(members) < _n_operators(nodes):
            items.append(unit)
        else:
            items += unit.items
    return Unit(titles.get(path, ""), items)


def _n_operators(nodes: Sequence[Node]) -> int:
    return sum(n.op is not None for n in nodes)


def _convex(nodes: Sequence[Node], paths: Mapping[Node, Path]) -> dict[Node, Path]:
    """The paths, cut before the first part that other nodes run in the middle of: that read one of
    its nodes, and are read by another."""
    members: dict[Path, set[Node]] = {}
    for node in nodes:
        path = paths.get(node, ())
        for n in range(1, len(path) + 1):
            members.setdefault(path[:n], set()).add(node)
    torn: set[Path] = set()
    place = {n: i for i, n in enumerate(nodes)}
    for path, inside in members.items():
        if len(inside) < LEAST:
            continue
        first, last = min(place[n] for n in inside), max(place[n] for n in inside)
        after: set[Node] = set()
        for node in nodes[first : last + 1]:
            reads = [v.node for v in node.inputs]
            if node not in inside and any(n in inside or n in after for n in reads):
                after.add(node)
            elif node in inside and any(n in after for n in reads):
                torn.add(path)
                break
    found = {}
    for node in nodes:
        path = paths.get(node, ())
        whole = next((n for n in range(1, len(path) + 1) if path[:n] in torn), len(path) + 1)
        found[node] = path[: whole - 1]
    return found


# ---- equal units ---------------------------------------------------------------------------------


class Folding:
    """Folds equal units of a tree in place. stand_in: a node that is not drawn -> the equal one of
    the first unit."""

    def __init__(self, root: Unit, shapes: Mapping[Value, tuple], hidden: Collection[Node]):
        """hidden: weights, and what is computed from them."""
        self.stand_in: dict[Node, Node] = {}
        self._shapes, self._hidden = shapes, hidden
        self._numbers: dict[object, int] = {}
        self._fold(root)

    def drawn(self, node: Node) -> Node:
        """The node that is drawn for this one."""
        while node in self.stand_in:
            node = self.stand_in[node]
        return node

    def _fold(self, unit: Unit) -> list[list[Node]]:
        """Folds what is inside; returns the nodes of each item, folded ones too."""
        every = [self._fold_inside(item) for item in unit.items]
        tokens = np.array([self._token(nodes) for nodes in every], int)
        found: list[Node | Unit] = []
        covered: list[list[Node]] = []
        i = 0
        while i < len(every):
            length, times = self._repeat(tokens, every, i)
            items = unit.items[i : i + length]
            if times > 1:
                one = items[0] if length == 1 and isinstance(items[0], Unit) else Unit("", items)
                if one.times > 1:  # it stands for several already
                    one = Unit("", [one])
                one.times = times
                first = [n for nodes in every[i : i + length] for n in nodes]
                for k in range(1, times):
                    other = [
                        n for nodes in every[i + k * length : i + (k + 1) * length] for n in nodes
                    ]
                    self.stand_in.update(zip(other, first))
                items = [one]
            found += items
            covered += every[i : i + length * times]
            i += length * times
        unit.items = found
        return covered

    def _fold_inside(self, item: Node | Unit) -> list[Node]:
        if not isinstance(item, Unit):
            return [item]
        return [n for nodes in self._fold(item) for n in nodes]

    def _token(self, nodes: Sequence[Node]) -> int:
        """Equal numbers: equal operators, parameters and shapes."""
        parts = [
            (n.op, n.op and repr(n.attrs), n.op or n, self._shapes.get(Value(n))) for n in nodes
        ]
        return self._numbers.setdefault(tuple(parts), len(self._numbers))

    def _repeat(self, tokens: np.ndarray, every: list[list[Node]], i: int) -> tuple[int, int]:
        """(items of a unit, how many equal ones there are) from place i on; (1, 1): none."""
        rest = tokens[i:]
        ways = []
        for length in range(1, len(rest) // 2 + 1):
            if rest[0] != rest[length]:
                continue
            differ = np.flatnonzero(rest[:-length] != rest[length:])
            same = int(differ[0]) if len(differ) else len(rest) - length
            if times := same // length:
                ways.append(((times + 1) * length, -length))
        for whole, negative in sorted(ways, reverse=True)[:MAX_TRIED]:
            length = -negative
            units = self._units(every, i, length, whole // length)
            if len(units[0]) < LEAST or (times := self._alike(units)) < 2:
                continue
            if self._begins_better_later(every, i, length, times):
                break
            return length, times
        return 1, 1

    def _begins_better_later(self, every, i: int, length: int, times: int) -> bool:
        """Are there as many units from a later place on that look more like blocks: fewer values
        enter them, and they begin with a layer that has weights?"""
        here = self._beginning(every, i, length)
        for shift in range(1, length if here > (1, False) else 0):
            if i + shift + length * times > len(every):
                return False
            if self._beginning(every, i + shift, length) < here:
                units = self._units(every, i + shift, length, times)
                if self._alike(units) == times:
                    return True
        return False

    def _beginning(self, every, i: int, length: int) -> tuple[int, bool]:
        """(how many values enter a unit beside weights, is its first node without weights?)"""
        nodes = self._units(every, i, length, 1)[0]
        inside = {*nodes, *self._hidden}
        first = nodes[0]
        entering = {v for n in nodes for v in n.inputs if v.node not in inside}
        return len(entering), not any(v.node in self._hidden for v in first.inputs)

    @staticmethod
    def _units(every, i: int, length: int, times: int) -> list[list[Node]]:
        starts = range(i, i + length * times, length)
        return [[n for nodes in every[k : k + length] for n in nodes] for k in starts]

    def _alike(self, units: list[list[Node]]) -> int:
        """How many units from the first on are connected alike."""
        place = {n: (k, j) for k, nodes in enumerate(units) for j, n in enumerate(nodes)}
        reads = [[self._read(v, k, place) for n in nodes for v in n.inputs]
                 for k, nodes in enumerate(units)]  # fmt: skip
        if not any(kind == "before" for kind, *_ in reads[1]):
            return 1  # they are side by side
        for k in range(1, len(units)):
            if len(units[k]) != len(units[0]) or len(reads[k]) != len(reads[0]):
                return k
            for a, b, second in zip(reads[k], reads[0], reads[1]):
                # what goes from unit to unit comes, for the first, from outside
                if a != second or (b[0] == "inside" if a[0] == "before" else a != b):
                    return k
        return len(units)

    def _read(self, v: Value, k: int, place: Mapping[Node, tuple[int, int]]) -> tuple:
        """What unit k reads there."""
        if v.node in self._hidden:  # each unit has weights of its own
            return ("weight",)
        at, j = place.get(v.node, (-1, 0))
        if at >= 0 and at in (k, k - 1):
            return ("inside" if at == k else "before", j, v.index)
        return ("outside", v.node)
