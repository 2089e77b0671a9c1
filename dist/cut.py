"""Where to cut a graph into stages: an order of its operators, what crosses a cut, and the cuts for
which the slowest stage is fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..engine.error import InvalidValue, compose
from ..engine.log import size
from ..graph.effects import mutated
from ..graph.graph import Node, Value, topological
from ..kernels.spec import ITEM_BYTES

MAX_BLOCKS = 256  # what cuts may separate: in longer graphs, blocks of several operators


def bytes_of(v: Value) -> int:
    """The bytes of a typed value."""
    return math.prod(v.shape) * ITEM_BYTES[v.dtype]


def in_order(outputs: Sequence[Value], weights: Collection[Value]) -> list[Node]:
    """The operators in an order in which they may run. Those that would read a weight first wait
    until nothing else can run, so that those that share a weight are neighbours: all steps of an
    unrolled layer come before those of the next one. Of weights, the next is the one whose readers
    depend on the fewest others that were not read."""
    nodes = [n for n in topological(outputs) if n.op is not None]
    after, missing = _users(nodes)
    needs = _needs(nodes, weights)
    closed = (1 << len(weights)) - 1  # what no operator has read; a bit for each weight
    bit = {v: 1 << i for i, v in enumerate(weights)}
    own = [sum(bit[v] for v in set(n.inputs) if v in bit) for n in nodes]
    ready: list[int] = []
    waiting: list[int] = []  # they can run, and would read a weight first
    order: list[Node] = []

    def add(k: int) -> None:
        if own[k] & closed:
            waiting.append(k)
        else:
            heappush(ready, k)

    for k, n in enumerate(missing):
        if n == 0:
            add(k)
    while ready or waiting:
        if not ready:
            first = min(waiting, key=lambda k: ((needs[k] & closed).bit_count(), k))
            closed &= ~own[first]
            again, waiting = waiting, []
            for k in again:
                add(k)
            continue
        k = heappop(ready)
        order.append(nodes[k])
        for user in after[k]:
            missing[user] -= 1
            if missing[user] == 0:
                add(user)
    return order


def _users(nodes: Sequence[Node]) -> tuple[list[list[int]], list[int]]:
    """(for each node those that run after it, how many it runs after), by their numbers."""
    number = {n: k for k, n in enumerate(nodes)}
    written = {n.inputs[i] for n in nodes for i in mutated(n)}
    last_user: dict[Value, int] = {}  # of memory that is written: its users keep their order
    after: list[list[int]] = [[] for _ in nodes]
    missing = []
    for k, node in enumerate(nodes):
        before = {number[v.node] for v in node.inputs if v.node in number}
        for v in written.intersection(node.inputs):
            before |= {last_user.get(v, k)} - {k}
            last_user[v] = k
        missing.append(len(before))
        for b in before:
            after[b].append(k)
    return after, missing


def _needs(nodes: Sequence[Node], weights: Collection[Value]) -> list[int]:
    """For each node the weights that the readers of its own weights depend on, a bit for each."""
    bit = {v: 1 << i for i, v in enumerate(weights)}
    below: dict[Node, int] = {}
    of_readers = dict.fromkeys(bit, 0)
    for node in nodes:
        below[node] = 0
        for v in node.inputs:
            below[node] |= bit.get(v, below.get(v.node, 0))
        for v in node.inputs:
            if v in bit:
                of_readers[v] |= below[node]
    found = []
    for node in nodes:
        found.append(0)
        for v in node.inputs:
            found[-1] |= of_readers.get(v, 0)
    return found


class Life(NamedTuple):
    """A value that several operators read, by their numbers in an order: where it is made, and who
    reads it."""

    made: int
    readers: list[int]


def lives(
    order: Sequence[Node], outputs: Sequence[Value], data: Sequence[Value], near: Collection[Value]
) -> dict[Value, Life]:
    """The values that cuts may cross. Data is where the first operator is, a weight where it is
    read first, the outputs are read at the end. near: data that is there wherever it is read."""
    found: dict[Value, Life] = {}
    number = {n: k for k, n in enumerate(order)}
    for k, node in enumerate(order):
        for v in dict.fromkeys(node.inputs):
            if v not in near:
                made = 0 if v in data else number.get(v.node, k)
                found.setdefault(v, Life(made, [])).readers.append(k)
    for v in dict.fromkeys(outputs):
        made = number.get(v.node, 0)
        found.setdefault(v, Life(made, [])).readers.append(len(order) - 1)
    return {v: life for v, life in found.items() if life.readers[-1] > life.made}


class Costs(NamedTuple):
    """What a stage costs. seconds: of each operator, forward and backward. transfer: the seconds
    that a value needs to cross a cut, its gradient included. memory: the bytes that a stage may
    have for weights, gradients and results of operators; None: any number."""

    seconds: Mapping[Node, float]
    transfer: Callable[[Value], float]
    memory: int | None = None


class Choice(NamedTuple):
    """Cuts: the seconds of the slowest stage, those of all messages, the stage of each operator."""

    slowest: float
    messages: float
    stages: list[int]


def cut(
    order: Sequence[Node],
    lived: Mapping[Value, Life],
    weights: Collection[Value],
    parts: int,
    costs: Costs,
) -> Choice:
    """The cuts of an order for which the slowest stage takes the least time, its messages included;
    of equal ones, those that are crossed by the least. Raises InvalidValue."""
    n = len(order)
    places = _places(n, lived, {node.inputs[i] for node in order for i in mutated(node)})
    if len(places) < parts - 1:
        raise InvalidValue(
            f"partition: {parts} stages need {parts - 1} cuts, but the graph has {len(places)}"
            f" places for them between its {n} operators"
        )
    if len(places) >= MAX_BLOCKS:
        places = _fewer(places, n, lived, costs)
    ends = np.array([0, *places, n])
    total, crossing, memory = _stages(ends, order, lived, weights, costs)
    return _best(ends, total, crossing, memory, parts, costs.memory)


def _places(n: int, lived: Mapping[Value, Life], written: Collection[Value]) -> list[int]:
    """Before which operators the order may be cut. All readers of memory that is written stay
    together."""
    allowed = np.ones(n + 1, bool)
    allowed[[0, n]] = False
    for v in written:
        if v in lived:
            allowed[lived[v].made + 1 : lived[v].readers[-1] + 1] = False
    return [int(k) for k in np.flatnonzero(allowed)]


def _fewer(places: list[int], n: int, lived: Mapping[Value, Life], costs: Costs) -> list[int]:
    """Of each of MAX_BLOCKS - 1 ranges the place that is crossed by the least."""
    change = np.zeros(n + 2)
    for v, life in lived.items():
        seconds = costs.transfer(v)
        change[life.made + 1] += seconds
        change[life.readers[-1] + 1] -= seconds
    crossed = np.cumsum(change)
    ranges = np.array_split(np.array(places), MAX_BLOCKS - 1)
    return [int(r[np.argmin(crossed[r])]) for r in ranges]


def _stages(
    ends: np.ndarray,
    order: Sequence[Node],
    lived: Mapping[Value, Life],
    weights: Collection[Value],
    costs: Costs,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a stage from ends[i] to ends[j], for all i, j: its seconds, those of them for messages,
    and its bytes as (2, i, j): weights with gradients, results."""
    m = len(ends)
    block = lambda k: int(np.searchsorted(ends, k, side="right")) - 1
    received, sent = np.zeros((m, m + 1)), np.zeros((m, m))
    for v, life in lived.items():
        seconds, made = costs.transfer(v), block(life.made)
        readers = np.unique([block(k) for k in life.readers])
        last = readers[-1]
        sent[made, made + 1 : last + 1] += seconds
        begins = np.arange(made + 1, last + 1)
        first = readers[np.searchsorted(readers, begins)]  # that a stage from there has
        np.add.at(received, (begins, first + 1), seconds)
    received = np.cumsum(received, axis=1)[:, :m]
    sent = np.cumsum(sent[::-1], axis=0)[::-1]
    seen: set[Value] = set()
    compute, held, made_bytes = np.zeros(m), np.zeros(m), np.zeros(m)
    for k, node in enumerate(order):
        b = block(k) + 1
        compute[b] += costs.seconds[node]
        made_bytes[b] += sum(bytes_of(Value(node, i)) for i in range(len(node.types)))
        own = [v for v in dict.fromkeys(node.inputs) if v in weights and v not in seen]
        seen.update(own)
        held[b] += 2 * sum(map(bytes_of, own))
    between = lambda a: np.cumsum(a)[None, :] - np.cumsum(a)[:, None]
    crossing = received + sent
    return between(compute) + crossing, crossing, np.stack([between(held), between(made_bytes)])


