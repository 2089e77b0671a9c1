"""Pointwise fusion: neighbours that compute element by element become one `_fused` operator.

Every node gets a level, nodes of one group the same, such that a value that leaves a group is read
at a lower level only. Such levels exist only where no path leaves a group and comes back to it, so
groups with levels make no cycle. A node looks at its own readers only, so the pass is linear in the
size of the graph.

    level 2     a ----- conv          from the outputs to the inputs, each node joins the groups of
                |         |           its readers where levels, shapes and limits allow it, and
    level 1     |         |           groups that it joins become one
                +---------+
    level 0     (add, relu)           `a` stays outside: conv, which reads it, is above
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from typing import Any, NamedTuple

from ...kernels import backend as backends
from ...kernels.backend import Fusion
from ...kernels.fused import (
    MAX_INPUTS,
    MAX_OUTPUTS,
    Group,
    Result,
    Step,
    alone,
    step_scalars,
)
from ...kernels.loops import Form, form
from ...kernels.record import FLOATS, lookup
from ...kernels.shapes import many_axes
from ...kernels.traits import Cast, Reduction, SameMemory
from ..effects import Effects
from ..graph import Node, Value, together, topological, typed_node, with_inputs
from .dead_code import RECOMPUTED
from .row_reductions import expanded, row_values

MAX_WEIGHT = 600  # of a group, in additions: bounds the time to compile it
MAX_NODES = 200
MAX_TRIALS = 3  # of spelling operators out


def fuse(outputs: Sequence[Value], device: Any) -> list[Value]:
    """The graph with its groups fused for a device (a Context); those that cannot be compiled here
    stay as they are."""
    outputs = list(outputs)
    fusion = backends.of(device).fusion
    if fusion is None or not fusion.can_compile(device):
        return outputs
    skip: set[Node] = set()
    for _ in range(MAX_TRIALS):
        spread, became = expanded(outputs, skip, fusion.row_dtypes)
        made, whole = _fused(spread, fusion, device)
        # what was spelled out and is not one group is better off as it was
        apart = {n for n, parts in became.items() if not whole(parts)}
        if not apart:
            return made
        skip |= apart
    return _fused(outputs, fusion, device)[0]


def _fused(outputs: Sequence[Value], fusion: Fusion, device):
    """(the graph with its groups fused, a function: are those of some nodes that are used in one
    group?)"""
    order = topological(outputs)
    effects = Effects(order)
    grouping = _Grouping(order, outputs, effects.pinned, fusion)
    found = [f for f in grouping.fusions() if f.pays]
    usable = fusion.prepare([(f.group, [v.dtype for v, _ in f.inputs]) for f in found], device)
    found = [f for f, ok in zip(found, usable) if ok]
    made, origin = _rebuild(outputs, found)
    kept = _keeps_order(effects, order, made, origin)
    group_of = {n: f for f in found for n in f.nodes} if kept else {}
    present = set(order)

    def whole(nodes: set[Node]) -> bool:
        return None not in (of := {group_of.get(n) for n in nodes if n in present}) and len(of) == 1

    return made if kept else list(outputs), whole


def one_loop(output: Value, device: Any) -> Value | None:
    """An operator between casts as one `_fused` operator whose kernel is there already; None: the
    graph is something else."""
    nodes = [n for n in topological([output]) if n.op is not None]
    own = [n for n in nodes if not n.operation.has(Cast)]
    found = _form(own[0]) if len(own) == 1 else None
    if found is None or backends.of(device).fusion is None:
        return None
    node, shape = own[0], own[0].types[0].shape
    n = len(node.inputs)
    inputs: list[Value] = []
    steps: list[Step] = []
    operands: list[int] = []

    def add(step: Node, at: tuple[int, ...]) -> int:
        dynamic = {p.name for p in step.operation.params if p.dynamic}
        attrs = tuple((k, v) for k, v in step.attrs.items() if k not in dynamic)
        steps.append(Step(step.operation.name, attrs, at, step.types[0].dtype))
        return n + len(steps) - 1

    for k, v in enumerate(node.inputs):
        is_cast = v.node.op is not None
        inputs.append(v.node.inputs[0] if is_cast else v)
        operands.append(add(v.node, (k,)) if is_cast else k)
    last = add(node, tuple(operands))
    if output.node is not node:
        if output.node.inputs[0].node is not node:
            return None
        last = add(output.node, (last,))
    if not inputs or prod(shape) == 0 or any(v.node.op is not None for v in inputs):
        return None
    shapes = found.shapes or [v.shape for v in node.inputs]
    seen = tuple((1,) * (len(shape) - len(s)) + tuple(s) for s in shapes)
    group = Group(shape, seen, tuple(steps), (Result(last, shape),))
    if alone(group, [v.dtype for v in inputs]) is None:
        return None
    scalars = step_scalars(node.attrs, found)
    attrs = {"group": group, "scalars": scalars, "num_args": n}
    return Value(typed_node(lookup("_fused"), attrs, inputs))


# ---- which nodes can be in a group ---------------------------------------------------------------


class _Space(NamedTuple):
    """The index space of a group's values. rigid: the shape matters, as something broadcasts along
    it; else only the number of elements does. axes: of the reductions, if any. rows: these may be
    read inside the group, which is a fused row reduction then. single: all dtypes suit those."""

    shape: tuple[int, ...]
    rigid: bool = False
    axes: tuple[int, ...] = ()
    rows: bool = False
    single: bool = False

    def joined(self, other: _Space) -> _Space | None:
        """The space of both; None where there is none."""
        axes, rows = self.axes or other.axes, self.rows or other.rows
        single = self.single and other.single
        if rows and not single:
            return None
        if self.shape == other.shape:
            if self.axes and other.axes and self.axes != other.axes:
                return None
            return _Space(self.shape, self.rigid or other.rigid, axes, rows, single)
        if prod(self.shape) != prod(other.shape):
            return None
        if not other.rigid:
            return self._replace(single=single)
        if not self.rigid:
            return other._replace(single=single)
        return self if not axes and _long(self.shape) == _long(other.shape) else None


def _long(shape) -> list[int]:
    return [n for n in shape if n != 1]


class _Member(NamedTuple):
    """A node as part of a group: an expression, else a view or a reduction."""

    space: _Space
    form: Form | None = None
    reduces: bool = False


def _member(node: Node, row: tuple[int, ...] | None, fusion: Fusion) -> _Member | None:
    """row: the shape of which the node has a number for each row, if it has."""
    out = node.types[0]
    reduces = _kind(node) in fusion.reductions
    single = all(
        t.dtype in fusion.row_dtypes for t in (*node.types, *(v.type for v in node.inputs))
    )
    if row is not None:
        space = _Space(row, True, (len(row) - 1,), True, single)
        plain = node.operation.has(SameMemory) or reduces
        return _Member(space, None if plain else _form(node), reduces)
    if len(node.types) != 1 or any(t.layout for t in (out, *(v.type for v in node.inputs))):
        return None
    size = prod(out.shape)
    if node.operation.has(SameMemory):
        return _Member(_Space(out.shape, single=single)) if size else None
    if reduces:
        x = node.inputs[0]
        axes = many_axes(
            node.operation.name, node.attrs["axis"], len(x.shape), node.attrs["exclude"]
        )
        usable = bool(axes and prod(x.shape)) and x.dtype in FLOATS and out.dtype == x.dtype
        space = _Space(x.shape, True, tuple(axes), False, single)
        return _Member(space, None, True) if usable else None
    found = _form(node)
    if found is None or size == 0:
        return None
    partial = {prod(v.shape) for v in node.inputs} - {1, size}
    rigid = bool(partial) or found.constants is not None
    return _Member(_Space(out.shape, rigid, single=single), found)


def _form(node: Node) -> Form | None:
    if node.operation.is_random(node.attrs) or node.operation.mutates:
        return None
    return form(node.operation, [v.type for v in node.inputs], node.types, node.attrs, mixed=True)


def _kind(node: Node) -> str:
    """The kind of a reduction; "": the node is none."""
    found = node.operation.trait(Reduction)
    return "" if found is None else found.kind


def _constant(v: Value) -> bool:
    """One number everywhere, made from nothing: a group makes it itself."""
    node = v.node
    return node.op is not None and not node.inputs and _form(node) is not None


def _is_alias(member: _Member) -> bool:
    """Are the node's values its input's, repeated or under another name?"""
    return member.form is not None and member.form.expression.text == "x"


# ---- groups --------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """Nodes of one level. floor: the lowest level among the placed nodes that it reads. externals:
    the values it reads; n_outputs: at most so many of its values are read outside."""

    level: int
    space: _Space
    externals: frozenset[Value]
    weight: int = 0
    n_nodes: int = 1
    n_outputs: int = 0
    floor: float = inf

    def joined(self, other: _Group, node: Node) -> _Group | None:
        """A group of both at this one's level, `node` in it; None where limits or shapes forbid."""
        space = self.space.joined(other.space)
        if space is None:
            return None
        g = _Group(
            self.level,
            space,
            frozenset(v for v in self.externals | other.externals if v.node is not node),
            self.weight + other.weight,
            self.n_nodes + other.n_nodes,
            self.n_outputs + other.n_outputs,
            min(self.floor, other.floor),
        )
        within = (
            len(g.externals) <= MAX_INPUTS
            and g.weight <= MAX_WEIGHT
            and g.n_nodes <= MAX_NODES
            and g.n_outputs < MAX_OUTPUTS  # one more may be the node's own
        )
        return g if within else None


