"""Stages: the parts of a graph that run on different devices or ranks, and what travels between
them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..engine import Context
from ..engine.error import InvalidValue, compose
from ..graph.effects import mutated
from ..graph.graph import Node, Value, rewrite, topological, variable
from ..graph.names import output_name
from ..graph.placement import GROUP
from ..kernels.spec import ITEM_BYTES, NUMPY_DTYPES
from ..ndarray import NDArray
from ..ndarray.cached import CachedGraph
from ..ndarray.creation import empty
from .cut import bytes_of


class Crossing(NamedTuple):
    """A value that leaves its stage: who makes it, who reads it. number: of all that do.
    differentiable: a gradient comes back from each reader."""

    number: int
    name: str
    source: int
    targets: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    differentiable: bool

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def empty(self, device: Context | None) -> NDArray:
        """An array to receive it, or a gradient of it."""
        return empty(self.shape, device, self.dtype)


class Network(NamedTuple):
    """A traced block. data: its inputs. labels: numbers of inputs that every stage is given; the
    others stage 0 is given. parameters: by their values. structure: of the outputs. recompute: see
    HybridBlock.hybridize."""

    outputs: list[Value]
    data: list[Value]
    labels: frozenset[int]
    parameters: dict[Value, Any]
    structure: Any
    recompute: bool | float | str

    @property
    def operators(self) -> list[Node]:
        return [n for n in topological(self.outputs) if n.op is not None]

    @property
    def near(self) -> set[Value]:
        """What is there wherever it is read."""
        return {self.data[i] for i in self.labels}


class StageGraph:
    """One stage of a graph, for inputs of given shapes.

    reads, sends: what it gets of earlier stages, and what it makes for later ones; between two
    stages in the same order. inputs: numbers of the network's inputs that it reads. parameters:
    those that it has.
    """

    def __init__(
        self,
        network: Network,
        inputs: list[int],
        parameters: list[Value],
        reads: dict[Value, Crossing],
        sends: dict[Value, Crossing],
        is_last: bool,
    ):
        self.inputs, self.parameters = inputs, [network.parameters[v] for v in parameters]
        self.reads, self.sends = list(reads.values()), list(sends.values())
        received = {v: variable(f"received{i}", v.type) for i, v in enumerate(reads)}
        results = network.outputs if is_last else []
        outputs = rewrite([*sends, *results], values=received)
        given = [*[network.data[i] for i in inputs], *received.values(), *parameters]
        self.weight_bytes = sum(map(bytes_of, parameters))
        n_data = len(inputs) + len(received)
        self._graph = CachedGraph(outputs, given, "stage", n_data, network.recompute)

    def __call__(
        self, data: Sequence[NDArray], received: Sequence[NDArray], device: Context
    ) -> tuple[list[NDArray], list[NDArray]]:
        """(what it sends, the outputs of the network if it is the last). data: all inputs of the
        network, of which it takes its own."""
        near = [a.as_in_context(device) for a in (*[data[i] for i in self.inputs], *received)]
        made = self._graph([*near, *[p._data_on(device) for p in self.parameters]])
        return made[: len(self.sends)], made[len(self.sends) :]


def run_stages(
    stages: Sequence[StageGraph], data: Sequence[NDArray], devices: Sequence[Context]
) -> list[NDArray]:
    """The outputs of the network, each stage on its device."""
    known: dict[int, NDArray] = {}
    outputs: list[NDArray] = []
    for stage, device in zip(stages, devices, strict=True):
        sent, outputs = stage(data, [known[c.number] for c in stage.reads], device)
        known.update((c.number, a) for c, a in zip(stage.sends, sent))
    return outputs


def by_groups(network: Network, groups: Mapping[str, int]) -> dict[Node, int]:
    """The stage of each operator from its attribute ctx_group; without one, it is where its inputs
    come from."""
    found: dict[Node, int] = {}
    for node in network.operators:
        group = (node.extra or {}).get(GROUP, "")
        if group in groups:
            found[node] = groups[group]
        elif group:
            rule = f"partition: {node.name} is of ctx_group {group!r}, which has no stage"
            raise InvalidValue(compose(rule, fix=f"groups={{..., {group!r}: number}}"))
        else:
            found[node] = max([found[v.node] for v in node.inputs if v.node in found] or [0])
    empty = set(range(max(groups.values()) + 1)) - set(found.values())
    if empty:
        rule = f"partition: groups={dict(groups)}: stage {min(empty)} has no operators"
        raise InvalidValue(compose(rule, fix="number the stages from 0 on, without gaps"))
    return found


def split(network: Network, stage_of: Mapping[Node, int]) -> list[StageGraph]:
    """The stages of a graph. Raises InvalidValue where a value would go back to an earlier stage,
    or memory that is written would be in two."""
    n = max(stage_of.values()) + 1
    home = _homes(network, stage_of)
    gradients = _with_gradient(network)
    readers: dict[Value, set[int]] = {v: set() for v in home}
    for node, stage in stage_of.items():
        for v in node.inputs:
            if v in home:
                readers[v].add(stage)
    for v in network.outputs:
        if v in home:
            readers[v].add(n - 1)
    _check(home, readers, stage_of)
    crossings: dict[Value, Crossing] = {}
    for v, stages in readers.items():
        targets = tuple(sorted(s for s in stages if s > home[v]))
        if targets:
            like = v.shape, v.dtype, v in gradients
            crossings[v] = Crossing(len(crossings), output_name(v), home[v], targets, *like)
    users = {v: {home[v]} if v in home else set() for v in network.data}
    for node, stage in stage_of.items():
        for v in network.near.intersection(node.inputs):
            users[v].add(stage)
    return [
        StageGraph(
            network,
            [i for i, v in enumerate(network.data) if s in users[v]],
            [v for v in network.parameters if home[v] == s],
            {v: c for v, c in crossings.items() if s in c.targets},
            {v: c for v, c in crossings.items() if c.source == s},
            s == n - 1,
        )
        for s in range(n)
    ]


def _homes(network: Network, stage_of: Mapping[Node, int]) -> dict[Value, int]:
    """The stage of every value but labels: results are where their operator is, data is in stage 0,
    a weight where it is read first."""
    home = {v: 0 for i, v in enumerate(network.data) if i not in network.labels}
    for node in network.operators:
        for i in range(len(node.types)):
            home[Value(node, i)] = stage_of[node]
        for v in node.inputs:
            if v in network.parameters:
                home[v] = min(stage_of[node], home.get(v, stage_of[node]))
    for v in network.parameters:
        home.setdefault(v, 0)  # an output of the network, which no operator reads
    return home


def _check(
    home: Mapping[Value, int],
    readers: Mapping[Value, Collection[int]],
    stage_of: Mapping[Node, int],
) -> None:
    written = {n.inputs[i] for n in stage_of for i in mutated(n)}
    for v, stages in readers.items():
        name = output_name(v)
        if stages and min(stages) < home[v]:
            rule = f"partition: {name} is made in stage {home[v]}, but stage {min(stages)} reads it"
            fix = "operators of a later stage may read what earlier ones make"
            raise InvalidValue(compose(rule, fix=fix))
        if v in written and stages != {home[v]}:
            rule = f"partition: {name} is written, so it must be in one stage, but {sorted(stages)}"
            raise InvalidValue(compose(f"{rule} read it", fix="one group for its operators"))


def _with_gradient(network: Network) -> set[Value]:
    """The values through which gradients of parameters may flow."""
    floats = lambda v: NUMPY_DTYPES[v.dtype].kind not in "iub"
    found = {v for v, p in network.parameters.items() if p.grad_req != "null"}
    for node in network.operators:
        if any(v in found for v in node.inputs):
            found.update(v for i in range(len(node.types)) if floats(v := Value(node, i)))
    return found