def _best(
    ends: np.ndarray,
    total: np.ndarray,
    crossing: np.ndarray,
    memory: np.ndarray,
    parts: int,
    limit: int | None,
) -> Choice:
    """By dynamic programming over the first stages."""
    m = len(ends)
    slowest, messages = np.full(m, np.inf), np.full(m, np.inf)
    slowest[0] = messages[0] = 0.0
    needed = np.full(m, np.inf)  # the least bytes of the largest stage
    needed[0] = 0.0
    steps = []
    for stage in range(parts):
        # 1F1B keeps the results of as many micro-batches as there are stages to the end
        held = memory[0] + (parts - stage) * memory[1]
        fits = np.triu(np.ones((m, m), bool), 1)
        needed = np.where(fits, np.maximum(needed[:, None], held), np.inf).min(axis=0)
        if limit is not None:
            fits &= held <= limit
        found = np.where(fits, np.maximum(slowest[:, None], total), np.inf)
        least = found.min(axis=0)
        tied = found <= least * (1 + 1e-9)
        sums = np.where(tied, messages[:, None] + crossing, np.inf)
        steps.append(sums.argmin(axis=0))
        slowest, messages = least, sums.min(axis=0)
    if not np.isfinite(slowest[-1]):
        assert limit is not None
        rule = f"partition: no cuts into {parts} stages keep each within memory={size(limit)}"
        fix = f"memory={math.ceil(needed[-1])}, more parts, or smaller micro-batches"
        raise InvalidValue(compose(rule, fix=fix))
    bounds = [m - 1]
    for step in reversed(steps):
        bounds.append(int(step[bounds[-1]]))
    bounds.reverse()
    sizes = np.diff(ends[bounds])
    stages = [stage for stage, n in enumerate(sizes) for _ in range(n)]
    return Choice(float(slowest[-1]), float(messages[-1]), stages)