class _Grouping:
    """Walks the graph from its outputs to its inputs. Groups are numbered; a number that joined
    another points to it."""

    def __init__(
        self, order: Sequence[Node], outputs: Sequence[Value], pinned: Any, fusion: Fusion
    ):
        self._order = order
        self._readers: dict[Node, dict[Node, None]] = {}
        for node in order:
            for v in node.inputs:
                self._readers.setdefault(v.node, {})[node] = None
        self._given_out = {v.node for v in outputs}
        self._members: dict[Node, _Member] = {}
        self._number: dict[Node, int] = {}
        self._into: list[int] = []
        self._groups: list[_Group] = []
        self._levels: dict[Node, int] = {}  # of nodes that are in no group
        rows = row_values(order, self._readers, pinned, fusion.row_dtypes)
        for node in reversed(order):
            if node.op is None or _constant(Value(node)):
                continue
            member = None if node in pinned else _member(node, rows.get(node), fusion)
            readers = self._readers.get(node, ())
            if member is None:
                self._levels[node] = max(map(self._level, readers), default=-1) + 1
            else:
                self._members[node] = member
                self._place(node, member)
            level = self._level(node)
            for number in dict.fromkeys(map(self._group_of, readers)):
                if number is not None and number != self._group_of(node):
                    g = self._groups[number]
                    self._groups[number] = g._replace(floor=min(g.floor, level))

    def fusions(self) -> Iterator[Any]:
        """Every group as a _Fusion, in no particular order."""
        nodes: dict[int, list[Node]] = {}
        for node in self._order:
            number = self._group_of(node)
            if number is not None:
                nodes.setdefault(number, []).append(node)
        for number, own in nodes.items():
            wanted = {
                n
                for n in own
                if n in self._given_out
                or any(self._group_of(r) != number for r in self._readers.get(n, ()))
            }
            yield _Fusion(self._groups[number].space, own, self._members, wanted)

    def _group_of(self, node: Node) -> int | None:
        number = self._number.get(node)
        if number is None:
            return None
        root = number
        while self._into[root] != root:
            root = self._into[root]
        while self._into[number] != root:
            self._into[number], number = root, self._into[number]
        return root

    def _level(self, node: Node) -> int:
        number = self._group_of(node)
        return self._levels[node] if number is None else self._groups[number].level

    def _place(self, node: Node, member: _Member) -> None:
        """Puts a node into the groups of its readers, or into a new one above them."""
        readers = self._readers.get(node, ())
        numbers = [n for n in dict.fromkeys(map(self._group_of, readers)) if n is not None]
        top = max(map(self._level, readers), default=-1)
        externals = frozenset(v for v in node.inputs if not _constant(v))
        weight = member.form.expression.weight if member.form else 0
        alone = _Group(top + 1, member.space, externals, weight)
        mine, joined = alone, set()
        if not member.reduces or member.space.rows:
            # with all readers of the top level, or above them
            highest = [n for n in numbers if self._groups[n].level == top]
            trial: _Group | None = alone._replace(level=top)
            if any(self._group_of(r) is None and self._levels[r] == top for r in readers):
                highest = []
            for n in highest:
                trial = trial and trial.joined(self._groups[n], node)
            if highest and trial is not None:
                mine, joined = trial, set(highest)
            for n in numbers:
                # a lower group may rise where nothing that it reads stands in the way
                if n not in joined and self._groups[n].level < mine.level < self._groups[n].floor:
                    trial = mine.joined(self._groups[n], node)
                    if trial is not None:
                        mine = trial
                        joined.add(n)
        outside = node in self._given_out or any(self._group_of(r) not in joined for r in readers)
        number = len(self._groups)
        self._groups.append(mine._replace(n_outputs=mine.n_outputs + outside))
        self._into.append(number)
        self._number[node] = number
        for n in joined:
            self._into[n] = number


