"""Partitions: a network cut into stages by what its operators cost, or by the groups that its user
gave. The stages run on devices of one process, or on ranks (dist/pipeline.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ..engine import Context, hooks
from ..engine.error import InvalidType, InvalidValue, MXNetError, compose, did_you_mean
from ..engine.log import size
from ..engine.recent import Recent
from ..graph.graph import Node, Value
from ..graph.placement import without_copies
from ..ndarray import NDArray
from ..ndarray.creation import zeros
from ..ndarray.nesting import unflatten
from ..symbol import Symbol, var
from ..symbol.draw import Drawing, draw
from . import measure
from .cut import Costs, bytes_of, cut, in_order, lives
from .placed import Placed
from .stage import Network, StageGraph, by_groups, split
from .world import exchange, init

MAX_SHAPES = 256  # of inputs, whose stages are kept: those used last
COLORS = ("#e3f2fd", "#fff3e0", "#e8f5e9", "#fce4ec", "#ede7f6", "#f9fbe7", "#e0f7fa", "#efebe9")


class Stage:
    """What a partition put into one stage.

    number: from 0 on. operators: their names, in the order in which they may run. seconds: of them,
    forward and backward; 0 where nothing was measured. parameters: by name. weight_bytes: of the
    parameters. result_bytes: of what the operators make. received_bytes, sent_bytes: of what
    crosses, for one batch, without gradients.
    """

    def __init__(self, number: int, nodes: Sequence[Node], seconds: float, graph: StageGraph):
        self.number, self.operators, self.seconds = number, [n.name for n in nodes], seconds
        self.parameters = {p.name: p for p in graph.parameters}
        self.weight_bytes = graph.weight_bytes
        self.result_bytes = sum(bytes_of(Value(n, i)) for n in nodes for i in range(len(n.types)))
        self.received_bytes = sum(c.nbytes for c in graph.reads)
        self.sent_bytes = sum(c.nbytes * len(c.targets) for c in graph.sends)

    def __repr__(self):
        return f"<Stage {self.number}: {len(self.operators)} operators>"

    def collect_params(self) -> dict[str, Any]:
        """The parameters of this stage, for a Trainer."""
        return dict(self.parameters)


class Partition:
    """A network cut into stages; made by `partition`. It prints as a table.

    net: the block; of a Symbol, a SymbolBlock. parts: how many stages. link: (seconds for each
    message, bytes per second).
    """

    def __init__(
        self,
        net: Any,
        labels: frozenset[int],
        parts: int,
        groups: Mapping[str, int] | None,
        costs: Mapping[str, float] | None,
        link: tuple[float, float] | None,
        memory: int | None,
    ):
        self.net, self.parts, self.link = net, parts, link
        self._labels, self._groups, self._costs, self._memory = labels, groups, costs, memory
        self._names: list[str] = []  # of the operators, and their stages
        self._numbers: list[int] = []
        self._stages: list[Stage] = []
        self._network: Network | None = None  # for the data that decided
        self._graphs = Recent(MAX_SHAPES)  # key -> (network, its stages)

    @property
    def stages(self) -> list[Stage]:
        """What each stage has. Raises MXNetError before there was data."""
        if not self._stages:
            raise MXNetError(
                compose("partition: there are no stages yet", fix="give data=x, or run one step")
            )
        return self._stages

    # ---- the choice ------------------------------------------------------------------------------

    def choose(self, data: Sequence[NDArray]) -> None:
        """Decides, for inputs of these shapes. In a job of several ranks all call it, and get what
        rank 0 chose."""
        network = self._trace(data)
        nodes = network.operators
        seconds = dict.fromkeys(nodes, 0.0)
        if self._costs is not None:
            seconds = _given(nodes, self._costs)
        elif self._groups is None:
            seconds = measure.seconds_of(nodes, data[0].context)
        if self._groups is not None:
            stage_of = by_groups(network, self._groups)
        else:
            found = exchange((self.link or measure.link(), [seconds[n] for n in nodes]))
            self.link, seconds = found[0], dict(zip(nodes, found[1]))
            stage_of = self._cheapest(network, seconds, *found[0])
            stage_of = dict(zip(nodes, exchange([stage_of[n] for n in nodes])))
        self._names = [n.operation.name for n in nodes]
        self._numbers = [stage_of[n] for n in nodes]
        graphs = split(network, stage_of)
        self._network, self._graphs[self._key(data)] = network, (network, graphs)
        of = lambda s: [n for n in nodes if stage_of[n] == s]
        self._stages = [
            Stage(s, of(s), sum(seconds[n] for n in of(s)), g) for s, g in enumerate(graphs)
        ]

    def _cheapest(
        self, network: Network, seconds: dict[Node, float], latency: float, bandwidth: float
    ) -> dict[Node, int]:
        transfer = lambda v: 2 * (latency + bytes_of(v) / bandwidth)  # and its gradient back
        costs, weights = Costs(seconds, transfer, self._memory), network.parameters
        order = in_order(network.outputs, weights)
        lived = lives(order, network.outputs, network.data, network.near)
        return dict(zip(order, cut(order, lived, weights, self.parts, costs).stages))

    # ---- graphs ----------------------------------------------------------------------------------

    def graphs(self, data: Sequence[NDArray]) -> list[StageGraph]:
        """The stages for inputs of these shapes. Raises InvalidValue where the network has other
        operators for them than for those that decided."""
        if not self._stages:
            self.choose(data)
        key = self._key(data)
        found = self._graphs[key]
        if found is None:
            network = self._trace(data)
            if [n.operation.name for n in network.operators] != self._names:
                rule = "partition: the network has other operators for inputs of shapes"
                shapes = ", ".join(str(a.shape) for a in data)
                fix = "another partition for them, mx.dist.partition(net, data=...)"
                raise InvalidValue(compose(f"{rule} {shapes} than for those that decided", fix=fix))
            stage_of = dict(zip(network.operators, self._numbers))
            found = self._graphs[key] = network, split(network, stage_of)
        return found[1]

    def _key(self, data: Sequence[NDArray]) -> tuple:
        """What stages depend on: types of inputs, and which parameters are trained."""
        trained = [p.grad_req != "null" for p in self.net.collect_params().values()]
        return *[a._spec.type for a in data], *trained

    def parameters(self, stage: int) -> dict[str, Any]:
        """Those of a stage, by name."""
        return self.stages[stage].parameters

    def result(self, data: Sequence[NDArray], outputs: Sequence[NDArray]) -> Any:
        """The outputs of the last stage, nested as the network returns them."""
        structure = self._graphs[self._key(data)][0].structure
        return outputs[0] if structure == 0 else unflatten(structure, outputs)

    def _trace(self, data: Sequence[NDArray]) -> Network:
        trace = hooks.get("trace of a block")(self.net, tuple(data), True)
        if trace.sharded:
            rule = "partition: parameters that are split over ranks (shard) cannot be in stages"
            raise InvalidValue(compose(rule, fix="mx.dist.pipeline([...]) of hybridized blocks"))
        trace.finish_parameters()
        return Network(
            without_copies(trace.symbol._outputs),
            trace.data_values,
            self._labels,
            dict(zip(trace.param_values, trace.params)),
            trace.structure,
            self.net._recompute == "blocks" or self.net._recompute,
        )

    # ---- what it says ----------------------------------------------------------------------------

    def __repr__(self):
        return f"<Partition of {self.net.name or 'a Symbol'} into {self.parts} stages>"

    def __str__(self):
        if not self._stages:
            return f"{self!r}, which the first batch decides"
        heads = ("stage", "ms", "weights", "results", "receives", "sends", "operators")
        rows = [heads, *map(_row, self._stages)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads) - 1)]
        lines = [
            "  ".join([*(cell.rjust(w) for cell, w in zip(row, widths)), row[-1]]) for row in rows
        ]
        return "\n".join(lines)

    def draw(self, path: str | PathLike[str] | None = None) -> Drawing:
        """The graph with a box for each stage, and the edges between stages in red.

        path: where to write it, with the ending svg or png. Raises MXNetError without a renderer.
        """
        stages, network = self.stages, self._network
        assert network is not None
        boxes = []
        for s in stages:
            title = f"stage {s.number}: {s.seconds * 1e3:.2f} ms, weights {size(s.weight_bytes)}"
            boxes.append((title, COLORS[s.number % len(COLORS)], set[Node]()))
        for node, number in zip(network.operators, self._numbers):
            boxes[number][2].add(node)
        shapes = {v.node.name: v.shape for v in [*network.data, *network.parameters]}
        picture = draw(network.outputs, shapes, "partition", boxes=boxes)
        if path is not None:
            file = Path(fspath(path))
            file.write_bytes(picture.pipe(file.suffix.lstrip(".") or "svg"))
        return picture

    # ---- devices of one process ------------------------------------------------------------------

    def on(self, devices: Sequence[Context]) -> Placed:
        """The network with its stages on devices of this process: called like it. Moves the
        parameters there."""
        return Placed(self, devices)


def partition(
    net: Any,
    parts: int | None = None,
    data: Any = None,
    *,
    groups: Mapping[str, int] | None = None,
    costs: Mapping[str, float] | None = None,
    link: tuple[float, float] | None = None,
    memory: int | None = None,
) -> Partition:
    """Cuts a network into stages, for `Partition.on` (devices of this process) or `pipeline`
    (ranks).

    The cuts are those for which the slowest stage takes the least time. A stage takes the time of
    its operators, forward and backward, each measured alone, and of its messages. A weight that two
    stages read travels to the later one, as results do, and its gradient back.

    Args:
        net: a HybridBlock or a Symbol.
        parts: the number of stages. Not given with `groups`.
        data: one input, or a tuple of them, with the shape of a micro-batch. Default: the first
            call or step decides. For a Symbol a dictionary, name -> array or shape, in the order in
            which they will be given; the others are parameters. Those whose name ends with "label"
            are there wherever they are read.
        groups: the stage of each ctx_group (mx.AttrScope). An operator without one is where its
            inputs come from.
        costs: seconds of operators, by their name or their operator's; others cost nothing.
            Default: measured.
        link: (seconds for each message, bytes per second). Default: measured, between the first two
            ranks of the job or two devices.
        memory: bytes that a stage may have: for its weights and their gradients, and the results of
            its operators for all micro-batches that 1F1B keeps.
    In a job of several ranks all call it, and get rank 0's choice.
    Raises: InvalidValue (a ValueError) where no such cuts exist, or groups lead back to an earlier
        stage.

    >>> net = gluon.nn.HybridSequential()
    >>> net.add(gluon.nn.Dense(8), gluon.nn.Dense(8), gluon.nn.Dense(8))
    >>> net.initialize()
    >>> cut = mx.dist.partition(net, parts=3, data=nd.ones((4, 8)), costs={"FullyConnected": 1.0})
    >>> [len(stage.operators) for stage in cut.stages]
    [1, 1, 1]
    """
    init()
    if (parts is None) == (groups is None):
        raise InvalidValue("partition: exactly one of parts and groups must be given")
    if groups is not None:
        if any(not isinstance(stage, int) or stage < 0 for stage in groups.values()):
            raise InvalidValue(f"partition: groups must be numbers of stages, got {dict(groups)}")
        parts = max(groups.values(), default=-1) + 1
    if not isinstance(parts, int) or parts < 1:
        raise InvalidValue(f"partition: parts must be an integer of at least 1, got {parts!r}")
    labels: frozenset[int] = frozenset()
    if isinstance(net, Symbol):
        if not isinstance(data, Mapping):
            rule = "partition: data of a Symbol must be a dictionary, name -> array or shape"
            raise InvalidType(f"{rule}, got {type(data).__name__}")
        net = hooks.get("block of a symbol")(net, [var(name) for name in data])
        labels = frozenset(i for i, name in enumerate(data) if name.endswith("label"))
        data = [zeros(a) if isinstance(a, tuple) else a for a in data.values()]
    elif not hasattr(net, "hybrid_forward"):
        fix = "HybridBlock, HybridSequential"
        rule = f"partition: net must be a HybridBlock or a Symbol, got {type(net).__name__}"
        raise InvalidType(compose(rule, fix=fix))
    made = Partition(net, labels, parts, groups, costs, link, memory)
    if data is not None:
        made.choose(data if isinstance(data, (list, tuple)) else [data])
    return made


def _given(nodes: Sequence[Node], costs: Mapping[str, float]) -> dict[Node, float]:
    """The cost of each operator, by its name or its operator's. Raises InvalidValue."""
    names = {name for n in nodes for name in (n.name, n.operation.name)}
    if unknown := [name for name in costs if name not in names]:
        rule = f"partition: costs: no operator of the graph is called {unknown[0]!r}"
        raise InvalidValue(compose(rule, fix=did_you_mean(unknown[0], names, 3)))
    return {n: float(costs.get(n.name, costs.get(n.operation.name, 0.0))) for n in nodes}


def _row(s: Stage) -> tuple[str, ...]:
    names = s.operators[0] if len(s.operators) == 1 else f"{s.operators[0]} .. {s.operators[-1]}"
    sizes = map(size, (s.weight_bytes, s.result_bytes, s.received_bytes, s.sent_bytes))
    return str(s.number), f"{s.seconds * 1e3:.2f}", *sizes, f"{len(s.operators)}: {names}"
