"""Recomputation: which forward nodes a backward graph computes again, and the graph that does."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from math import inf

from ...engine.error import InvalidValue
from ...kernels.record import lookup
from ...kernels.spec import ITEM_BYTES
from ...kernels.traits import Rematerializes, SameMemory
from .._graph import walk
from ..effects import Effects, mutated
from ..graph import Builder, Node, Value, rewrite, values_of, variable
from .dead_code import RECOMPUTED

# C functions that cost no more than a few additions
CHEAP_CALLS = {"abs", "fabs", "floor", "ceil", "trunc", "sqrt", "rsqrt", "fmin", "fmax", "div"}
MAX_STEPS, MAX_SOURCES = 6, 2  # of what is computed again because it costs nothing
MIRRORED = "__force_mirroring__"


def nbytes(v: Value) -> int:
    size = ITEM_BYTES[v.dtype]
    for n in v.shape:
        size *= n
    return size


def repeatable(order: Sequence[Node]) -> set[Node]:
    """The nodes that may run twice: they draw nothing and touch no memory that is written, or their
    record says how the result follows from the other outputs."""
    pinned = Effects(order).pinned
    return {
        n
        for n in order
        if n.op is not None
        and (n.op.has(Rematerializes) or n not in pinned and not n.op.is_random(n.attrs))
    }


def to_keep(needed: Iterable[Value], recomputed: set[Node]) -> list[Value]:
    """What must be kept so that the needed values are available when the nodes `recomputed` are
    computed again. Views are never kept, but what they look at."""
    kept: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(needed)[::-1]
    while stack:
        v = stack.pop()
        node = v.node
        if v in seen or node.op is None:
            continue
        seen.add(v)
        if node.op.has(SameMemory):
            stack.append(node.inputs[0])
        elif node not in recomputed:
            kept[v] = None
        elif not node.op.has(Rematerializes):
            stack.extend(reversed(node.inputs))
        elif v.index:  # statistics, a mask: what the result follows from
            kept[v] = None
        else:
            stack.extend(reversed(_reads(node)))
    return list(kept)


# ---- the choices ---------------------------------------------------------------------------------


def free_of_charge(
    order: Sequence[Node],
    needed: Sequence[Value],
    readers: dict[Value, list[Node]],
    read: set[Node],
) -> set[Node]:
    """Nodes that backward computes again without reading more memory: pointwise ones, not far from
    what is kept anyway, of which only pointwise nodes read the result.

    readers: the backward nodes that read a value. read: variables that backward reads.
    """
    may, wanted = repeatable(order), set(needed)
    # of a value: steps from kept values, and which those are
    reach: dict[Value, tuple[float, frozenset]] = {}
    recomputed: set[Node] = set()
    for node in order:
        values = [Value(node, i) for i in range(len(node.types))]
        if node.op is None:
            reach[values[0]] = (0, frozenset(values)) if node in read else (inf, frozenset())
            continue
        found = _reach(node, reach) if node in may and _is_cheap(node) else (inf, frozenset())
        for v in values:
            near = found[0] <= MAX_STEPS and len(found[1]) <= MAX_SOURCES
            if near and (v not in wanted or _read_by_cheap(v, readers)):
                reach[v] = found
                recomputed.add(node)
            else:
                reach[v] = (0, frozenset((v,))) if v in wanted else (inf, frozenset())
    return recomputed


def _reach(node: Node, reach) -> tuple[float, frozenset]:
    found = [reach[v] for v in node.inputs]
    steps = sum(n for n, _ in found) + (not node.operation.has(SameMemory))
    size = nbytes(Value(node))
    sources = frozenset().union(*(s for _, s in found))
    return steps, frozenset(v for v in sources if nbytes(v) >= size)


def _read_by_cheap(v: Value, readers: dict[Value, list[Node]]) -> bool:
    return all(
        _read_by_cheap(Value(r), readers) if r.operation.has(SameMemory) else _is_cheap(r)
        for r in readers.get(v, ())
    )


def _is_cheap(node: Node) -> bool:
    if node.operation.has(SameMemory):
        return True
    if node.operation.pointwise is None:
        return False
    calls = re.findall(r"([a-zA-Z_]\w*)\s*\(", node.operation.pointwise.text)
    return all(c in CHEAP_CALLS for c in calls)


def mirrored(order: Sequence[Node], everything: bool = False) -> set[Node]:
    """Nodes that MXNet's mirroring computes again: those with the attribute force_mirroring, or
    all but the costly ones."""
    if everything:
        costly = {
            lookup(n) for n in ("Convolution", "FullyConnected", "Concat", "SoftmaxOutput", "RNN")
        }
        found = {n for n in order if n.op is not None and n.op not in costly and not n.op.random}
    else:
        found = set()
    asked = {n: n.extra[MIRRORED] for n in order if n.extra and MIRRORED in n.extra}
    found.update(n for n, text in asked.items() if text.lower() in ("true", "1"))
    return found & repeatable(order) if found else found


def between(order: Sequence[Node], outputs: Sequence[Value], bounds: set[Value]) -> set[Node]:
    """All nodes that may run twice, but those that make the bounds or the outputs."""
    ends = {v.node for v in [*bounds, *outputs]}
    return {n for n in repeatable(order) if n not in ends}


def segments(order: Sequence[Node], outputs: Sequence[Value], needed: Sequence[Value]) -> set[Node]:
    """The nodes inside the segments of a cut of the graph's order into pieces, with what crosses
    the cuts kept: such that what is kept and the largest piece take least together."""
    steps = [n for n in order if n.op is not None]
    last: dict[Value, int] = {}
    for i, n in enumerate(steps):
        last.update((v, i) for v in n.inputs)
    last.update((v, len(steps)) for v in outputs)
    sizes = [0] * len(steps)  # of the needed values that each step makes
    place = {n: i for i, n in enumerate(steps)}
    for v in needed:
        sizes[place[v.node]] += nbytes(v)
    crossing = _crossing(place, last)
    best, found = sum(sizes), None
    for pieces in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
        cuts = _cuts(sizes, crossing, sum(sizes) / pieces)
        edges = [0, *(c + 1 for c in cuts), len(steps)]
        peak = sum(crossing[c] for c in cuts)
        peak += max(sum(sizes[a:b]) for a, b in zip(edges, edges[1:]))
        if peak < best:
            best, found = peak, cuts
    if found is None:
        return set()
    bounds = {
        v
        for v, end in last.items()
        if v.node.op is not None and any(place[v.node] <= c < end for c in found)
    }
    return between(order, (), bounds)


def within(
    order: Sequence[Node], outputs: Sequence[Value], needed: Sequence[Value], fraction: float
) -> set[Node]:
    """Of the nodes that `segments` finds, the first ones: as few as bring what is kept below a
    fraction of what is needed."""
    everything = segments(order, outputs, needed)
    budget = fraction * sum(map(nbytes, needed))

    def first(n: int) -> set[Node]:
        return everything.intersection(order[:n])

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if sum(map(nbytes, to_keep(needed, first(middle)))) <= budget:
            high = middle
        else:
            low = middle + 1
    return first(high)


def _crossing(place: dict[Node, int], last: dict[Value, int]) -> list[int]:
    """Bytes of the values that are made up to a step and read after it, for each step."""
    change = [0] * (len(place) + 1)
    for v, end in last.items():
        if v.node.op is not None and not v.node.op.has(SameMemory):
            change[place[v.node]] += nbytes(v)
            change[end] -= nbytes(v)
    total, found = 0, []
    for c in change[:-1]:
        total += c
        found.append(total)
    return found


def _cuts(sizes: Sequence[int], crossing: Sequence[int], limit: float) -> list[int]:
    """Steps after which to cut, so that no piece needs much more than `limit` bytes: at the
    cheapest place in the second half of each piece."""
    cuts: list[int] = []
    start, total = 0, 0
    for i, size in enumerate(sizes):
        total += size
        if total > limit and i > start:
            middle = start + (i - start) // 2
            cut = min(range(middle, i), key=lambda k: (crossing[k], -k))
            cuts.append(cut)
            start, total = cut + 1, sum(sizes[cut + 1 : i + 1])
    return cuts


# ---- the graph -----------------------------------------------------------------------------------


def replayed(
    outputs: Sequence[Value], known: Container[Value], forward: set[Node]
) -> tuple[list[Value], dict[Value, Value]]:
    """A backward graph cut at the values it reads among the known ones: (outputs, a variable for
    each of those). What remains of the forward nodes is computed again: it is marked, and draws and
    writes nothing."""
    rules = {
        n: found.rule
        for n in forward
        if n.op is not None and (found := n.op.trait(Rematerializes)) is not None
    }
    reads = {n: tuple(_reads(n)) for n in rules}
    order = walk(list(outputs), known, reads)
    for node in order:
        if node.op is None:
            raise InvalidValue(f"variable {node.name!r} is not among the program's inputs")
    read = [v for n in order for v in reads.get(n, n.inputs)]
    given = {
        v: v if v.node.op is None else variable("given", v.type)
        for v in dict.fromkeys([*outputs, *read])
        if v in known
    }
    F = Builder()

    def replace(node: Node, inputs: Sequence[Value]):
        if node not in forward:
            return None
        rule = rules.get(node)
        if rule is None:
            return values_of(_mark(node, inputs))
        unread = mutated(node)
        xs = [None if i in unread else x for i, x in enumerate(inputs)]
        ys = [given.get(y) for y in values_of(node)]
        return [_marked(rule(F, xs, ys, **node.attrs), xs + ys), *values_of(node)[1:]]

    ours = None if forward.isdisjoint(order) else replace
    return rewrite(outputs, ours, order=order, values=given), given


def _reads(node: Node) -> list[Value]:
    """What a node with a rule `rematerialize` is computed from again."""
    unread = mutated(node)
    inputs = [x for i, x in enumerate(node.inputs) if i not in unread]
    return [*inputs, *(Value(node, i) for i in range(1, len(node.types)))]


def _mark(node: Node, inputs: Sequence[Value]) -> Node:
    extra = {**(node.extra or {}), RECOMPUTED: "1"}
    return Node(node.op, node.attrs, inputs, node.name, node.types, extra, node.source)


def _marked(value: Value, given: Sequence[Value | None]) -> Value:
    """A value with all nodes above the given ones marked."""
    start = {v.node: [Value(v.node, i) for i in range(len(v.node.types))] for v in given if v}

    def replace(node: Node, inputs: list[Value]):
        made = _mark(node, inputs)
        return [Value(made, i) for i in range(len(made.types))]

    return rewrite([value], replace, start)[0]