# ---- from nodes to a group and back --------------------------------------------------------------


class _Fusion:
    """The group of some nodes (in the graph's order), and which of its values the graph reads.

    inputs: (value, its shape as it broadcasts to the space). made: what each node outside the group
    that reads one of its nodes gets: the number of an output, or None for a view, which stays.
    """

    def __init__(self, space: _Space, nodes: Sequence[Node], members: Any, wanted: set[Node]):
        self._space, self._members, self.nodes = space, members, nodes
        self.inputs: dict[tuple[Value, tuple[int, ...]], int] = {}
        self.scalars: list = []  # floats and Numbers
        self.made: dict[Node, int | None] = {}
        inside = set(nodes)
        # inputs get their numbers first: steps follow them
        for node in nodes:
            for v, seen in self._reads(node):
                if v.node not in inside and not _constant(v):
                    self.inputs.setdefault((v, seen), len(self.inputs))
        self._steps: list[Step] = []
        self._at: dict[Node, int] = {}
        results: dict[Result, int] = {}
        for node in nodes:
            member = members[node]
            numbers = [self._value(v, seen) for v, seen in self._reads(node)]
            if member.reduces and space.rows:
                self._at[node] = len(self.inputs) + len(self._steps)
                self._steps.append(Step(_kind(node), (), (numbers[0],), node.types[0].dtype))
            elif member.reduces:
                r = Result(numbers[0], node.types[0].shape, _kind(node))
                self.made[node] = results.setdefault(r, len(results))
            elif member.form is None or self._is_identity(node, member):
                self._at[node] = numbers[0]
            else:
                self._at[node] = self._step(node, member.form, numbers)
        wanted = self._with_bases(wanted)
        for node in nodes:
            member = members[node]
            if node not in wanted or member.reduces and not space.rows:
                continue
            if member.form is None and not member.reduces:
                self.made[node] = None
            else:
                r = Result(self._at[node], node.types[0].shape)
                self.made[node] = results.setdefault(r, len(results))
        self.group = Group(
            space.shape,
            tuple(seen for _, seen in self.inputs),
            tuple(self._steps),
            tuple(results),
            space.axes,
            space.rows,
        )

    @property
    def pays(self) -> bool:
        """Is there more than one operator, and anything to compute?"""
        n = sum(self._members[node].form is not None for node in self.nodes)
        n_reduced = sum(self._members[node].reduces for node in self.nodes)
        return bool(self.inputs) and (n + n_reduced > 1) and bool(self._steps or n_reduced > 1)

    def _is_identity(self, node: Node, member: _Member) -> bool:
        return _is_alias(member) and node.inputs[0].dtype == node.types[0].dtype

    def _with_bases(self, wanted: set[Node]) -> set[Node]:
        """Wanted nodes, and what wanted views are views of."""
        inside = set(self.nodes)
        wanted = set(wanted)
        for node in reversed(self.nodes):
            member = self._members[node]
            if node in wanted and member.form is None and not member.reduces:
                if node.inputs[0].node in inside:
                    wanted.add(node.inputs[0].node)
        return wanted

    def _reads(self, node: Node):
        """(value, its shape in the space) of a node's inputs; of a view or reduction the first one:
        another only lends its shape."""
        form = self._members[node].form
        if form is None:
            first = node.inputs[0]
            return [(first, self._seen(first.shape, first.shape))]
        return [
            (v, self._seen(form.shapes[i] if form.shapes else v.shape, node.types[0].shape))
            for i, v in enumerate(node.inputs)
        ]

    def _seen(self, shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `own`, as it broadcasts to the group's."""
        space = self._space.shape
        if self._space.rows and prod(own) != prod(space):  # of what is a number for each row
            return (1,) * len(space) if prod(shape) == 1 else (*space[:-1], 1)
        if prod(shape) == prod(own):
            return space
        if prod(shape) == 1:
            return (1,) * len(space)
        full = (1,) * (len(own) - len(shape)) + tuple(shape)
        if own == space:
            return full
        sizes = iter(n for n, m in zip(full, own) if m != 1)
        return tuple(1 if n == 1 else next(sizes) for n in space)

    def _value(self, v: Value, seen: tuple[int, ...]) -> int:
        found = self.inputs.get((v, seen), self._at.get(v.node))
        if found is None:  # a constant
            constant = _form(v.node)
            assert constant is not None
            found = self._at[v.node] = self._step(v.node, constant, [])
        return found

    def emit(self, new: dict[Value, Value]) -> None:
        """Adds the fused node to a new graph; new: the new value of each old one."""
        attrs = {
            "group": self.group,
            "scalars": tuple(self.scalars),
            "num_args": len(self.inputs),
        }
        name = "+".join(dict.fromkeys(n.operation.name for n in self.nodes))
        source = together([n.source for n in self.nodes])
        fused = typed_node(lookup("_fused"), attrs, [new[v] for v, _ in self.inputs], name, source)
        if all(n.extra and RECOMPUTED in n.extra for n in self.nodes):
            fused.extra = {RECOMPUTED: "1"}  # its place in the order is that of its nodes
        for node, at in self.made.items():
            if at is not None:
                new[Value(node)] = Value(fused, at)
        for node, at in self.made.items():
            if at is None:
                new[Value(node)] = Value(with_inputs(node, [new[v] for v in node.inputs]))

    def _step(self, node: Node, found: Form, numbers: list[int]) -> int:
        dynamic = {p.name for p in node.operation.params if p.dynamic}
        attrs = tuple((k, v) for k, v in node.attrs.items() if k not in dynamic)
        self._steps.append(Step(node.operation.name, attrs, tuple(numbers), node.types[0].dtype))
        self.scalars.extend(step_scalars(node.attrs, found))
        return len(self.inputs) + len(self._steps) - 1


def _rebuild(outputs: Sequence[Value], fusions) -> tuple[list[Value], dict[Node, Node]]:
    """(the graph with the nodes of each fusion replaced by one, which node each other one was)."""
    of = {node: f for f in fusions for node in f.nodes}
    new: dict[Value, Value] = {}
    origin: dict[Node, Node] = {}
    seen: set = set()
    for output in outputs:
        stack = [(of.get(output.node, output.node), False)]
        while stack:
            unit, ready = stack.pop()
            if ready:
                unit.emit(new) if isinstance(unit, _Fusion) else _keep(unit, new, origin)
            elif unit not in seen:
                seen.add(unit)
                stack.append((unit, True))
                below = [v for v, _ in unit.inputs] if isinstance(unit, _Fusion) else unit.inputs
                stack.extend((of.get(v.node, v.node), False) for v in reversed(below))
    return [new[v] for v in outputs], origin


def _keep(node: Node, new: dict[Value, Value], origin: dict[Node, Node]) -> None:
    kept = with_inputs(node, [new[v] for v in node.inputs])
    origin[kept] = node
    new.update((Value(node, i), Value(kept, i)) for i in range(len(node.types)))


def _keeps_order(effects: Effects, before, outputs: Sequence[Value], origin) -> bool:
    """Is each memory that the graph writes still made, read and written in the same order?"""
    if not effects.pinned:
        return True

    def touching(order) -> dict[Value, list[Node]]:
        found: dict[Value, list[Node]] = {}
        for node in order:
            if node in effects.pinned:
                for v in dict.fromkeys(map(effects.base, (*node.inputs, Value(node)))):
                    if v in effects.written:
                        found.setdefault(v, []).append(node)
        return found

    after = [origin[n] for n in topological(outputs) if n in origin]
    return touching(before) == touching(after)
